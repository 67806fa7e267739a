"""LeaveGroup (key 13).

v0 to v2 name a single member, and have its error on top (W16, W17). v1 adds the throttle time. v3 names many members,
each by member id, instance id or both, with an error for each (KIP-345). v4 is flexible. v5 has a reason for each
(KIP-800).
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, LeaveGroup, LeavingMember
from muster.coordinator.group.outcomes import LeaveGroupOutcome, LeftMember, Outcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext, stated_reason
from muster.events.ids import MemberId
from muster.events.steps import Each, Steps, collected


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    def reply(outcome: Outcome) -> None:
        assert isinstance(outcome, LeaveGroupOutcome)
        answer(encode(outcome, context.api_version))

    def submit() -> Steps[None]:
        command = yield from decode(body, context, context.caller(service))
        service.groups.submit(command, reply)

    return context.work(submit())


def decode(body: Body, context: RequestContext, caller: Caller) -> Steps[LeaveGroup]:
    if context.api_version < 3:
        members = [LeavingMember(member_id=MemberId(body.member_id), group_instance_id=None, reason=None)]
    else:
        members = yield from collected(
            LeavingMember(
                member_id=MemberId(each.member_id),
                group_instance_id=each.group_instance_id,
                reason=stated_reason(getattr(each, "reason", None)),
            )
            for each in body.members
        )
    return LeaveGroup(caller=caller, group_id=body.group_id, members=tuple(members))


def encode(outcome: LeaveGroupOutcome, api_version: int) -> Fields:
    error = outcome.error
    if api_version < 3 and error is ErrorCode.none and outcome.members:
        error = outcome.members[0].error
    return {
        "error_code": error,
        "members": Each(_left, outcome.members),
    }


def _left(member: LeftMember) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "error_code": member.error,
    }


API = Api(key=13, name="LeaveGroup", versions=range(6), handle=handle)
