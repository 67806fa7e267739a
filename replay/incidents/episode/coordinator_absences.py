"""The owners of the partition, and the times without one.

An owner records every five seconds that it is alive, and the next owner logs the last such time (format level 4). Older
logs lack it: they show only that the owner ended after its last event.
"""

from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Final

import msgspec

from muster.events.events import CoordinatorElected, CoordinatorPaused, CoordinatorReady, CoordinatorStopped
from muster.events.ownership import OwnershipEnd
from muster.events.state import Member
from muster.replay.history.clock import BEGIN, ClockReading
from muster.replay.history.items import Coordinated

SIGN_OF_LIFE_MS: Final = 5_000
"""An owner that ended did so within this time after it last recorded that it was alive."""


@unique
class LastKnown(StrEnum):
    """The last known fact about an owner that ended."""

    STOP = "its orderly stop"
    SIGN_OF_LIFE = "its last sign of life"
    EVENT = "its last event"
    """The last event; the owner may have lived for long after it."""


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which no coordinator served the group, in wall clock ms; `members` were in the group at that time.

    `since_ms`: the last known fact about the former owner, which ended some time after it. `paused`: the owner's
    process was paused and continued. `owner_before_end`: as the new owner recorded it (format level 5).
    """

    since_ms: int
    last_known: LastKnown
    until_ms: int
    owner_before: str | None
    owner: str
    paused: bool
    members: tuple[Member, ...]
    owner_before_end: OwnershipEnd | None = None

    @property
    def longest_ms(self) -> int:
        """The longest possible duration, by the wall clocks of both owners."""
        return max(0, self.until_ms - self.since_ms)

    @property
    def shortest_ms(self) -> int | None:
        """The shortest possible duration; None: it is not known, and may be close to 0."""
        if self.paused or self.last_known is LastKnown.STOP:
            return self.longest_ms
        if self.last_known is LastKnown.SIGN_OF_LIFE:
            return max(0, self.longest_ms - SIGN_OF_LIFE_MS)
        return None


class Absences:
    """The fold over the partition's events.

    Times of one owner are corrected for clock jumps (`history/clock.py`); those of a takeover are compared by the wall
    clock, the only clock that owners have in common. `begin_ms`: corrected time of the group's last event before the
    history begins, and `clock`: the reading at that event; the owner was alive.
    """

    def __init__(self, begin_ms: int = 0, clock: ClockReading = BEGIN) -> None:
        self._begin_ms = begin_ms + clock.jumped_ms
        self._owner: str | None = None
        self._epoch = clock.epoch
        self._jumped_ms = clock.jumped_ms
        self._last_ms: int | None = None
        self._last_known = LastKnown.EVENT

    def note_event(self, at_ms: int, owner_epoch: int, jump_ms: int) -> None:
        """Note an event of the group, at which the owner was alive. `jump_ms`: the clock jump before it."""
        self._jumped_ms = jump_ms + (self._jumped_ms if owner_epoch == self._epoch else 0)
        self._epoch = owner_epoch
        self._last_ms, self._last_known = at_ms + self._jumped_ms, LastKnown.EVENT

    def at_ms(self, item: Coordinated) -> int:
        """Return the time of a partition event, corrected like those of the group's events."""
        return item.at_ms - (self._jumped_ms if item.event.owner_epoch == self._epoch else 0)

    def note(self, item: Coordinated, members: Sequence[Member]) -> Away | None:
        """Process an event of the partition; return the period without an owner that ends with it."""
        event = item.event
        away = None
        if isinstance(event, CoordinatorReady):
            away = self._takeover(event, members)
        elif isinstance(event, CoordinatorPaused):
            away = self._pause(event, self.at_ms(item), members)
        if not isinstance(event, CoordinatorElected):  # the next owner is elected, but does not serve yet
            self._owner = event.owner
            self._last_ms = max(item.at_ms, self._begin_ms)
            self._last_known = LastKnown.STOP if isinstance(event, CoordinatorStopped) else LastKnown.EVENT
        return away

    def _takeover(self, event: CoordinatorReady, members: Sequence[Member]) -> Away | None:
        owner_before = event.owner_before or self._owner
        since_ms, last_known = self._last_ms, self._last_known
        sign_ms = event.owner_before_seen_ms
        if sign_ms is not None and (since_ms is None or sign_ms > since_ms):
            since_ms, last_known = sign_ms, LastKnown.SIGN_OF_LIFE
        if owner_before is None or since_ms is None or not members:
            return None
        return Away(
            since_ms=min(since_ms, event.ready_ms),
            last_known=last_known,
            until_ms=event.ready_ms,
            owner_before=owner_before,
            owner=event.owner,
            paused=False,
            members=tuple(members),
            owner_before_end=event.owner_before_end,
        )

    def _pause(self, event: CoordinatorPaused, at_ms: int, members: Sequence[Member]) -> Away | None:
        if not members:
            return None
        return Away(
            since_ms=at_ms - event.late_ms,
            last_known=LastKnown.SIGN_OF_LIFE,
            until_ms=at_ms,
            owner_before=event.owner,
            owner=event.owner,
            paused=True,
            members=tuple(members),
        )
