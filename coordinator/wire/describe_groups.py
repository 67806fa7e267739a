"""DescribeGroups (key 15).

v1 adds the throttle time. v3 can tell what the caller may do with a group. v4 tells each member's group instance id.
v5 is flexible. v6 answers 69 for a group that does not exist, with a message; below, it is a group in state Dead
without an error (DG1).
"""

from kio.schema.errors import ErrorCode

from coordinator.group.commands import DescribeGroup
from coordinator.group.outcomes import DescribeGroupOutcome, Outcome
from coordinator.service import ReplyTo, Service
from coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from coordinator.wire.gather import Gather
from coordinator.wire.operations import GROUP_OPERATIONS, NOT_TOLD
from events.ids import GroupId
from events.state import GroupState


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    operations = GROUP_OPERATIONS if getattr(body, "include_authorized_operations", False) else NOT_TOLD
    gathered = Gather[Fields](len(body.groups), lambda groups: answer({"groups": groups}))

    def reply_to(place: int, group_id: GroupId) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, DescribeGroupOutcome)
            gathered.put(place, encode(group_id, outcome, context.api_version, operations))

        return reply

    for place, group_id in enumerate(body.groups):
        command = DescribeGroup(caller=context.caller(service), group_id=group_id)
        service.groups.submit(command, reply_to(place, group_id))


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
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in outcome.members
        ],
        "authorized_operations": operations if error is ErrorCode.none else NOT_TOLD,
    }


API = Api(key=15, name="DescribeGroups", versions=range(7), handle=handle)
