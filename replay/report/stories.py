"""Incidents and their rebalances, as the page shows them: texts of bounded length that are safe to show."""

import msgspec

from muster.replay.html.document import shown
from muster.replay.incidents.incident import Cost, Incident, Statement
from muster.replay.rebalances.rebalance import MemberRef, Rebalance
from muster.replay.rebalances.wording import name, partitions, who
from muster.replay.render.incident_table import cost_text
from muster.replay.report.lanes import Lanes
from muster.replay.report.page import IncidentOnPage, Shift, Told
from muster.replay.text.grammar import few
from muster.replay.text.times import duration, wall_ms_of

STATEMENTS_MAX = 30
MOVES_MAX = 6
CULPRITS_MAX = 20
GENERATIONS_MAX = 8
SEQS_MAX = 8


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as it is kept while the history is read, without the complete rebalances."""

    story: IncidentOnPage
    incident_id: str
    parent_id: str | None
    processes: tuple[MemberRef, ...]
    """The culprits, and the affected processes."""


class Total:
    """The total cost of all incidents."""

    def __init__(self) -> None:
        self._cost = Cost(rebalances=0, rebalancing_ms=0, partition_ms=0, partitions_moved=0, partitions_moved_back=0)
        self._is_least = False

    def add(self, cost: Cost) -> None:
        """Add the cost of an incident; unknown parts are left out."""
        known = {name: getattr(cost, name) for name in cost.__struct_fields__ if getattr(cost, name) is not None}
        self._is_least = self._is_least or len(known) < len(cost.__struct_fields__)
        self._cost = Cost(**{name: getattr(self._cost, name) + known.get(name, 0) for name in cost.__struct_fields__})

    @property
    def text(self) -> str:
        return f"{'at least ' if self._is_least else ''}{cost_text(self._cost)}"


def brief(incident: Incident) -> Brief:
    """Return an incident as the page shows it, except for what is known only at the end."""
    begin_ms = wall_ms_of(incident.started_at)
    end_ms = None if incident.ended_at is None else max(begin_ms, wall_ms_of(incident.ended_at))
    story = IncidentOnPage(
        key="",
        kind=incident.kind,
        grade=incident.grade,
        headline=shown(incident.headline),
        culprits=_culprits(incident.culprits),
        lanes=(),
        begin_ms=begin_ms,
        end_ms=end_ms,
        begin=incident.started_at,
        end=incident.ended_at,
        took="not over" if end_ms is None else duration(end_ms - begin_ms),
        crosses=incident.crosses,
        parent=None,
        weight=(end_ms is None, *incident.cost.weight),
        generations=_generations(incident.rebalances),
        chain=tuple(_told(each) for each in incident.chain[:STATEMENTS_MAX]),
        chain_more=max(0, len(incident.chain) - STATEMENTS_MAX),
        cost=cost_text(incident.cost),
        advice=tuple(map(shown, incident.advice[:STATEMENTS_MAX])),
        notes=tuple(map(shown, incident.notes[:STATEMENTS_MAX])),
    )
    return Brief(
        story=story,
        incident_id=incident.id,
        parent_id=incident.parent,
        processes=(*incident.culprits, *incident.affected),
    )


def story(brief: Brief, number: int, numbers: dict[str, int], lanes: Lanes) -> IncidentOnPage:
    """Return the incident for the page. `numbers`: of the incidents on the page that may be its parent, by id."""
    found = {lanes.number_of(each.member_id) for each in brief.processes} - {None}
    return msgspec.structs.replace(
        brief.story,
        key=f"incident-{number}",
        lanes=tuple(sorted(each for each in found if each is not None)),
        parent=numbers.get(brief.parent_id) if brief.parent_id is not None else None,
    )


def shift(rebalance: Rebalance) -> Shift:
    """Return a rebalance, and its changes of the assignment."""
    movement = rebalance.movement
    moves = () if movement is None else movement.moves
    return Shift(
        at=rebalance.started_at,
        generations=_generation(rebalance),
        outcome=rebalance.outcome,
        took="" if rebalance.duration_ms is None else duration(rebalance.duration_ms),
        members=len(rebalance.members_after),
        moved=None if movement is None else movement.moved,
        gained=None if movement is None else movement.gained,
        lost=None if movement is None else movement.lost,
        stayed=None if movement is None else movement.stayed,
        moves=tuple(
            shown(f"{_owner(each.previous)} → {_owner(each.owner)}: {each.count} ({partitions(each.partitions)})")
            for each in moves[:MOVES_MAX]
        ),
        moves_more=max(0, len(moves) - MOVES_MAX),
    )


def _culprits(culprits: tuple[MemberRef, ...]) -> tuple[str, ...]:
    names = [shown(who(each)) for each in culprits[:CULPRITS_MAX]]
    if len(culprits) > CULPRITS_MAX:
        names.append(f"and {len(culprits) - CULPRITS_MAX} more")
    return tuple(names)


def _told(statement: Statement) -> Told:
    seqs = few(list(map(str, statement.seqs)), SEQS_MAX)
    return Told(text=shown(statement.text), grade=statement.grade, at=statement.at, seqs=seqs)


def _generation(rebalance: Rebalance) -> str:
    return f"{rebalance.from_generation} → {'?' if rebalance.to_generation is None else rebalance.to_generation}"


def _generations(rebalances: tuple[Rebalance, ...]) -> str:
    return few(list(map(_generation, rebalances)), GENERATIONS_MAX)


def _owner(member: MemberRef | None) -> str:
    return "nobody" if member is None else shown(name(member), 120)
