"""SyncGroup (key 14).

v1 adds the throttle time. v3 adds the group instance id (KIP-345). v4 is flexible. v5 has the protocol type and name in
both directions (KIP-559); a v5 request without one of them is refused before any other check (G2).
"""

from functools import partial

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, SyncGroup
from muster.coordinator.group.outcomes import Outcome, Superseded, SyncGroupOutcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.ids import MemberId
from muster.events.steps import Steps, collected


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    if context.api_version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        answer(encode(SyncGroupOutcome(error=ErrorCode.inconsistent_group_protocol)))
        return None

    def reply(outcome: Outcome) -> None:
        if isinstance(outcome, Superseded):
            context.superseded()
            return
        assert isinstance(outcome, SyncGroupOutcome)
        answer(encode(outcome))

    def submit() -> Steps[Cancel]:
        command = yield from decode(body, context.caller(service))
        service.groups.submit(command, reply)
        return partial(service.gone, command.caller.request_id)

    return context.work(submit())


def decode(body: Body, caller: Caller) -> Steps[SyncGroup]:
    assignments = yield from collected((MemberId(each.member_id), each.assignment) for each in body.assignments)
    return SyncGroup(
        caller=caller,
        group_id=body.group_id,
        member_id=MemberId(body.member_id),
        group_instance_id=getattr(body, "group_instance_id", None),
        generation_id=body.generation_id,
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments=tuple(assignments),
    )


def encode(outcome: SyncGroupOutcome) -> Fields:
    return {
        "error_code": outcome.error,
        "protocol_type": outcome.protocol_type,
        "protocol_name": outcome.protocol_name,
        "assignment": outcome.assignment,
    }


API = Api(key=14, name="SyncGroup", versions=range(6), handle=handle)
