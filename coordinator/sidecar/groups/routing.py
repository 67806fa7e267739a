"""Decides where a group's requests go: handled here, or relayed to upstream.

A group is Muster's from the JoinGroup that took it until it has neither members nor joining members. Before that,
upstream is asked: while the group has members there, of any type, all its requests are relayed. So the processes of an
application can move behind the sidecar one at a time, and no partition ever has two owners.
"""

from collections.abc import Callable
from enum import Enum, auto, unique
from typing import Protocol

from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream
from muster.events.ids import GroupId


@unique
class GroupRoute(Enum):
    LOCAL = auto()
    UPSTREAM = auto()
    UNDECIDED = auto()
    """The group may become Muster's: `take` it, or relay."""
    LOADING = auto()
    """The log will soon show who coordinates the group; asking upstream about each one would only delay that."""
    MOVING = auto()
    """The group is being moved: no member can join (see moves.py)."""

    def refusal(self, of_client: ErrorCode) -> ErrorCode:
        """Return the error for a request that must not reach the rules; the client's own refusal takes precedence."""
        is_loading = self is GroupRoute.LOADING and of_client is ErrorCode.none
        return ErrorCode.coordinator_load_in_progress if is_loading else of_client


class ShadowedGroups(Protocol):
    """Muster's shadows upstream (see upstream/shadows.py)."""

    def owns(self, group_id: GroupId) -> bool: ...

    async def probe(self, group_id: GroupId) -> KeptUpstream | None: ...

    async def take(self, group_id: GroupId) -> KeptUpstream | None: ...


class MovingGroups(Protocol):
    """Groups that administrators have moved (see moves.py)."""

    def is_moving(self, group_id: GroupId) -> bool: ...

    def is_released(self, group_id: GroupId) -> bool: ...


class GroupRouter:
    """Routes groups. `may_own`: this sidecar coordinates the group (`--groups`).

    `is_loaded`: the group's partition has been read from the log; `is_loaded_soon`: it is being taken over right now,
    which takes so little time that no member whose heartbeat is answered here expires upstream.
    """

    def __init__(
        self,
        shadows: ShadowedGroups,
        moves: MovingGroups,
        *,
        may_own: Callable[[GroupId], bool],
        is_loaded: Callable[[GroupId], bool],
        is_loaded_soon: Callable[[GroupId], bool],
    ) -> None:
        self._shadows = shadows
        self._moves = moves
        self._may_own = may_own
        self._is_loaded = is_loaded
        self._is_loaded_soon = is_loaded_soon

    def route_of(self, group_id: GroupId, *, joins: bool = False) -> GroupRoute:
        """Return the group's route. `joins`: the request may take the group (JoinGroup)."""
        if self._moves.is_moving(group_id):
            return GroupRoute.MOVING
        if self._shadows.owns(group_id):
            return GroupRoute.LOCAL
        if not group_id or not self._may_own(group_id):
            return GroupRoute.UPSTREAM
        if not self._is_loaded(group_id):
            if self._is_loaded_soon(group_id):
                return GroupRoute.LOADING
            return GroupRoute.UNDECIDED  # relayed if upstream has members in it, else answered as loading
        return GroupRoute.UNDECIDED if joins and not self._moves.is_released(group_id) else GroupRoute.UPSTREAM

    def may_be_ours(self, group_id: GroupId) -> bool:
        """Return whether the group is, or may become, Muster's, so that this process may know something about it."""
        return self._shadows.owns(group_id) or (bool(group_id) and self._may_own(group_id))

    async def take(self, group_id: GroupId, *, would_fail: Callable[[], bool]) -> KeptUpstream | None:
        """Take the group if it is vacant upstream; if not, return why. Raises ShadowUnavailable.

        `would_fail`: the rules would refuse the join; then upstream is only asked, so that no shadow stays there. The
        shadow of an older version is ignored until the log has been read, which shows whether the group was ours.
        """
        if not would_fail():
            return await self._shadows.take(group_id)
        was_read = self._is_loaded(group_id)
        theirs = await self._shadows.probe(group_id)
        is_unnamed = isinstance(theirs, ForeignShadow) and theirs.is_unnamed
        return None if is_unnamed and not was_read else theirs
