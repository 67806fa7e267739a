"""DescribeGroups (key 15).

v1 adds the throttle time. v3 adds authorized operations. v4 adds each member's group instance id. v5 is flexible. v6
answers 69 for a group that does not exist, with a message; below, it is shown in state Dead without an error (DG1). A
group that is named many times is described once: its members may be a thousand times as long as its name.
"""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DescribeGroup
from muster.coordinator.group.outcomes import DescribedMember, DescribeGroupOutcome, Outcome
from muster.coordinator.service import Cancel, ReplyTo, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED, GROUP_OPERATIONS
from muster.coordinator.wire.gather import Gather
from muster.events.ids import GroupId
from muster.events.state import GroupState
from muster.events.steps import Each, Steps, entries_of


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    operations = (
        GROUP_OPERATIONS if getattr(body, "include_authorized_operations", False) else AUTHORIZED_OPERATIONS_OMITTED
    )
    group_ids = tuple(dict.fromkeys(body.groups))

    def respond(outcomes: Sequence[DescribeGroupOutcome]) -> None:
        def group(place: int) -> Fields:
            return encode(group_ids[place], outcomes[place], context.api_version, operations)

        answer({"groups": Each(group, range(len(group_ids)))})

    gathered = Gather[DescribeGroupOutcome](len(group_ids), respond)

    def reply_to(place: int) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, DescribeGroupOutcome)
            gathered.put(place, outcome)

        return reply

    def submit() -> Steps[None]:
        for place, group_id in enumerate(group_ids):
            command = DescribeGroup(caller=context.caller(service), group_id=group_id)
            service.groups.submit(command, reply_to(place))
            yield entries_of(group_id)

    return context.work(submit())


def encode(group_id: GroupId, outcome: DescribeGroupOutcome, api_version: int, operations: int) -> Fields:
    error, state = outcome.error, "" if outcome.state is None else outcome.state.value
    error_message = None
    if error is ErrorCode.group_id_not_found:
        state = GroupState.DEAD.value
        if api_version < 6:
            error = ErrorCode.none
        else:
            error_message = f"Group {group_id} not found."
    return {
        "error_code": error,
        "error_message": error_message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": outcome.protocol_type,
        "protocol_data": outcome.protocol_name,
        "members": Each(_member, outcome.members),
        "authorized_operations": operations if error is ErrorCode.none else AUTHORIZED_OPERATIONS_OMITTED,
    }


def _member(member: DescribedMember) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }


API = Api(key=15, name="DescribeGroups", versions=range(7), handle=handle)
