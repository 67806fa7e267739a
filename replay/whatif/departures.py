"""Members that fell silent: since when, as far as the log tells, before their sessions ended."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from muster.events.causes import Cause
from muster.events.events import MemberRemoved
from muster.events.state import Member
from muster.replay.whatif.facts import Fact, Step


class FellSilent(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was removed because its session ended, which was due at `due_ms`; wall clock ms."""

    member: Member
    last_seen_ms: int
    due_ms: int
    removed_ms: int


class Departures:
    """All of one history."""

    def __init__(self, steps: Sequence[Step]) -> None:
        events = (event for step in steps if isinstance(step, Fact) for event in step.events)
        self._fell_silent = [
            fell_silent(event)
            for event in events
            if isinstance(event, MemberRemoved) and event.why.cause is Cause.SESSION_EXPIRED
        ]
        self._fell_silent.sort(key=_removed_ms)
        self._longest_ms = max((each.removed_ms - each.last_seen_ms for each in self._fell_silent), default=0)

    def silent_at(self, at_ms: int) -> list[FellSilent]:
        """Those who were silent at a moment, and are members still; who fell silent first comes first."""
        return sorted(self._silent_at(at_ms), key=lambda each: each.last_seen_ms)

    def _silent_at(self, at_ms: int) -> Iterator[FellSilent]:
        for each in self._fell_silent[bisect_left(self._fell_silent, at_ms, key=_removed_ms) :]:
            if each.removed_ms > at_ms + self._longest_ms:
                return
            if each.last_seen_ms < at_ms:
                yield each


def fell_silent(event: MemberRemoved) -> FellSilent:
    """The silence that ended with the member's removal."""
    return FellSilent(
        member=event.member,
        last_seen_ms=event.last_seen_ms,
        due_ms=event.why.arrived_ms,
        removed_ms=event.why.decided_ms,
    )


def _removed_ms(each: FellSilent) -> int:
    return each.removed_ms
