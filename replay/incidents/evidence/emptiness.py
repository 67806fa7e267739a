"""Why a group has no members, as text."""

from typing import Final

from muster.events.causes import Cause
from muster.replay.text.times import duration

_EMPTIED: Final = {
    Cause.MEMBER_LEFT: "its last member had left",
    Cause.SESSION_EXPIRED: "its last member had expired",
    Cause.NOT_REJOINED: "its last member had been dropped, since it did not rejoin,",
    Cause.SYNC_TIMED_OUT: "its last member had been dropped, since it did not ask for its assignment,",
    Cause.MEMBER_REMOVED_BY_ADMIN: "its last member had been removed",
    Cause.RETIREMENT_TIMED_OUT: "its last member had been retired",
    Cause.RETIREMENT_COMPLETE: "its last member had been retired",
    Cause.GROUP_RELEASED: "it had been released to the upstream cluster",
    Cause.GROUP_REPAIRED: "an administrator had it re-created",
}


def emptied_text(cause: Cause | None, empty_ms: int) -> str:
    """'its last member had left 7 d 0 h before'; if the cause is not recorded, 'it had been empty for 7 d 0 h'."""
    empty = duration(max(0, empty_ms))
    return f"{_EMPTIED[cause]} {empty} before" if cause in _EMPTIED else f"it had been empty for {empty}"
