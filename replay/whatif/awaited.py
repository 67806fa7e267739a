"""The members that a play waits for, ordered so that the next one is found without searching all of them.

A member that does nothing when it is due (it is silent, or was removed) is dropped, and added again if it comes back.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from muster.events.ids import MemberId
from muster.replay.whatif.pace import NEVER

Waits = Callable[[MemberId], bool]
"""Returns whether the play still waits for this member."""


class Rejoins:
    """The times at which members rejoin in a join phase, in wall clock ms, the earliest first."""

    def __init__(self, at_ms: Mapping[MemberId, float] | None = None) -> None:
        self._at_ms = at_ms or {}
        moments = ((each, order, member_id) for order, (member_id, each) in enumerate(self._at_ms.items()))
        self._next = [each for each in moments if each[0] < NEVER]
        heapify(self._next)

    def at_ms(self, member_id: MemberId) -> float:
        """Return when the member rejoins; NEVER if it was not a member when the phase began."""
        return self._at_ms.get(member_id, NEVER)

    def add(self, member_id: MemberId) -> None:
        """Wait for this member again."""
        at_ms = self.at_ms(member_id)
        if at_ms < NEVER:
            heappush(self._next, (at_ms, -1, member_id))

    def first(self, waits: Waits) -> tuple[float, MemberId | None]:
        """Return the time and the member of the next rejoin; NEVER and None if there is none."""
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
        """Wait for this member again."""
        self._next.append(member_id)

    def first(self, waits: Waits) -> MemberId | None:
        """Return the next member to sync; None if there is none."""
        while self._next:
            if waits(self._next[0]):
                return self._next[0]
            self._next.popleft()
        return None
