"""JoinGroup (key 11).

v0 has no rebalance timeout; the session timeout is used instead (R3). v1 adds it. v2 adds the throttle time to the
response. v4 requires a new dynamic member to join again with the member id that it was given (KIP-394). v5 adds the
group instance id, also for each member in the response (KIP-345). v6 is flexible. v7 adds the protocol type, and the
protocol name may be null (W11). v8 adds a reason (KIP-800). v9 can make a leader skip the assignment (KIP-814).
"""

from functools import partial
from typing import Final

from muster.coordinator.group.commands import Caller, JoinGroup
from muster.coordinator.group.outcomes import JoinedMember, JoinGroupOutcome, Outcome, Superseded
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext, stated_reason
from muster.events.ids import MemberId
from muster.events.state import Protocol
from muster.events.steps import Each, Steps

CLIENT_ID_PART_LENGTH_MAX: Final = 255
"""A member id begins with at most this many characters of the client id, since an unused id is kept for half an
hour.
"""
INSTANCE_ID_PART_LENGTH_MAX: Final = 8_000
"""The same for an instance id; strings are limited to 32,767 bytes, so the member could not send a longer id."""


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    def reply(outcome: Outcome) -> None:
        if isinstance(outcome, Superseded):
            context.superseded()
            return
        assert isinstance(outcome, JoinGroupOutcome)
        answer(encode(outcome, context.api_version))

    def submit() -> Steps[Cancel]:
        command = decode(body, context, context.caller(service), context.member_uuid or service.new_uuid())
        yield len(command.protocols)
        service.groups.submit(command, reply)
        return partial(service.gone, command.caller.request_id)

    return context.work(submit())


def decode(body: Body, context: RequestContext, caller: Caller, uuid: str) -> JoinGroup:
    """Decode the command, with a proposed member id of `<instance id or client id>-<uuid>` (M1), the first part
    truncated.
    """
    group_instance_id = getattr(body, "group_instance_id", None)
    client_part = context.client_id[:CLIENT_ID_PART_LENGTH_MAX]
    owner = client_part if group_instance_id is None else group_instance_id[:INSTANCE_ID_PART_LENGTH_MAX]
    return JoinGroup(
        caller=caller,
        group_id=body.group_id,
        member_id=MemberId(body.member_id),
        group_instance_id=group_instance_id,
        proposed_member_id=MemberId(f"{owner}-{uuid}"),
        protocol_type=body.protocol_type,
        protocols=tuple(Protocol(name=each.name, metadata=each.metadata) for each in body.protocols),
        session_timeout_ms=body.session_timeout,
        rebalance_timeout_ms=body.session_timeout if context.api_version == 0 else body.rebalance_timeout,
        reason=stated_reason(getattr(body, "reason", None)),
        requires_known_member_id=context.api_version >= 4 and group_instance_id is None,
        supports_skip_assignment=context.api_version >= 9,
    )


def encode(outcome: JoinGroupOutcome, api_version: int) -> Fields:
    return {
        "error_code": outcome.error,
        "generation_id": outcome.generation_id,
        "protocol_type": outcome.protocol_type,
        "protocol_name": (outcome.protocol_name or None) if api_version >= 7 else (outcome.protocol_name or ""),
        "leader": outcome.leader_id,
        "skip_assignment": outcome.skip_assignment,
        "member_id": outcome.member_id,
        "members": Each(_member, outcome.members),
    }


def _member(member: JoinedMember) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "metadata": member.metadata,
    }


API = Api(key=11, name="JoinGroup", versions=range(10), handle=handle)
