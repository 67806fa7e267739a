"""The values of the fleet's page, from the tables. Strings are unescaped; the template escapes them."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.replay.fleet.asked import Order
from muster.replay.fleet.questions.queries import (
    BY_KIND,
    BY_TRIGGER,
    COST,
    INCIDENTS,
    STORMS,
    TOTAL,
    Answer,
    AskedRows,
    ask,
)
from muster.replay.fleet.report.heat import HOUR_MS, HeatRow, Scale, paths_of, scale_of
from muster.replay.fleet.report.teams import GroupCost, Team, teams_of
from muster.replay.text.times import Instant

ROWS_MAX: Final = 40
"""The maximum of groups with a row of their own."""

STORIES_OF_GROUP: Final = 3
REBALANCES_OF_STORY: Final = 10
"""How many incidents of a group with a row get a story, and how many rebalances a story lists."""

THE_REST: Final = "all others"

_COSTS: Final = """
select group_id, rebalances, coalesce(rebalancing_ms, 0) as rebalancing_ms, known_partition_ms as partition_ms
from group_costs_asked order by known_partition_ms desc, rebalancing_ms desc, rebalances desc, group_id
"""
_CELLS: Final = f"""
with costs as ({_COSTS} limit $most)
select if(group_id in (select group_id from costs), group_id, null) as group_id,
    (epoch_ms(started_at) // {HOUR_MS})::bigint as hour, sum(known_partition_ms)::bigint as partition_ms
from partition_time_asked group by all order by all
"""  # noqa: S608
_EXTENT: Final = f"""
with stopped as (select {TOTAL.format(of="time")} from partition_time_asked as time)
select min(started_at) as first_at, max(started_at) as last_at, (select count(*) from incidents_asked) as incidents,
    (select count(distinct group_id) from partition_time_asked) as groups, count(*) as rebalances,
    sum(coalesce(duration_ms, 0))::bigint as rebalancing_ms,
    (select partition_ms from stopped) as partition_ms, (select known_partition_ms from stopped) as known_partition_ms,
    (select count(*) from quarantine) as quarantined
from rebalances_asked
"""  # noqa: S608
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
_CHOSEN: Final = f"""
with costs as ({_COSTS} limit $most),
ranked as (
    select *, row_number() over (partition by group_id order by {COST}, started_at, incident) as of_group,
        row_number() over (order by {COST}, started_at, group_id, incident) as of_all
    from incidents_asked
),
chosen as (
    select * from ranked
    where of_all <= $most or (of_group <= {STORIES_OF_GROUP} and group_id in (select group_id from costs))
)
"""  # noqa: S608
_STORIES: Final = f"""
{_CHOSEN} select group_id, incident, kind, grade, headline, culprits, started_at, ended_at, rebalances, rebalancing_ms,
    partition_ms, known_partition_ms from chosen order by group_id, started_at, incident
"""  # noqa: S608
_STORY_REBALANCES: Final = f"""
{_CHOSEN} select group_id, incident, started_at, duration_ms, outcome, from_generation, to_generation, trigger,
    client_reason, coalesce(trigger_group_instance_id, trigger_client_id) as trigger_by
from rebalances_asked semi join chosen using (group_id, incident)
qualify row_number() over (partition by group_id, incident order by started_at, first_seq) <= {REBALANCES_OF_STORY}
order by group_id, incident, started_at, first_seq
"""  # noqa: S608
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
    "stories": _STORIES,
    "story_rebalances": _STORY_REBALANCES,
}

Record = dict[str, Any]


class IncidentStory(msgspec.Struct, frozen=True, kw_only=True):
    """An incident with its first rebalances. `key`: its anchor in the page."""

    key: str
    incident: Record
    rebalances: tuple[Record, ...]


class GroupStories(msgspec.Struct, frozen=True, kw_only=True):
    """The stories of a group."""

    key: str
    group_id: str
    stories: tuple[IncidentStory, ...]


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the page. `scale`: None if there was no rebalance; `extent`: the totals."""

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
    stories: tuple[GroupStories, ...]

    @property
    def links(self) -> dict[str, str]:
        """The anchor of each group's stories, by group id."""
        return {each.group_id: each.key for each in self.stories}

    @property
    def incident_links(self) -> dict[tuple[str, str], str]:
        """The anchor of each incident that has a story, by group id and incident id."""
        stories = (story for each in self.stories for story in each.stories)
        return {(each.incident["group_id"], each.incident["incident"]): each.key for each in stories}


def facts_of(folder: Path, asked: AskedRows, pattern: re.Pattern[str], *, rows: int = ROWS_MAX) -> FleetFacts:
    """Query the tables. `asked.limit`: the maximum rows of each list. Raises NoTables."""
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
        stories=_stories(told["stories"], told["story_rebalances"], costs),
        **{
            name: tuple(told[name].records)
            for name in ("causes", "triggers", "storms", "incidents", "flapping", "downtime")
        },
    )


def _stories(incidents: Answer, rebalances: Answer, costs: list[GroupCost]) -> tuple[GroupStories, ...]:
    """The stories of each group, the most expensive group first."""
    of_incident: dict[tuple[str, str], list[Record]] = {}
    for each in rebalances.records:
        of_incident.setdefault((each["group_id"], each["incident"]), []).append(each)
    of_group: dict[str, list[IncidentStory]] = {}
    for number, each in enumerate(incidents.records):
        its = tuple(of_incident.get((each["group_id"], each["incident"]), ()))
        story = IncidentStory(key=f"story-{number}", incident=each, rebalances=its)
        of_group.setdefault(each["group_id"], []).append(story)
    place = {each.group_id: number for number, each in enumerate(costs)}
    names = sorted(of_group, key=lambda name: (place.get(name, len(place)), name))
    return tuple(
        GroupStories(key=f"group-{number}", group_id=name, stories=tuple(of_group[name]))
        for number, name in enumerate(names)
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
