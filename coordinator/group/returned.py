"""Members that were removed after going silent, and whose process is heard from again: it was not dead.

A request under the id of such a member is noted for the event that ends the next join phase. A process that restarted,
or replaced a dead one, joins without an id. One that was cut off or stalled sends its old id, is answered
UNKNOWN_MEMBER_ID, and joins as a new member. Only that old id distinguishes the two cases.
"""

from typing import Any, Final

from muster.coordinator.group.commands import AnyCommand, Commit, Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now, Turn
from muster.events.state import ReturnedMember

NOTED_MAX: Final = 16


def after_return(command: AnyCommand, soft: SoftState, now: Now) -> SoftState:
    """Return the soft state with a note if a removed member sent the request, otherwise unchanged."""
    if not soft.removed_members or not isinstance(command, JoinGroup | SyncGroup | Heartbeat | Commit):
        return soft
    if command.member_id not in soft.removed_members:
        return soft
    noted = soft.copy()
    noted.removed_members.discard(command.member_id)
    if len(noted.returned_members) < NOTED_MAX:
        heard_ms = now.wall_of(command.caller.arrived_ms)
        noted.returned_members = (
            *noted.returned_members,
            ReturnedMember(member_id=command.member_id, heard_ms=heard_ms),
        )
    else:
        noted.returned_members_more += 1
    return noted


def take_returned(turn: Turn) -> dict[str, Any]:
    """Return the fields about returned members for the event that ends a join phase, and clear what was noted."""
    soft = turn.soft
    noted, more = soft.returned_members, soft.returned_members_more
    soft.returned_members, soft.returned_members_more = (), 0
    return {"returned": noted, "returned_more": more}
