"""Members that fell silent: since when, as far as the log tells, before their sessions ended."""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from muster.events.causes import Cause
from muster.events.events import MemberRemoved
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.whatif.facts import Fact, Step


class FellSilent(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was removed because its session ended, which was due at `due_ms`; wall clock ms."""

    member: Member
    last_seen_ms: int
    due_ms: int
    removed_ms: int


class Departures:
    """The departures among the steps that are looked ahead at, in the order in which they were read."""

    def __init__(self) -> None:
        self._fell_silent: deque[FellSilent] = deque()
        self._forgotten = 0

    def note(self, step: Step) -> None:
        """Take in the next step."""
        for event in step.events if isinstance(step, Fact) else ():
            if isinstance(event, MemberRemoved) and event.why.cause is Cause.SESSION_EXPIRED:
                self._fell_silent.append(fell_silent(event))

    def forget(self, before_ms: int) -> None:
        """Drop those who were removed before a moment."""
        while self._fell_silent and self._fell_silent[0].removed_ms < before_ms:
            self._fell_silent.popleft()
            self._forgotten += 1

    def since(self, number: int) -> tuple[int, Iterator[tuple[int, FellSilent]]]:
        """Return the departures after the first `number`, numbered, the last first; and how many there are in all."""
        total = self._forgotten + len(self._fell_silent)
        more = min(total - number, len(self._fell_silent))
        return total, zip(range(total, total - more, -1), reversed(self._fell_silent), strict=False)


class Falling:
    """The members who fall silent while one play goes on: each is given once, when it is time."""

    def __init__(self, departures: Departures, now_ms: int) -> None:
        self._departures = departures
        self._seen = 0
        self._waiting: list[tuple[int, int, FellSilent]] = []  # a heap, by when each was last seen, and number
        self._silent: dict[MemberId, FellSilent] = {}
        self._now_ms = now_ms

    def until(self, at_ms: int) -> Iterator[FellSilent]:
        """Yield the members who are silent at a moment and were not given, in the order in which they fell silent."""
        self._seen, read = self._departures.since(self._seen)
        for number, each in read:
            if each.removed_ms >= self._now_ms:
                heappush(self._waiting, (each.last_seen_ms, number, each))
        self._now_ms = at_ms
        while self._waiting and self._waiting[0][0] < at_ms:
            each = heappop(self._waiting)[2]
            if each.removed_ms >= at_ms:
                self._silent[each.member.member_id] = each
                yield each

    def again(self, member_ids: Iterable[MemberId], at_ms: int) -> Iterator[FellSilent]:
        """Yield those of these members who were given and are to stay silent: they are members again in the play."""
        for member_id in member_ids:
            each = self._silent.get(member_id)
            if each is not None and each.removed_ms >= at_ms:
                yield each


def fell_silent(event: MemberRemoved) -> FellSilent:
    """The silence that ended with the member's removal."""
    return FellSilent(
        member=event.member,
        last_seen_ms=event.last_seen_ms,
        due_ms=event.why.arrived_ms,
        removed_ms=event.why.decided_ms,
    )
