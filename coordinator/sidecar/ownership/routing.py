"""Whose group it is: ours, or the cluster's.

A group is ours from the JoinGroup that took it on, while somebody is in it, or on the way into it. Upstream is asked
first: while the group has members there, of any type, all its requests are relayed whole. So applications move behind
the sidecar one process at a time, and no partition ever has two owners.
"""

from collections.abc import Callable
from enum import Enum, auto, unique
from typing import Protocol

from muster.coordinator.upstream.group_probe import ForeignShadow, Theirs
from muster.events.ids import GroupId


@unique
class Whose(Enum):
    OURS = auto()
    THEIRS = auto()
    TO_BE_ASKED = auto()
    """It may become ours: `take` it, or relay."""
    MOVING = auto()
    """Between the two: nobody joins (see moves.py)."""


class Taking(Protocol):
    """Our members in the groups upstream (see upstream/shadows.py)."""

    def holds(self, group_id: GroupId) -> bool: ...

    async def look(self, group_id: GroupId) -> Theirs | None: ...

    async def take(self, group_id: GroupId) -> Theirs | None: ...


class Moving(Protocol):
    """What administrators have groups do (see moves.py)."""

    def is_moving(self, group_id: GroupId) -> bool: ...

    def is_released(self, group_id: GroupId) -> bool: ...


class Ownerships:
    """`may_own`: whether a group is one of those that this sidecar is for (`--groups`).

    `is_read`: whether the group's partition has been read from the log.
    """

    def __init__(
        self,
        shadows: Taking,
        moves: Moving,
        *,
        may_own: Callable[[GroupId], bool],
        is_read: Callable[[GroupId], bool],
    ) -> None:
        self._shadows = shadows
        self._moves = moves
        self._may_own = may_own
        self._is_read = is_read

    def of(self, group_id: GroupId, *, joins: bool = False) -> Whose:
        """`joins`: the request is one that may take the group."""
        if self._moves.is_moving(group_id):
            return Whose.MOVING
        if self._shadows.holds(group_id):
            return Whose.OURS
        if not group_id or not self._may_own(group_id):
            return Whose.THEIRS
        if not self._is_read(group_id):
            return Whose.TO_BE_ASKED  # unless it is theirs, who asks is told that it is being loaded
        return Whose.TO_BE_ASKED if joins and not self._moves.is_released(group_id) else Whose.THEIRS

    def is_for(self, group_id: GroupId) -> bool:
        """Whether the group is, or could be, ours: something may be known of it here."""
        return self._shadows.holds(group_id) or (bool(group_id) and self._may_own(group_id))

    async def take(self, group_id: GroupId, *, is_in_vain: Callable[[], bool]) -> Theirs | None:
        """Make the group ours if nobody is in it upstream; else why not. Raises ShadowUnavailable.

        `is_in_vain`: nothing would come of the join, so that no trace of it is to be left upstream. The shadow of an
        earlier version is nobody's as long as the log, which says whether the group was ours, is not read.
        """
        if not is_in_vain():
            return await self._shadows.take(group_id)
        was_read = self._is_read(group_id)
        theirs = await self._shadows.look(group_id)
        is_unnamed = isinstance(theirs, ForeignShadow) and theirs.is_unnamed
        return None if is_unnamed and not was_read else theirs
