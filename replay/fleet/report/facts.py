"""The values of the fleet's page, from the tables. Texts are as they are told; the template escapes them."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.replay.fleet.asked import Order
from muster.replay.fleet.questions.queries import BY_KIND, BY_TRIGGER, INCIDENTS, STORMS, Answer, AskedRows, ask
from muster.replay.fleet.report.heat import HOUR_MS, HeatRow, Scale, paths_of, scale_of
from muster.replay.fleet.report.teams import GroupCost, Team, teams_of
from muster.replay.times import Instant

ROWS_MAX: Final = 40
"""The groups that have a row of their own."""

THE_REST: Final = "all others"

_COSTS: Final = """
select group_id, rebalances, coalesce(rebalancing_ms, 0) as rebalancing_ms, coalesce(partition_ms, 0) as partition_ms
from group_costs_asked order by partition_ms desc, rebalancing_ms desc, rebalances desc, group_id
"""
_CELLS: Final = f"""
with costs as ({_COSTS} limit $most)
select if(group_id in (select group_id from costs), group_id, null) as group_id,
    (epoch_ms(started_at) // {HOUR_MS})::bigint as hour, sum(coalesce(partition_ms, 0))::bigint as partition_ms
from partition_time_asked group by all order by all
"""  # noqa: S608
_EXTENT: Final = """
select min(started_at) as first_at, max(started_at) as last_at, (select count(*) from incidents_asked) as incidents,
    (select count(distinct group_id) from partition_time_asked) as groups, count(*) as rebalances,
    sum(coalesce(duration_ms, 0))::bigint as rebalancing_ms,
    (select sum(coalesce(partition_ms, 0))::bigint from partition_time_asked) as partition_ms,
    (select count(*) from quarantine) as quarantined
from rebalances_asked
"""
_FLAPPING: Final = """
select group_id, process, sum(stays)::int as stays, count(*) as days, sum(triggered)::int as triggered,
    min(shortest_ms) as shortest_ms, max(at_once)::int as at_once, max(last_at) as last_at
from flapping_members_asked group by group_id, process order by stays desc, group_id, process limit $limit
"""
_DOWNTIME: Final = """
select until_at, owner, owner_before, count(*) as groups_hit, sum(members)::int as members,
    max(longest_ms) as longest_ms, max(shortest_ms) as shortest_ms, bool_or(paused) as paused
from coordinator_downtime_asked group by until_at, owner, owner_before
order by max(longest_ms) * count(*) desc, until_at limit $limit
"""
QUERIES: Final = {
    "extent": _EXTENT,
    "costs": _COSTS,
    "cells": _CELLS,
    "causes": BY_KIND,
    "triggers": BY_TRIGGER,
    "storms": STORMS,
    "incidents": INCIDENTS[Order.COST],
    "flapping": _FLAPPING,
    "downtime": _DOWNTIME,
}

Record = dict[str, Any]


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the page. `scale`: None if there was no rebalance; `extent`: the numbers of everything together."""

    extent: Record
    scale: Scale | None
    rows: tuple[HeatRow, ...]
    rest: int
    teams: tuple[Team, ...]
    teams_more: int
    causes: tuple[Record, ...]
    triggers: tuple[Record, ...]
    storms: tuple[Record, ...]
    incidents: tuple[Record, ...]
    flapping: tuple[Record, ...]
    downtime: tuple[Record, ...]


def facts_of(folder: Path, asked: AskedRows, pattern: re.Pattern[str], *, rows: int = ROWS_MAX) -> FleetFacts:
    """Ask the tables. `asked.limit`: the rows of each list. Raises NoTables."""
    told = ask(folder, asked, QUERIES, {"most": rows, "kind": None})
    costs = [GroupCost(**record) for record in told["costs"].records]
    scale = _scale(told["cells"])
    teams = teams_of(costs, pattern)
    (extent,) = told["extent"].records
    return FleetFacts(
        extent=extent,
        scale=scale,
        rows=() if scale is None else _rows(told["cells"], costs, scale, rows),
        rest=max(0, len(costs) - rows),
        teams=tuple(teams[: asked.limit]),
        teams_more=max(0, len(teams) - asked.limit),
        **{
            name: tuple(told[name].records)
            for name in ("causes", "triggers", "storms", "incidents", "flapping", "downtime")
        },
    )


def _scale(cells: Answer) -> Scale | None:
    hours = [record["hour"] for record in cells.records]
    return scale_of(min(hours), max(hours)) if hours else None


def _rows(cells: Answer, costs: list[GroupCost], scale: Scale, most: int) -> tuple[HeatRow, ...]:
    by_group: dict[str | None, dict[int, int]] = {}
    for record in cells.records:
        by_group.setdefault(record["group_id"], {})[record["hour"]] = record["partition_ms"]
    made = [_row(each.group_id, by_group[each.group_id], [each], scale) for each in costs[:most]]
    if None in by_group:
        made.append(_row(THE_REST, by_group[None], costs[most:], scale))
    return tuple(made)


def _row(name: str, cells: dict[int, int], costs: list[GroupCost], scale: Scale) -> HeatRow:
    worst = max(cells, key=lambda hour: (cells[hour], -hour))
    return HeatRow(
        name=name,
        rebalances=sum(each.rebalances for each in costs),
        partition_ms=sum(each.partition_ms for each in costs),
        rebalancing_ms=sum(each.rebalancing_ms for each in costs),
        paths=paths_of(cells, scale),
        worst=_begin(worst),
        worst_ms=cells[worst],
    )


def _begin(hour: int) -> Instant:
    return Scale(first_hour=hour, hours=1, columns=1).begin(0)
