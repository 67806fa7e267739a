"""The part of a history that a command shows. Pure.

Events before the window are folded but not shown, so that results within it are right. A history is in log order, which
is not the order of times if clocks jumped (`wrong_times.py`). So a window ends before the first event that was decided
after its end; of the events before that, those decided before its start are left out. An owner may have started with a
fast clock, so the owner's own events past the end are left out, too, but do not end the window.
"""

from datetime import UTC, tzinfo
from enum import Enum, StrEnum, unique
from typing import Final

import msgspec

from muster.events.avro.partial import PartialGroupEvent
from muster.replay.history.items import Coordinated, Happened, Item
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.text.times import Instant, instant, read_time


class AtSeq(msgspec.Struct, frozen=True):
    """Right after the event with this seq, in the group's last incarnation."""

    seq: int


class AtTime(msgspec.Struct, frozen=True):
    """A wall clock time in ms: after everything that was decided up to it."""

    wall_ms: int


class AtGeneration(msgspec.Struct, frozen=True):
    """When this generation of the group's last incarnation got its assignment or became empty, else when it began."""

    generation_id: int


At = AtSeq | AtTime

_NUMBER_DIGITS_MAX: Final = 19
"""Maximum digits of a seq or a generation; Python refuses to parse numbers with thousands of digits."""


def read_at(text: str, *, now_ms: int, zone: tzinfo = UTC, is_seq: bool = False) -> At | AtGeneration | None:
    """Parse a time; None if it has none of the FORMS_OF_AT. `is_seq`: a number is a seq. Raises NoSuchTime."""
    if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX:
        return AtSeq(int(text)) if is_seq else AtGeneration(int(text))
    wall_ms = read_time(text, now_ms=now_ms, zone=zone)
    return AtTime(wall_ms) if wall_ms is not None else None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window from `since` to `until`, both inclusive; None: from the first event, to the last."""

    since: At | None = None
    until: At | None = None

    @property
    def has_seq(self) -> bool:
        """True if the window has a seq as a bound, and so depends on the group's last incarnation."""
        return isinstance(self.since, AtSeq) or isinstance(self.until, AtSeq)

    def begins_by(self, ended: PartialGroupEvent, at_ms: int) -> bool:
        """Return whether the window has begun by the transition that ended with this event, at this time."""
        if isinstance(self.since, AtTime):
            return at_ms >= self.since.wall_ms
        return self.since is None or ended.seq >= self.since.seq


WHOLE = Window()


def wall_ms_in(window: Window) -> tuple[int | None, int | None]:
    """Return the window's start and end time in ms; None where it has none."""
    since, until = window.since, window.until
    return since.wall_ms if isinstance(since, AtTime) else None, until.wall_ms if isinstance(until, AtTime) else None


@unique
class WindowEdge(StrEnum):
    """The edge of a window that an incident crosses: it began before the start, or was not over at the end."""

    SINCE = "since"
    UNTIL = "until"


@unique
class Place(Enum):
    """BEFORE: applied but not shown. AFTER: no later item is in the window."""

    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


class Cut:
    """Places each item before, within or after the window. `life`: the last incarnation, for windows with a seq."""

    def __init__(self, window: Window, life: int = -1, times: Times = AS_RECORDED) -> None:
        self._times = times
        self._window = window
        self._life = life
        self._place = Place.WITHIN if window.since is None else Place.BEFORE

    def place(self, item: Item) -> Place:
        """Return the next item's place; an item without a seq has the place of the event before it."""
        if self._place is Place.AFTER:
            return Place.AFTER
        since, until = self._window.since, self._window.until
        if isinstance(item, Happened):
            event = item.event
            if isinstance(until, AtSeq) and event.incarnation == self._life and event.seq > until.seq:
                self._place = Place.AFTER
            elif isinstance(since, AtSeq):
                is_within = event.incarnation == self._life and event.seq >= since.seq
                self._place = Place.WITHIN if is_within else Place.BEFORE
        at_ms = self._times.at_ms(item) if isinstance(item, Happened | Coordinated) else item.position.timestamp_ms
        if isinstance(until, AtTime) and isinstance(item, Happened | Coordinated) and at_ms > until.wall_ms:
            if isinstance(item, Coordinated):  # its clock may have been ahead: only the group's own events end a window
                return Place.BEFORE
            self._place = Place.AFTER
        if self._place is not Place.AFTER and isinstance(since, AtTime):
            return Place.WITHIN if at_ms >= since.wall_ms else Place.BEFORE
        return self._place

    def has(self, item: Happened | Coordinated) -> bool:
        """Return whether this event is within the window's times."""
        return self.is_within(self._times.at_ms(item))

    def is_within(self, at_ms: int) -> bool:
        """Return whether this time is within the window's times."""
        since, until = self._window.since, self._window.until
        return not (
            (isinstance(since, AtTime) and at_ms < since.wall_ms)
            or (isinstance(until, AtTime) and at_ms > until.wall_ms)
        )


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A window as results show it: instants, or seqs; None where there is no bound."""

    since: Instant | None = None
    until: Instant | None = None
    since_seq: int | None = None
    until_seq: int | None = None


def bounds(window: Window) -> Bounds | None:
    """Return the window as results show it; None for the whole history."""
    if window.since is None and window.until is None:
        return None
    since, until = window.since, window.until
    return Bounds(
        since=instant(since.wall_ms) if isinstance(since, AtTime) else None,
        until=instant(until.wall_ms) if isinstance(until, AtTime) else None,
        since_seq=since.seq if isinstance(since, AtSeq) else None,
        until_seq=until.seq if isinstance(until, AtSeq) else None,
    )
