"""Members that were removed after going silent, and whose process is heard from again: it was not dead.

A request under the id of such a member is noted for the event that ends the next join phase. A process that restarted,
or replaced a dead one, joins without an id. One that was cut off or stalled sends its old id, is answered
UNKNOWN_MEMBER_ID, and joins as a new member, or leaves under the old id when it is closed. Only that old id
distinguishes the two cases.
"""

from typing import Any, Final

from muster.coordinator.group.commands import (
    AnyCommand,
    Caller,
    Commit,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now, Turn
from muster.events.ids import MemberId
from muster.events.state import ReturnedMember

NOTED_MAX: Final = 16


def after_return(command: AnyCommand, soft: SoftState, now: Now) -> SoftState:
    """Return the soft state with a note of removed members that sent the request, otherwise unchanged."""
    if not soft.removed_members or not isinstance(command, JoinGroup | SyncGroup | Heartbeat | Commit | LeaveGroup):
        return soft
    returned = [each for each in dict.fromkeys(_senders(command)) if each in soft.removed_members]
    if not returned:
        return soft
    noted = soft.copy()
    for each in returned:
        noted.removed_members.discard(each)
    there, heard_ms = noted.returned_members, now.wall_of(command.caller.arrived_ms)
    new = [ReturnedMember(member_id=each, heard_ms=heard_ms) for each in returned[: NOTED_MAX - len(there)]]
    noted.returned_members = (*there, *new)
    noted.returned_members_more += len(returned) - len(new)
    return noted


def _senders(command: JoinGroup | SyncGroup | Heartbeat | Commit | LeaveGroup) -> tuple[MemberId, ...]:
    """Return the ids of the members that sent the request."""
    if isinstance(command, LeaveGroup):
        return tuple(each.member_id for each in command.members if _leaves_itself(each, command.caller))
    return (command.member_id,)


def _leaves_itself(entry: LeavingMember, caller: Caller) -> bool:
    """Return whether the member's own client sent this entry, rather than an administrator who removes it.

    An administrator names a static member by its instance id alone, and has a different client id than a dynamic one.
    """
    return entry.group_instance_id is not None or entry.member_id.startswith(f"{caller.client_id}-")


def take_returned(turn: Turn) -> dict[str, Any]:
    """Return the fields about returned members for the event that ends a join phase, and clear what was noted."""
    soft = turn.soft
    noted, more = soft.returned_members, soft.returned_members_more
    soft.returned_members, soft.returned_members_more = (), 0
    return {"returned": noted, "returned_more": more}
