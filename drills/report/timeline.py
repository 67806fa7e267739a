"""The timeline of the page: lanes for each process and for the members that waited longest, and moments. Pure.

The lanes have the form of those in replay's report, whose script draws them: bars, dashed stretches, marks. The bar of
a process shows how many partitions it owned; the bar of a member shows that it was not waiting, and dashes that it was.
Each moment is a box in the timeline, and an article below it.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster.drills.faults import Mark
from muster.drills.measuring.answers import Asked, Kind
from muster.drills.measuring.takeovers import Takeover
from muster.drills.names import member_name, short
from muster.drills.report.making import PHASE_NAMES, Phase, Recorded, phases, times
from muster.drills.report.result import Result
from muster.drills.report.table import longest_text, slowest
from muster.events.events import CoordinatorElected, CoordinatorReady, CoordinatorStopped
from muster.replay.html.chart import SpanOnPage, Stretch
from muster.replay.html.document import shown
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, wall_ms_of

MEMBERS_MAX = 40
WAIT_MIN_MS = 100
"""Shorter waits are not drawn."""
ENDS = {"killed": "lost", "stopped": "left"}
"""The script's names for how a process ended; it draws a cross and a circle."""


class DrillLane(msgspec.Struct, frozen=True, kw_only=True):
    """The lane of a process or a member, as the script draws it. `marks`: when (ms) and how it ended."""

    name: str
    where: str
    is_member: bool
    says: str | None
    """The meaning of a bar; None if it shows a number of partitions."""
    begin_ms: int
    stretches: tuple[Stretch, ...]
    silences: tuple[SpanOnPage, ...]
    marks: tuple[tuple[int, str], ...]


class MemberWaits(msgspec.Struct, frozen=True, kw_only=True):
    """A member's requests since the fault: their number, and the longest wait of each kind."""

    group_id: str
    member: str
    asked: int
    longest_ms: Mapping[str, int]
    errors: tuple[str, ...]
    waits: tuple[SpanOnPage, ...]


def members_waits(asked: Iterable[Asked], *, fault_ms: int, end_ms: int) -> Sequence[MemberWaits]:
    """Return the waits of each member; the member that waited longest comes first."""
    of_member: defaultdict[tuple[str, str], list[Asked]] = defaultdict(list)
    for each in asked:
        if not each.is_over_before(fault_ms):
            of_member[each.group_id, each.member].append(each)
    found = [_member_waits(*who, its, end_ms) for who, its in of_member.items()]
    return sorted(found, key=lambda each: (-max(each.longest_ms.values()), each.group_id, each.member))


def _member_waits(group_id: str, member: str, asked: Sequence[Asked], end_ms: int) -> MemberWaits:
    longest: dict[str, int] = {}
    for each in asked:
        longest[each.kind] = max(longest.get(each.kind, 0), each.wait_ms(end_ms))
    waits = [(each.began_ms, each.began_ms + each.wait_ms(end_ms)) for each in asked]
    return MemberWaits(
        group_id=group_id,
        member=member,
        asked=len(asked),
        longest_ms=longest,
        errors=tuple(sorted({each.error for each in asked if each.error})),
        waits=_joined((begin, end) for begin, end in waits if end - begin >= WAIT_MIN_MS),
    )


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[SpanOnPage, ...]:
    """Return the spans in order, with overlapping ones merged."""
    found: list[SpanOnPage] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1].end_ms:
            found[-1] = SpanOnPage(found[-1].begin_ms, max(found[-1].end_ms, end))
        else:
            found.append(SpanOnPage(begin, end))
    return tuple(found)


def lanes(recorded: Recorded, waited: Sequence[MemberWaits]) -> tuple[DrillLane, ...]:
    """Return the lanes of the processes, then those of the members that waited longest."""
    end_ms = recorded.ended_ms
    processes = _processes(recorded)
    members = [
        DrillLane(
            name=member_name(each.group_id, each.member, recorded.run),
            where="longest waits: " + ", ".join(f"{kind} {duration(ms)}" for kind, ms in each.longest_ms.items()),
            is_member=True,
            says="nothing to wait for",
            begin_ms=recorded.began_ms,
            stretches=_between(each.waits, recorded.began_ms, end_ms),
            silences=each.waits,
            marks=(),
        )
        for each in waited[:MEMBERS_MAX]
    ]
    return (*processes, *members)


