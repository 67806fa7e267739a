"""The values of the chart: arrays, to save space. `chart.js` reads them by position, in the order of the fields."""

from collections.abc import Mapping

import msgspec


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """A span of time with the number of partitions that a member had; None: not known."""

    begin_ms: int
    end_ms: int
    partitions: int | None


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A mark in a lane: how a member left ('left', 'expired'), or 'came-back'."""

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
    """The content of the chart; the script takes texts about incidents from the document.

    An incident has its start, its end and the numbers of its lanes. `opens_on`: the incident to show first. `words`:
    labels for lanes that are not members of a group.
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
