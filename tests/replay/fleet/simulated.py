"""A small fleet that was simulated into an archive, with the truth about it."""

from pathlib import Path

import msgspec

from muster.events.ids import MemberId
from muster.replay.fleet.simulation.fleet import Fleet, SimulatedDays
from muster.replay.fleet.simulation.week import TruthOfGroup, TruthOfIncident
from muster.replay.fleet.simulation.world.truth import Truth
from tests.judge.case import Case
from tests.judge.scenario import ScenarioSort
from tests.replay.whole import History

MONDAY_MS = 1_767_571_200_000
"""2026-01-05."""


def fleet(groups: int, days: int, *, seed: int = 1, partitions: int = 3) -> Fleet:
    return Fleet(groups=groups, seed=seed, partitions=partitions, span=SimulatedDays(MONDAY_MS, days))


def simulated(what: Fleet, folder: Path) -> tuple[Path, list[TruthOfGroup]]:
    """Play it into an archive in the folder; return the archive, and the truth of each group."""
    from muster.replay.fleet.simulation import spool  # a quick run has neither DuckDB nor Arrow
    from muster.replay.fleet.simulation.sinks import ArchiveSink

    (spooled := folder / "spool").mkdir()
    truth = folder / "truth.jsonl"
    spool.play(what, spooled, truth, jobs=1, watch=lambda _done, _total: None)
    ArchiveSink(fleet=what, root=folder / "archive").write(spooled, lambda _records: None)
    return folder / "archive", [
        msgspec.json.decode(line, type=TruthOfGroup) for line in truth.read_bytes().splitlines()
    ]


def case_of(group: TruthOfGroup, history: History) -> Case:
    """Return a group's days as the judge counts them."""
    return Case(
        seed=0,
        scenario=group.group_id,
        sort=ScenarioSort.FLEET,
        setting=group.setting,
        history=history,
        until_ms=group.until_ms,
        truths=tuple(map(_truth, group.incidents)),
        names={MemberId(member_id): name for name, ids in group.processes.items() for member_id in ids},
        notes=(),
    )


def _truth(incident: TruthOfIncident) -> Truth:
    fields = msgspec.structs.asdict(incident)
    del fields["kind"], fields["scenario"]
    return msgspec.convert(fields, Truth)