def _between(waits: Sequence[SpanOnPage], begin_ms: int, end_ms: int) -> tuple[Stretch, ...]:
    """Return the stretches between the waits."""
    begins = [begin_ms, *(each.end_ms for each in waits)]
    ends = [*(each.begin_ms for each in waits), end_ms]
    return tuple(Stretch(begin, end, 1) for begin, end in zip(begins, ends, strict=True) if begin < end)


def _processes(recorded: Recorded) -> Iterable[DrillLane]:
    ends = [each for each in recorded.marks if each.process is not None and each.ended is not None]
    owned = _owned(recorded, ends)
    for process in sorted({*owned, *(each.process for each in recorded.marks if each.process is not None)}):
        yield DrillLane(
            name=process,
            where="a process, and how many partitions it owned",
            is_member=False,
            says=None,
            begin_ms=recorded.began_ms,
            stretches=_counted(owned.get(process, ()), recorded.began_ms, recorded.ended_ms),
            silences=(),
            marks=tuple((each.at_ms, ENDS[each.ended]) for each in ends if each.process == process and each.ended),
        )


def _owned(recorded: Recorded, ends: Sequence[Mark]) -> Mapping[str, Sequence[SpanOnPage]]:
    """Return, by process, one span for each time that it owned a partition."""
    found: defaultdict[str, list[SpanOnPage]] = defaultdict(list)
    owners: dict[int, tuple[str, int]] = {}

    def end(partition: int, at_ms: int) -> None:
        process, since_ms = owners.pop(partition, (None, 0))
        if process is not None:
            died = [each.at_ms for each in ends if each.process == process and since_ms <= each.at_ms < at_ms]
            found[process].append(SpanOnPage(since_ms, min([at_ms, *died])))

    for event in recorded.log.owners:
        if isinstance(event, CoordinatorElected):
            end(event.partition, event.elected_ms)
        elif isinstance(event, CoordinatorStopped):
            end(event.partition, event.stopped_ms)
        elif isinstance(event, CoordinatorReady):
            end(event.partition, event.ready_ms)
            owners[event.partition] = recorded.name_of(event.owner), event.ready_ms
    for partition in list(owners):
        end(partition, recorded.ended_ms)
    return found


def _counted(spans: Iterable[SpanOnPage], begin_ms: int, end_ms: int) -> tuple[Stretch, ...]:
    """Return stretches with the number of spans at each time."""
    changes: defaultdict[int, int] = defaultdict(int)
    for each in spans:
        changes[min(max(each.begin_ms, begin_ms), end_ms)] += 1
        changes[min(max(each.end_ms, begin_ms), end_ms)] -= 1
    found, since_ms, count = [], begin_ms, 0
    for at_ms, by in [*sorted(changes.items()), (end_ms, 0)]:
        if at_ms > since_ms:
            found.append(Stretch(since_ms, at_ms, count))
        since_ms, count = at_ms, count + by
    return tuple(found)


REBALANCES_MAX = 50
DRILL, REBALANCE = "drill", "rebalance"
KINDS = (DRILL, *PHASE_NAMES, *map(str, Kind), REBALANCE)
"""The kinds of moments, in the order in which the page lists them."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A point or a span on the timeline. `told`: its description; `lanes`: the numbers of the lanes it concerns."""

    kind: str
    headline: str
    told: str
    begin_ms: int
    end_ms: int
    lanes: tuple[int, ...]


def moments(result: Result, lanes: Sequence[DrillLane]) -> tuple[Moment, ...]:
    """Return the moments in the order in which they begin."""
    numbers = {lane.name: number for number, lane in enumerate(lanes)}
    found = [*_done(result, numbers), *_phases(result, numbers), *_waits(result, numbers), *_rebalances(result)]
    return tuple(sorted(found, key=lambda each: each.begin_ms))


def _done(result: Result, numbers: dict[str, int]) -> Iterator[Moment]:
    for each, after in zip(result.done, [*result.done[1:], None], strict=True):
        begin_ms = wall_ms_of(each.at)
        end_ms = wall_ms_of(result.over_at if after is None else after.at)
        until = "until all members were answered" if after is None else "until the next step of the drill"
        yield Moment(
            kind=DRILL,
            headline=shown(each.text),
            told=f"{duration(max(0, end_ms - begin_ms))}, {until}",
            begin_ms=begin_ms,
            end_ms=max(begin_ms, end_ms),
            lanes=_lanes(numbers, each.process),
        )


def _phases(result: Result, numbers: dict[str, int]) -> Iterator[Moment]:
    """Yield the phases of the slowest takeover after each fault."""
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
