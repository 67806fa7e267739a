"""DescribeGroups and DeleteGroups, for one group each."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DeleteGroup
from muster.coordinator.group.outcomes import DeleteGroupOutcome, DescribedMember, DescribeGroupOutcome
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupDeleted, RegistrationEnded
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import NOT_CONFIGURED, Group, GroupState


def describe(group: Group | None) -> DescribeGroupOutcome:
    """Describe a group (DG1 to DG4): metadata and protocol in Stable alone, assignments as long as they are valid."""
    if group is None:
        return DescribeGroupOutcome(error=ErrorCode.group_id_not_found, state=GroupState.DEAD)
    image = group.image
    protocol_name = image.protocol_name if image.state is GroupState.STABLE else None
    return DescribeGroupOutcome(
        state=image.state,
        protocol_type=image.protocol_type or "",
        protocol_name=protocol_name or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(protocol_name),
                assignment=group.assignment_of(member),
            )
            for member in group.members.values()
        ),
    )


def delete_group(turn: Turn, command: DeleteGroup) -> None:
    """Delete an Empty group; refuse any other (DL1)."""
    if turn.image.state is not GroupState.EMPTY:
        turn.reply(command.caller, DeleteGroupOutcome(error=ErrorCode.non_empty_group))
        return
    turn.caused_by(Cause.GROUP_DELETED, command.caller, UNKNOWN_MEMBER_ID, None)
    remove_settings(turn)
    turn.enter(GroupState.DEAD)
    turn.record(GroupDeleted)
    turn.reply(command.caller, DeleteGroupOutcome(error=ErrorCode.none))


def remove_settings(turn: Turn) -> None:
    """Remove the configs and registrations of a group that is about to be deleted; they have keys of their own."""
    for registration in list(turn.group.registrations.values()):
        turn.record_registration(RegistrationEnded, registration)
    if turn.group.config != NOT_CONFIGURED:
        turn.record_config(NOT_CONFIGURED)
