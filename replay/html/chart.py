"""The values of the chart: arrays, to be short. `chart.js` reads them by position, in the order of the fields."""

from collections.abc import Mapping

import msgspec


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


class Drawing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the chart; the script reads texts about incidents in the document.

    An incident has its begin, its end and the numbers of its lanes. `opens_on`: the incident that it shows first.
    `words`: those for what lanes show, where they are no members of a group.
    """

    begin: int
    end: int
    lanes: tuple[msgspec.Struct, ...]
    bands: tuple[Band, ...]
    unstable: tuple[SpanOnPage, ...]
    takeovers: tuple[Mark, ...]
    missing: tuple[int, ...]
    incidents: tuple[tuple[int, int | None, tuple[int, ...]], ...]
    opens_on: int | None = None
    lanes_on_paper: int | None = None
    words: Mapping[str, str] = {}
