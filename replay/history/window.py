"""Windows of a history: from when, and until when, is it told? Pure.

What comes before a window is folded, so that what is told in it is right, and not shown. A history is in the order of
its log; where clocks have jumped that is not the order of times (`wrong_times.py`). So a window ends before the first
event that was decided after its end, and of what stands before that, what was decided before its beginning is left out.
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
    """Right after the event with this number, in the last life of the group."""

    seq: int


class AtTime(msgspec.Struct, frozen=True):
    """A moment by the wall clock, in ms: after everything that had been decided by then."""

    wall_ms: int


class AtGeneration(msgspec.Struct, frozen=True):
    """When a generation of the group's last life had its assignment, or was empty; before that, when it had begun."""

    generation_id: int


At = AtSeq | AtTime

_NUMBER_DIGITS_MAX: Final = 19
"""The digits of an event's number, or a generation, at most; Python refuses to read numbers of thousands of digits."""


def read_at(text: str, *, now_ms: int, zone: tzinfo = UTC, is_seq: bool = False) -> At | AtGeneration | None:
    """Parse a moment; None if it has none of the FORMS_OF_AT. `is_seq`: a number is an event's. Raises NoSuchTime."""
    if text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX:
        return AtSeq(int(text)) if is_seq else AtGeneration(int(text))
    wall_ms = read_time(text, now_ms=now_ms, zone=zone)
    return AtTime(wall_ms) if wall_ms is not None else None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window from `since` until `until`, both included; None: from the first event, until the last."""

    since: At | None = None
    until: At | None = None

    @property
    def has_seq(self) -> bool:
        """Whether it depends on which life of the group is the last one."""
        return isinstance(self.since, AtSeq) or isinstance(self.until, AtSeq)

    def begins_by(self, ended: PartialGroupEvent, at_ms: int) -> bool:
        """Whether the transition that ended so, at that time, is not before the window."""
        if isinstance(self.since, AtTime):
            return at_ms >= self.since.wall_ms
        return self.since is None or ended.seq >= self.since.seq


WHOLE = Window()


def wall_ms_in(window: Window) -> tuple[int | None, int | None]:
    """The times at its edges, in ms; None where it has none."""
    since, until = window.since, window.until
    return since.wall_ms if isinstance(since, AtTime) else None, until.wall_ms if isinstance(until, AtTime) else None


@unique
class WindowEdge(StrEnum):
    """An edge of a window that an incident crosses: it began before, or was not over at the end."""

    SINCE = "since"
    UNTIL = "until"


@unique
class Place(Enum):
    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"


class Cut:
    """Says of each item in turn whether it is in the window. `life`: the last incarnation, for numbers."""

    def __init__(self, window: Window, life: int = -1, times: Times = AS_RECORDED) -> None:
        self._times = times
        self._window = window
        self._life = life
        self._place = Place.WITHIN if window.since is None else Place.BEFORE

    def place(self, item: Item) -> Place:
        """The next item's place; what has no number is where the event before it is."""
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
        has_time = isinstance(item, Happened | Coordinated)
        at_ms = self._times.at_ms(item) if isinstance(item, Happened | Coordinated) else item.position.timestamp_ms
        if isinstance(until, AtTime) and has_time and at_ms > until.wall_ms:
            self._place = Place.AFTER
        if self._place is not Place.AFTER and isinstance(since, AtTime):
            return Place.WITHIN if at_ms >= since.wall_ms else Place.BEFORE
        return self._place

    def has(self, item: Happened | Coordinated) -> bool:
        """Whether this event lies in a window of times."""
        return self.is_within(self._times.at_ms(item))

    def is_within(self, at_ms: int) -> bool:
        """Whether this moment lies in a window of times."""
        since, until = self._window.since, self._window.until
        return not (
            (isinstance(since, AtTime) and at_ms < since.wall_ms)
            or (isinstance(until, AtTime) and at_ms > until.wall_ms)
        )


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A window as results show it: instants, or numbers; None where there is no bound."""

    since: Instant | None = None
    until: Instant | None = None
    since_seq: int | None = None
    until_seq: int | None = None


def bounds(window: Window) -> Bounds | None:
    """How a result shows the window; None for the whole history."""
    if window.since is None and window.until is None:
        return None
    since, until = window.since, window.until
    return Bounds(
        since=instant(since.wall_ms) if isinstance(since, AtTime) else None,
        until=instant(until.wall_ms) if isinstance(until, AtTime) else None,
        since_seq=since.seq if isinstance(since, AtSeq) else None,
        until_seq=until.seq if isinstance(until, AtSeq) else None,
    )
