"""The moments that the page tells: what the drill did, the phases of each takeover, the longest waits, the rebalances.

Pure. Each is a box in the timeline, and an article below it.
"""

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from muster.drills.measuring.asked import Kind
from muster.drills.measuring.takeovers import Takeover
from muster.drills.names import short
from muster.drills.report.lanes import DrillLane
from muster.drills.report.phases import PHASE_NAMES, Phase, phases, times
from muster.drills.report.result import Result
from muster.drills.report.table import longest_text, slowest
from muster.replay.rebalances.wording import plural
from muster.replay.report.page import shown
from muster.replay.times import duration, wall_ms_of

REBALANCES_MAX = 50
DRILL, REBALANCE = "drill", "rebalance"
KINDS = (DRILL, *PHASE_NAMES, *map(str, Kind), REBALANCE)
"""The kinds of moments, in the order in which the page offers them."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A moment, or a stretch of time. `told`: what there is to say about it; `lanes`: whom it concerns, by number."""

    kind: str
    headline: str
    told: str
    begin_ms: int
    end_ms: int
    lanes: tuple[int, ...]


def moments(result: Result, lanes: Sequence[DrillLane]) -> tuple[Moment, ...]:
    """The moments in the order of their beginnings."""
    numbers = {lane.name: number for number, lane in enumerate(lanes)}
    found = [*_done(result, numbers), *_phases(result, numbers), *_waits(result, numbers), *_rebalances(result)]
    return tuple(sorted(found, key=lambda each: each.begin_ms))


def _done(result: Result, numbers: dict[str, int]) -> Iterator[Moment]:
    for each, after in zip(result.done, [*result.done[1:], None], strict=True):
        begin_ms = wall_ms_of(each.at)
        end_ms = wall_ms_of(result.over_at if after is None else after.at)
        until = "until all members were answered" if after is None else "until the next thing that the drill did"
        yield Moment(
            kind=DRILL,
            headline=shown(each.text),
            told=f"{duration(max(0, end_ms - begin_ms))}, {until}",
            begin_ms=begin_ms,
            end_ms=max(begin_ms, end_ms),
            lanes=_lanes(numbers, each.process),
        )


def _phases(result: Result, numbers: dict[str, int]) -> Iterator[Moment]:
    """The phases of the slowest takeover after each fault."""
    for since_ms in dict.fromkeys(each.since_ms for each in result.takeovers):
        of_fault = [each for each in result.takeovers if each.since_ms == since_ms]
        takeover = slowest(of_fault)
        assert takeover is not None
        which = f"the slowest of {plural(len(of_fault), 'takeover')}" if len(of_fault) > 1 else "the only takeover"
        begin_ms = since_ms
        for phase, ms in phases(takeover):
            yield Moment(
                kind=phase.name,
                headline=f"{phase.name}: {duration(ms)}, of partition {takeover.partition} by {shown(takeover.owner)}",
                told=f"{phase.explained}; {which}, {_average(of_fault, phase)}",
                begin_ms=begin_ms,
                end_ms=begin_ms + ms,
                lanes=_lanes(numbers, takeover.owner),
            )
            begin_ms += ms


def _average(takeovers: Sequence[Takeover], phase: Phase) -> str:
    return f"on average {duration(round(statistics.mean(times(takeovers, phase))))}"


def _waits(result: Result, numbers: dict[str, int]) -> Iterator[Moment]:
    for each in result.waits:
        if each.longest_ms is None or each.longest_from_ms is None:
            continue
        longest_of = longest_text(each, result.run)
        yield Moment(
            kind=each.kind,
            headline=f"{each.kind}: the longest time without an answer, {duration(each.longest_ms)}",
            told=f"{longest_of}; half of all {each.asked:,} since the fault took {duration(each.p50_ms or 0)}"
            f" at most, 99 of 100 {duration(each.p99_ms or 0)}",
            begin_ms=each.longest_from_ms,
            end_ms=each.longest_from_ms + each.longest_ms,
            lanes=_lanes(numbers, longest_of),
        )


def _rebalances(result: Result) -> Iterator[Moment]:
    for each in result.rebalances[:REBALANCES_MAX]:
        begin_ms = wall_ms_of(each.at)
        took = "not over" if each.took_ms is None else f"{duration(each.took_ms)} long"
        yield Moment(
            kind=REBALANCE,
            headline=shown(f"{short(each.group_id, result.run)} rebalanced ({each.generations})"),
            told=shown(f"{took}; {each.incident}: {each.why}"),
            begin_ms=begin_ms,
            end_ms=begin_ms + (each.took_ms or 0),
            lanes=(),
        )


def _lanes(numbers: dict[str, int], name: str | None) -> tuple[int, ...]:
    return () if name is None or name not in numbers else (numbers[name],)
