"""DeleteGroups, for one group."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DeleteGroup
from muster.coordinator.group.outcomes import DeleteGroupOutcome
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupDeleted, RegistrationEnded
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import NOT_CONFIGURED, GroupState


def delete_group(turn: Turn, command: DeleteGroup) -> None:
    """Delete an Empty group; refuse any other (DL1)."""
    if turn.image.state is not GroupState.EMPTY:
        turn.reply(command.caller, DeleteGroupOutcome(error=ErrorCode.non_empty_group))
        return
    turn.caused_by(Cause.GROUP_DELETED, command.caller, UNKNOWN_MEMBER_ID, None)
    remove_configs(turn)
    empty_since_ms = turn.image.state_since_ms
    turn.enter(GroupState.DEAD)
    turn.record(GroupDeleted, empty_since_ms=empty_since_ms)
    turn.reply(command.caller, DeleteGroupOutcome(error=ErrorCode.none))


def remove_configs(turn: Turn) -> None:
    """Remove the configs and registrations of a group that is about to be deleted; they have keys of their own."""
    for registration in list(turn.group.registrations.values()):
        turn.record_registration(RegistrationEnded, registration)
    if turn.group.config != NOT_CONFIGURED:
        turn.record_config(NOT_CONFIGURED)
