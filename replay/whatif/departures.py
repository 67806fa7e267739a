"""Members that fell silent: since when, as far as the log tells, before their sessions ended."""

from bisect import bisect_left, insort
from collections.abc import Iterator

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
    """Those of the steps that are looked ahead at, in the order in which they were removed."""

    def __init__(self) -> None:
        self._fell_silent: list[FellSilent] = []
        self._longest_ms = 0

    def note(self, step: Step) -> None:
        """Take in the next step."""
        for event in step.events if isinstance(step, Fact) else ():
            if isinstance(event, MemberRemoved) and event.why.cause is Cause.SESSION_EXPIRED:
                silent = fell_silent(event)
                insort(self._fell_silent, silent, key=_removed_ms)
                self._longest_ms = max(self._longest_ms, silent.removed_ms - silent.last_seen_ms)

    def forget(self, before_ms: int) -> None:
        """Drop those who were removed before a moment."""
        if self._fell_silent and self._fell_silent[0].removed_ms < before_ms:
            del self._fell_silent[: bisect_left(self._fell_silent, before_ms, key=_removed_ms)]

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
