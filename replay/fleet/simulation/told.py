"""The truth of a group as a line of JSON: what was done to it, and which member ids its processes had."""

from typing import Any

import msgspec

from muster.replay.fleet.simulation.fleet import team_of
from muster.replay.fleet.simulation.week import Lived
from muster.replay.fleet.simulation.world.truth import Range, RebalanceId, Truth


class TruthOfIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that was done. Fields as of Truth; `kind` is the first of `kinds`; `scenario` names the deed."""

    kind: str
    kinds: tuple[str, ...]
    scenario: str
    knowable: str
    culprits: tuple[str, ...] | None
    starts: tuple[Range, ...]
    ends: tuple[Range, ...]
    extent: Range
    must: tuple[RebalanceId, ...]
    may: tuple[RebalanceId, ...]
    parent: int | None
    is_optional: bool


class TruthOfGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group. `processes`: the member ids of each process, by its name."""

    group_id: str
    team: str
    partition: int
    setting: str
    until_ms: int
    processes: dict[str, tuple[str, ...]]
    incidents: tuple[TruthOfIncident, ...]

    def truths(self) -> tuple[Truth, ...]:
        """The truths, as the judge has them."""
        return tuple(_truth(each) for each in self.incidents)

    def names(self) -> dict[str, str]:
        """The process behind each member id."""
        return {member_id: name for name, member_ids in self.processes.items() for member_id in member_ids}


def group_of(lived: Lived, partition: int) -> TruthOfGroup:
    """The part that is kept of a group's days."""
    processes: dict[str, list[str]] = {}
    for member_id, name in lived.names.items():
        processes.setdefault(name, []).append(member_id)
    return TruthOfGroup(
        group_id=lived.group_id,
        team=team_of(lived.group_id),
        partition=partition,
        setting=lived.setting,
        until_ms=lived.until_ms,
        processes={name: tuple(member_ids) for name, member_ids in processes.items()},
        incidents=tuple(map(_incident, lived.truths, lived.scenarios)),
    )


def _incident(truth: Truth, scenario: str) -> TruthOfIncident:
    fields: dict[str, Any] = msgspec.structs.asdict(truth)
    fields |= {name: tuple(sorted(fields[name])) for name in ("must", "may")}
    fields |= {"culprits": None if truth.culprits is None else tuple(sorted(truth.culprits))}
    fields |= {"knowable": truth.knowable.value, "kind": truth.kind, "scenario": scenario}
    return TruthOfIncident(**fields)


def _truth(incident: TruthOfIncident) -> Truth:
    fields: dict[str, Any] = msgspec.structs.asdict(incident)
    del fields["kind"], fields["scenario"]
    return msgspec.convert(fields, Truth)
