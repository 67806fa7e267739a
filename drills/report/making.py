"""Computes the values of the report from all measurements, with the phases of each takeover. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final

import msgspec

from muster import DISTRIBUTION
from muster.drills.checking import LogRead
from muster.drills.faults import Mark
from muster.drills.measuring.answers import Acknowledged, Asked, Kind, goals, hidden, noticed, waits
from muster.drills.measuring.losses import losses
from muster.drills.measuring.takeovers import Takeover, takeovers
from muster.drills.plan import Plan
from muster.drills.report.result import Compared, Done, Rebalance, Result, with_verdict
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.replay.history.items import Item
from muster.replay.incidents.telling import told
from muster.replay.text.times import instant, wall_ms_of


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of takeovers. `ms_of`: its duration in a takeover; None: it had no such phase. `explained`: as shown."""

    name: str
    ms_of: Callable[[Takeover], int | None]
    explained: str


PHASES: Final = (
    Phase(
        name="handing over",
        ms_of=lambda each: each.handing_over_ms,
        explained="the former owner released the partition cleanly and wrote CoordinatorStopped",
    ),
    Phase(
        name="detection",
        ms_of=lambda each: each.detection_ms,
        explained="until another process was assigned the partition and began to take it over",
    ),
    Phase(
        name="claim",
        ms_of=lambda each: each.claim_ms,
        explained="until the new owner had claimed the partition, so that no other process can append to it",
    ),
    Phase(
        name="reading",
        ms_of=lambda each: each.reading_ms,
        explained="until the new owner had read the partition's history, and wrote CoordinatorReady",
    ),
    Phase(
        name="answering",
        ms_of=lambda each: each.answering_ms,
        explained="until a member of the partition was answered for the first time after that",
    ),
)
PHASE_NAMES: Final = tuple(each.name for each in PHASES)


def phases(takeover: Takeover) -> Sequence[tuple[Phase, int]]:
    """Return the phases that the takeover had, with their durations in ms."""
    return [(phase, ms) for phase in PHASES if (ms := phase.ms_of(takeover)) is not None]


def times(takeovers: Sequence[Takeover], phase: Phase) -> list[int]:
    """Return the durations (ms) of a phase in the takeovers that had it."""
    return [ms for each in takeovers if (ms := phase.ms_of(each)) is not None]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured. `over_ms`: the end of the fault; `partitions`: the log's number of partitions."""

    plan: Plan
    run: str
    service: str
    static_groups: int
    began_ms: int
    over_ms: int
    ended_ms: int
    marks: Sequence[Mark]
    asked: Sequence[Asked]
    acknowledged: Acknowledged
    log: LogRead
    partitions: int
    offsets: Mapping[tuple[str, int], int]
    name_of: Callable[[str], str]
    """Returns the drill's name for a process; its argument is the process's name in events, `host:pid`."""


def result(recorded: Recorded) -> Result:
    """Compute the values of the report."""
    plan, faults = recorded.plan, faults_of(recorded.marks)
    fault_ms = faults[0]
    measured = tuple(waits(recorded.asked, kind, fault_ms=fault_ms, end_ms=recorded.ended_ms) for kind in Kind)
    rebalances = tuple(_rebalances(recorded.log.histories, since_ms=fault_ms))
    lost = losses(recorded.acknowledged, recorded.log.histories, recorded.offsets)
    seen = noticed(recorded.asked, fault_ms=fault_ms)
    verdicts = goals(
        measured,
        plan.limits,
        rebalances=len(rebalances),
        noticed=sum(each.times for each in seen),
        events_lost=lost.events,
        commits_lost=len(lost.commits),
    )
    answers = _answers(recorded.asked, recorded.partitions)
    return Result(
        drill=plan.fault,
        run=recorded.run,
        version=version(DISTRIBUTION),
        service=recorded.service,
        groups=plan.load.groups,
        members=plan.load.groups * plan.load.members,
        static_groups=recorded.static_groups,
        began_at=instant(recorded.began_ms),
        fault_at=instant(fault_ms),
        over_at=instant(recorded.over_ms),
        ended_at=instant(recorded.ended_ms),
        done=tuple(
            Done(at=instant(each.at_ms), text=each.text, is_fault=each.is_fault, process=each.process)
            for each in recorded.marks
        ),
        is_met=all(each.is_met for each in verdicts),
        goals=tuple(map(with_verdict, verdicts)),
        waits=measured,
        noticed=seen,
        hidden=hidden(recorded.asked, fault_ms=fault_ms),
        rebalances=rebalances,
        takeovers=tuple(
            msgspec.structs.replace(
                each,
                owner=recorded.name_of(each.owner),
                former_owner=None if each.former_owner is None else recorded.name_of(each.former_owner),
            )
            for each in takeovers(recorded.log.owners, faults, answers)
        ),
        compared=Compared(
            joins=recorded.acknowledged.joins,
            places=len(recorded.acknowledged.places),
            commits=recorded.acknowledged.commit_count,
            committed_partitions=len(recorded.acknowledged.commits),
            places_missing=tuple(
                f"{each.group_id}: {each.member_id} in generation {each.generation_id}"
                f"{'' if each.assignment is None else ', with its assignment'}"
                for each in lost.places
            ),
            history_missing=lost.gaps,
            commits_missing=lost.commits,
        ),
    )


def faults_of(marks: Iterable[Mark]) -> list[int]:
    """Return the times at which the drill did something that members may notice."""
    return [each.at_ms for each in marks if each.is_fault]


def _answers(asked: Iterable[Asked], partitions: int) -> Mapping[int, Sequence[int]]:
    """Return, for each partition, the times at which requests of its groups succeeded, in order."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for each in asked:
        if each.ended_ms is not None and not each.error:
            found[partition_for(each.group_id, partitions)].append(each.ended_ms)
    return {partition: sorted(times) for partition, times in found.items()}


def _rebalances(histories: Mapping[str, Sequence[Item]], *, since_ms: int) -> Iterable[Rebalance]:
    for group_id, items in sorted(histories.items()):
        for incident in told(GroupId(group_id), items):
            for each in incident.rebalances:
                if wall_ms_of(each.started_at) >= since_ms:
                    yield Rebalance(
                        group_id=group_id,
                        at=each.started_at,
                        took_ms=each.duration_ms,
                        generations=f"{each.from_generation} → {each.to_generation or '?'}",
                        incident=incident.kind,
                        why=incident.headline,
                    )
