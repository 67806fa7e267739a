"""The members for whom a play waits, so that the next one is known without going through all of them.

A member whose time has come and that does nothing (it is silent, or gone) is dropped; one that comes back is added
again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from muster.events.ids import MemberId
from muster.replay.whatif.pace import NEVER

Waits = Callable[[MemberId], bool]
"""Whether a member is still to do what it is awaited for."""


class Rejoins:
    """The moments at which members rejoin in a join phase, wall clock ms; the earliest comes first."""

    def __init__(self, at_ms: Mapping[MemberId, float] | None = None) -> None:
        self._at_ms = at_ms or {}
        moments = ((each, order, member_id) for order, (member_id, each) in enumerate(self._at_ms.items()))
        self._next = [each for each in moments if each[0] < NEVER]
        heapify(self._next)

    def at_ms(self, member_id: MemberId) -> float:
        """When the member rejoins; NEVER if it was none when the phase began."""
        return self._at_ms.get(member_id, NEVER)

    def add(self, member_id: MemberId) -> None:
        """Await it again."""
        at_ms = self.at_ms(member_id)
        if at_ms < NEVER:
            heappush(self._next, (at_ms, -1, member_id))

    def first(self, waits: Waits) -> tuple[float, MemberId | None]:
        """The next one, and when it comes; NEVER if nobody does."""
        while self._next:
            at_ms, _, member_id = self._next[0]
            if waits(member_id):
                return at_ms, member_id
            heappop(self._next)
        return NEVER, None


class Syncs:
    """The members that have not synced, in order."""

    def __init__(self, members: Iterable[MemberId] = ()) -> None:
        self._next = deque(members)

    def add(self, member_id: MemberId) -> None:
        """Await it again."""
        self._next.append(member_id)

    def first(self, waits: Waits) -> MemberId | None:
        """The next one."""
        while self._next:
            if waits(self._next[0]):
                return self._next[0]
            self._next.popleft()
        return None
