"""The ground truth of a case: what was done to the processes, written by the code that did it.

A `Story` is one incident while it happens; `Truth` is the resulting plain value. Rebalances are the world's own view of
the group's state; events are not used.

Where docs/incidents.md leaves a choice, all choices count as right: several kinds, several times for a start or an end,
rebalances that may be counted as part of it (`may`), incidents that need not be reported (`is_optional`).
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum, unique
from typing import Any, Final

import msgspec

RebalanceId = tuple[int, int]
"""(incarnation, the generation that it led to)."""

Range = tuple[int, int]
"""From, to; wall clock ms, both included."""


@unique
class Knowable(StrEnum):
    """How well the log shows an incident: an event records it, it can be inferred from events, or neither (then only
    *unknown* is right).
    """

    RECORDED = "recorded"
    INFERRED = "inferred"
    UNKNOWABLE = "unknowable"


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One incident that the simulation caused. `kinds`: any of them is right, the first is that of docs/incidents.md.

    `culprits`: names of processes; None: not compared. `starts`, `ends`: any of them is right. `extent`: from its first
    act or rebalance to the last one, to find the reported incidents that match. `must`: its own rebalances; `may`:
    rebalances that may be reported as another incident's. `parent`: an index.
    """

    kinds: tuple[str, ...]
    culprits: frozenset[str] | None
    starts: tuple[Range, ...]
    ends: tuple[Range, ...]
    extent: Range
    must: frozenset[RebalanceId] = frozenset()
    may: frozenset[RebalanceId] = frozenset()
    parent: int | None = None
    knowable: Knowable = Knowable.RECORDED
    is_optional: bool = False

    @property
    def kind(self) -> str:
        return self.kinds[0]


class SeenRebalance:
    """A rebalance as the world sees it; times are (monotonic, wall) ms. `arrivals`: the processes that joined its
    phase, and when. `leader`: the member id of the leader since `joined_ms`, the end of the phase."""

    def __init__(self, began: tuple[int, int], incarnation: int, story: "Story", *, from_empty: bool) -> None:
        self.began = began
        self.ended: tuple[int, int] | None = None
        self.incarnation = incarnation
        self.to_generation: int | None = None
        self.story = story
        self.from_empty = from_empty
        self.arrivals: list[tuple[int, str]] = []
        self.joined_ms = 0
        self.leader: str | None = None

    @property
    def id(self) -> RebalanceId:
        assert self.to_generation is not None, "the case ended within a rebalance"
        return self.incarnation, self.to_generation

    def ends_after(self, first: "SeenRebalance") -> list[int]:
        """Return two candidates for its end: by the wall clock, and the start of `first` plus the monotonic time since
        then, in case the wall clock jumped.
        """
        assert self.ended is not None, "the case ended within a rebalance"
        return [self.ended[1], first.began[1] + self.ended[0] - first.began[0]]


REPLACING: Final = frozenset({"restart", "deployment", "crash-loop"})


class StoryBase:
    """An incident while it happens; the base for simulated and for real processes.

    `kinds`: any is right, the first is that of docs/incidents.md. `culprits`: names of processes; None: not compared.
    """

    def __init__(
        self,
        *kinds: str,
        culprits: Iterable[str] | None = (),
        knowable: Knowable = Knowable.RECORDED,
        parent: "StoryBase | None" = None,
        is_optional: bool = False,
    ) -> None:
        self.kinds = kinds
        self.culprits = None if culprits is None else set(culprits)
        self.knowable = knowable
        self.parent = parent
        self.is_optional = is_optional
        self.acts: list[Range] = []

    @property
    def kind(self) -> str:
        return self.kinds[0]

    def infer(self, knowable: Knowable = Knowable.INFERRED) -> None:
        """Note that the log shows the incident less well: it has to be inferred, or is unknowable."""
        order = list(Knowable)
        self.knowable = max(self.knowable, knowable, key=order.index)

    def act(self, from_ms: int, to_ms: int | None = None) -> None:
        """Note an act, at some time within the range; it gives the span of an incident without rebalances."""
        self.acts.append((from_ms, from_ms if to_ms is None else to_ms))

    def _truth(
        self,
        stories: Sequence["StoryBase"],
        *,
        span: tuple[tuple[Range, ...], tuple[Range, ...]],
        extent: Range,
        must: Iterable[RebalanceId],
        may: Iterable[RebalanceId],
    ) -> Truth:
        """Return the truth. A replacement that was too fast to be noticed need not be reported."""
        must, may = frozenset(must), frozenset(may)
        was_absorbed = self.kind in REPLACING and not must and not may
        return Truth(
            kinds=self.kinds,
            culprits=None if self.culprits is None else frozenset(self.culprits),
            starts=span[0],
            ends=span[1],
            extent=extent,
            must=must,
            may=may,
            parent=None if self.parent is None else stories.index(self.parent),
            knowable=self.knowable,
            is_optional=self.is_optional or was_absorbed,
        )


class Story(StoryBase):
    """An incident of simulated processes. `holds_phases`: a join phase delayed by a live process belongs to it, too."""

    def __init__(self, *kinds: str, holds_phases: bool = False, **given: Any) -> None:
        super().__init__(*kinds, **given)
        self.holds_phases = holds_phases
        self.must: list[SeenRebalance] = []
        self.may: list[SeenRebalance] = []

    def blame(self, *names: str) -> None:
        assert self.culprits is not None
        self.culprits.update(names)

    # ---- the value ------------------------------------------------------------------------------

    def truth(self, stories: "list[Story]") -> Truth:
        must, may = ((each.id for each in rebalances) for rebalances in (self.must, self.may))
        return self._truth(stories, span=self._span(), extent=self._extent(), must=must, may=may)

    def _extent(self) -> Range:
        moments = [at_ms for act in self.acts for at_ms in act]
        for each in (*self.must, *self.may):
            moments.extend((each.began[1], *each.ends_after(each)))
        return min(moments), max(moments)

    def _span(self) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        starts: list[Range] = []
        ends: list[Range] = []
        for rebalances in (self.must, [*self.must, *self.may]):
            if rebalances:
                first = min(rebalances, key=lambda each: each.began)
                last = max(rebalances, key=lambda each: each.began)
                starts.append((first.began[1], first.began[1]))
                ends.extend((at_ms, at_ms) for at_ms in last.ends_after(first))
        if not self.must and self.acts:
            starts.append(self.acts[0])
            ends.append(self.acts[-1])
        assert starts, f"nothing came of {self.kind}"
        return tuple(dict.fromkeys(starts)), tuple(dict.fromkeys(ends))
