"""The values that a report shows: plain values, with texts that are safe to show, and times in wall clock ms."""

from typing import Final

import msgspec

from muster.replay.history.window import Bounds, WindowEdge
from muster.replay.html.chart import Band, Mark, SpanOnPage, Stretch
from muster.replay.incidents.grade import Grade
from muster.replay.text.times import Instant


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum numbers of entries on a page; the latest are kept."""

    lanes: int = 200
    stretches: int = 20_000
    bands: int = 5_000
    incidents: int = 500
    shifts: int = 500

    def halved(self) -> "Limits":
        return Limits(**{name: max(1, getattr(self, name) // 2) for name in self.__struct_fields__})

    @property
    def is_least(self) -> bool:
        return all(getattr(self, name) == 1 for name in self.__struct_fields__)


LIMITS: Final = Limits()


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A process. `where`: host and client id. `silences`: each from the time it was last seen until it was removed."""

    name: str
    where: str
    grade: Grade
    member_ids: int
    begin_ms: int
    end_ms: int | None
    ended: str
    partitions: int | None
    stretches: tuple[Stretch, ...]
    silences: tuple[SpanOnPage, ...]
    marks: tuple[Mark, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of an incident. `seqs` is text."""

    text: str
    grade: Grade
    at: Instant | None
    seqs: str


class IncidentOnPage(msgspec.Struct, frozen=True, kw_only=True):
    """An incident. `lanes` are those of its culprits; `parent`: the number of the incident in which it happened.

    `crosses`: the edges of the window that it crosses. `weight` ranks incidents: open ones first, then by cost.
    """

    key: str
    kind: str
    grade: Grade
    headline: str
    culprits: tuple[str, ...]
    lanes: tuple[int, ...]
    begin_ms: int
    end_ms: int | None
    begin: Instant
    end: Instant | None
    took: str
    crosses: tuple[WindowEdge, ...]
    parent: int | None
    weight: tuple[bool, int, int, int]
    generations: str
    chain: tuple[Told, ...]
    chain_more: int
    cost: str
    advice: tuple[str, ...]
    notes: tuple[str, ...]


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance, and its changes of the assignment; None: not known."""

    at: Instant
    generations: str
    outcome: str
    took: str
    members: int
    moved: int | None
    gained: int | None
    lost: int | None
    stayed: int | None
    moves: tuple[str, ...]
    moves_more: int


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the history that is not in the log."""

    at: Instant
    at_ms: int
    text: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A report. `left_out`: sentences about what did not fit; `damage`: about what was unreadable in the log.

    `begin_ms` and `end_ms` are the ends of the chart. `cost` and `kinds`: of all incidents together; `weightiest`: the
    numbers of the stories with the highest cost.
    """

    group_id: str
    log: str
    made: Instant
    window: Bounds | None
    state: str
    events: int
    rebalances: int
    incidents_told: int
    cost: str
    kinds: tuple[tuple[str, int], ...]
    weightiest: tuple[int, ...]
    begin_ms: int
    end_ms: int
    begin: Instant
    end: Instant
    lanes: tuple[Lane, ...]
    bands: tuple[Band, ...]
    unstable: tuple[SpanOnPage, ...]
    takeovers: tuple[Mark, ...]
    stories: tuple[IncidentOnPage, ...]
    shifts: tuple[Shift, ...]
    missing: tuple[Missing, ...]
    damage: tuple[str, ...]
    left_out: tuple[str, ...]
