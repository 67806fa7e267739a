"""Is the sender who it says it is? One check for all requests (M4), and what is recorded when it is not."""

from kio.schema.errors import ErrorCode

from coordinator.group.commands import Caller
from coordinator.group.turn import Turn
from events.causes import Cause
from events.ids import GroupInstanceId, MemberId
from events.state import Group


def validate_member(group: Group, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
    """In this order (M4): instance unknown: 25; instance of another member id: 82; member id unknown: 25."""
    if group_instance_id is not None:
        holder = group.instances.get(group_instance_id)
        if holder is None:
            return ErrorCode.unknown_member_id
        if holder != member_id:
            return ErrorCode.fenced_instance_id
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    return ErrorCode.none


def note_if_fenced(
    turn: Turn,
    error: ErrorCode,
    caller: Caller,
    member_id: MemberId,
    group_instance_id: GroupInstanceId | None,
    *,
    reason: str | None = None,
) -> None:
    """Two processes with one instance id are a fact worth keeping (known bug S16): record it, with both hosts."""
    if error is ErrorCode.fenced_instance_id and group_instance_id is not None:
        turn.because(Cause.INSTANCE_FENCED, caller, member_id, group_instance_id, reason)
        turn.note_fenced(error, turn.group.members.get(turn.group.instances[group_instance_id]))
