"""LeaveGroup (key 13).

v0 to v2 name a single member, and have its error on top (W16, W17). v1 adds the throttle time. v3 names many members,
each by member id, instance id or both, with an error for each (KIP-345). v4 is flexible. v5 has a reason for each
(KIP-800).

Very long lists become several commands, since each command is decided without a pause, at about 8 µs per member. They
are queued one behind another, and the first one starts the rebalance for all of them.
"""

from collections.abc import Sequence
from itertools import chain

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import LeaveGroup, LeavingMember
from muster.coordinator.group.outcomes import LeaveGroupOutcome, LeftMember, Outcome
from muster.coordinator.service import Cancel, ReplyTo, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext, stated_reason
from muster.coordinator.wire.gather import Gather
from muster.events.ids import MemberId
from muster.events.steps import Each, Steps, collected

MEMBERS_AT_ONCE = 1_000
"""The maximum number of members in one command."""


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    def respond(outcomes: Sequence[LeaveGroupOutcome]) -> None:
        answer(encode(_together(outcomes), context.api_version))

    def submit() -> Steps[None]:
        parts = yield from decode(body, context)
        gathered = Gather[LeaveGroupOutcome](len(parts), respond)

        def reply_to(place: int) -> ReplyTo:
            def reply(outcome: Outcome) -> None:
                assert isinstance(outcome, LeaveGroupOutcome)
                gathered.put(place, outcome)

            return reply

        for place, members in enumerate(parts):  # without a pause, so no other command of the group comes between
            command = LeaveGroup(caller=context.caller(service), group_id=body.group_id, members=members)
            service.groups.submit(command, reply_to(place))

    return context.work(submit())


def decode(body: Body, context: RequestContext) -> Steps[list[tuple[LeavingMember, ...]]]:
    """Decode the members of each command; there is at least one command."""
    if context.api_version < 3:
        return [(LeavingMember(member_id=MemberId(body.member_id), group_instance_id=None, reason=None),)]
    members = yield from collected(
        LeavingMember(
            member_id=MemberId(each.member_id),
            group_instance_id=each.group_instance_id,
            reason=stated_reason(getattr(each, "reason", None)),
        )
        for each in body.members
    )
    firsts = range(0, max(1, len(members)), MEMBERS_AT_ONCE)
    return [tuple(members[first : first + MEMBERS_AT_ONCE]) for first in firsts]


def _together(outcomes: Sequence[LeaveGroupOutcome]) -> LeaveGroupOutcome:
    """Combine the outcomes: an error of one is that of the request, which the client retries as a whole."""
    error = next((each.error for each in outcomes if each.error is not ErrorCode.none), ErrorCode.none)
    members = chain.from_iterable(each.members for each in outcomes)
    return LeaveGroupOutcome(error=error, members=tuple(members) if error is ErrorCode.none else ())


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
