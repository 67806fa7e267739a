"""Event times without jumps of the wall clock.

An owner's events carry its monotonic clock (`Why.uptime_ms`, format level 4). If the wall clock jumped between two of
them, the times of all following events of that owner are shifted back by the jump: durations are then right, and the
output mentions the jump. Across owners, and in logs of older format levels, there is only the wall clock.
"""

from typing import Final

import msgspec

from muster.events.events import (
    AnyEvent,
    GroupDeleted,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberEvent,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
    Why,
)

JUMP_MS: Final = 1_000
SLEW: Final = 1 / 1_000
"""A wall clock has jumped if it is off by more than `JUMP_MS` plus what slewing can explain (NTP: 1/2000)."""


def has_jumped(ahead_ms: int, later_ms: int, passed_ms: int) -> bool:
    """Return whether the wall clock jumped in `passed_ms`, from `ahead_ms` to `later_ms` ahead of the uptime."""
    return abs(later_ms - ahead_ms) > JUMP_MS + passed_ms * SLEW


class ClockReading(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's clock at an event; reading a history from there continues with it.

    `ahead_ms`: wall clock minus uptime. `jumped_ms`: the sum of the owner's clock jumps; `jumped_when_empty_ms`: that
    sum when the group last became empty.
    """

    epoch: int | None = None
    uptime_ms: int = 0
    ahead_ms: int = 0
    jumped_ms: int = 0
    jumped_when_empty_ms: int = 0

    def after(self, owner_epoch: int, decided_ms: int, uptime_ms: int | None) -> "ClockReading":
        """Return the reading at the next decision."""
        if uptime_ms is None:
            return ClockReading(jumped_when_empty_ms=self.jumped_when_empty_ms)
        ahead_ms, jumped_ms = decided_ms - uptime_ms, 0
        if self.epoch == owner_epoch:
            is_jump = has_jumped(self.ahead_ms, ahead_ms, uptime_ms - self.uptime_ms)
            jumped_ms = self.jumped_ms + (ahead_ms - self.ahead_ms if is_jump else 0)
        return ClockReading(
            epoch=owner_epoch,
            uptime_ms=uptime_ms,
            ahead_ms=ahead_ms,
            jumped_ms=jumped_ms,
            jumped_when_empty_ms=self.jumped_when_empty_ms,
        )

    def when_empty(self) -> "ClockReading":
        """Return this reading as that of an event by which the group became empty."""
        return msgspec.structs.replace(self, jumped_when_empty_ms=self.jumped_ms)


BEGIN: Final = ClockReading()


class SteadyClock:
    """Corrects the times of one group's events, in order, starting anywhere in its history."""

    def __init__(self, reading: ClockReading = BEGIN) -> None:
        self._reading = reading
        self._epoch: int | None = None
        self._why: Why | None = None

    def steadied(self, event: AnyEvent) -> tuple[AnyEvent, int]:
        """Return the event with its times corrected for jumps, and the jump right before it in ms (0 if none)."""
        why = event.why
        jump_ms = 0
        if why is not self._why or event.owner_epoch != self._epoch:  # else it belongs to the same decision
            before = self._reading
            self._reading = before.after(event.owner_epoch, why.decided_ms, why.uptime_ms)
            if before.epoch == self._reading.epoch:
                jump_ms = self._reading.jumped_ms - before.jumped_ms
            self._epoch, self._why = event.owner_epoch, why
        jumped_ms = self._reading.jumped_ms
        if isinstance(event, GroupEmptied):
            self._reading = self._reading.when_empty()
        elif isinstance(event, GroupDeleted) and event.empty_since_ms is not None:
            since_ms = event.empty_since_ms - self._reading.jumped_when_empty_ms
            event = msgspec.structs.replace(event, empty_since_ms=since_ms)
        return (_shifted(event, -jumped_ms) if jumped_ms else event), jump_ms


def _shifted(event: AnyEvent, by_ms: int) -> AnyEvent:
    why = msgspec.structs.replace(
        event.why, decided_ms=event.why.decided_ms + by_ms, arrived_ms=event.why.arrived_ms + by_ms
    )
    if isinstance(event, StaticMemberReplaced):
        seen_ms, connection = event.replaced_last_seen_ms, event.replaced_connection
        event = msgspec.structs.replace(
            event,
            replaced_last_seen_ms=None if seen_ms is None else seen_ms + by_ms,
            replaced_connection=None if connection is None else connection.shifted(by_ms),
        )
    if isinstance(event, MemberRejoined | MemberRemoved) and event.last_connection is not None:
        event = msgspec.structs.replace(event, last_connection=event.last_connection.shifted(by_ms))
    if isinstance(event, JoinPhaseCompleted):
        absent_seen_ms = tuple(None if each is None else each + by_ms for each in event.absent_seen_ms)
        returned = tuple(msgspec.structs.replace(each, heard_ms=each.heard_ms + by_ms) for each in event.returned)
        event = msgspec.structs.replace(event, absent_seen_ms=absent_seen_ms, returned=returned)
    if isinstance(event, MemberEvent):
        return msgspec.structs.replace(event, why=why, last_seen_ms=event.last_seen_ms + by_ms)
    return msgspec.structs.replace(event, why=why)
