"""The values that a report shows. All are plain, all texts are safe to show, instants are wall clock ms.

What the page draws is arrays, to be short: the script reads them by position, in the order of the fields.
"""

from typing import Final

import msgspec

from muster.replay.history.window import Bounds, WindowEdge
from muster.replay.incidents.grade import Grade
from muster.replay.text.printable import printable
from muster.replay.text.times import Instant

TEXT_MAX = 400
"""Characters of any text that a client has a say in; a client id may have 32 KiB."""


def shown(text: str, most: int = TEXT_MAX) -> str:
    """The text without control characters, and of a bounded length; what is cut off is counted."""
    cut = printable(text[:most])[:most]
    if len(cut) == most and (len(text) > most or cut != text):
        return f"{cut}… ({len(text):,} characters)"
    return cut


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each a page has at most; the latest are kept."""

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


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """A time in which a member had so many partitions; None: not known."""

    begin_ms: int
    end_ms: int
    partitions: int | None


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A mark at one moment of a lane: how a member went ('left', 'expired'), or 'came-back'."""

    at_ms: int
    what: str


class SpanOnPage(msgspec.Struct, frozen=True, array_like=True):
    begin_ms: int
    end_ms: int


class Band(msgspec.Struct, frozen=True, array_like=True):
    begin_ms: int
    end_ms: int
    generation: int


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """A process. `where`: host and client id. `silences`: from the last sign of life until it was given up."""

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
    """A sentence of an incident. `seqs` is a text."""

    text: str
    grade: Grade
    at: Instant | None
    seqs: str


class IncidentOnPage(msgspec.Struct, frozen=True, kw_only=True):
    """An incident. `lanes` are those of its culprits; `parent`: the number of the one within which it happened.

    `crosses`: which edges of the window. `weight` compares it with others: whether it goes on, then what it cost.
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
    """A rebalance, and what it changed of the assignment; None: not known."""

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
    """A report. `left_out`: sentences about what there was no room for; `damage`: about what cannot be read of the log.

    `begin_ms` and `end_ms` are the ends of the chart. `cost` and `kinds`: of all incidents together; `weightiest`: the
    numbers of the stories that cost most.
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
