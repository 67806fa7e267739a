"""The common queries, answered from the tables by DuckDB: top groups, causes, storms and incidents, and one group.

A query selects rows that began in a window, of groups whose ids match a pattern. Answers are numbers and names;
`show.py` formats them. Only the last complete build is read (`builds.py`), so a build in progress does not matter; if a
file has disappeared, a later build is read.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from muster.replay.fleet.asked import By, Order
from muster.replay.fleet.disk_space import first_line
from muster.replay.fleet.tables.builds import NoTables, current
from muster.replay.fleet.tables.days import MEMORY_LIMIT, connected, view_tables
from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.text.times import Instant, instant

ATTEMPTS: Final = 3
"""How many builds are tried if files disappear."""


class AskedRows(msgspec.Struct, frozen=True, kw_only=True):
    """The selection. `since_ms`, `until_ms`: wall clock, inclusive; `groups`: a pattern, as for file names."""

    since_ms: int | None = None
    until_ms: int | None = None
    groups: str | None = None
    limit: int = 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by column. `name`: the query's name. Instants are ISO 8601 in UTC, durations ms."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


PARTITION_TIME: Final = """
    select group_id, started_at, partition_ms, coalesce(partition_ms, 0) as known_partition_ms from rebalances_asked
    union all
    select group_id, started_at, silent_partition_ms + empty_partition_ms + unassigned_partition_ms as partition_ms,
        coalesce(silent_partition_ms, 0) + empty_partition_ms + coalesce(unassigned_partition_ms, 0)
            as known_partition_ms
    from incidents_asked
"""
"""The time for which partitions had no consumer, in rebalances and outside of them; each period is counted at its
start.
"""

TOTAL: Final = """
    if(bool_and({of}.partition_ms is not null), sum({of}.partition_ms), null)::bigint as partition_ms,
    sum({of}.known_partition_ms)::bigint as known_partition_ms"""
"""The partition time of several rows: null if any of them is unknown, and the known part."""

GROUP_COSTS: Final = f"""
    with
    stopped as (select group_id, {TOTAL.format(of="time")} from partition_time_asked as time group by group_id),
    had as (
        select group_id, count(*) as rebalances, sum(duration_ms)::bigint as rebalancing_ms,
            max(duration_ms) as longest_ms, sum(avoided)::bigint as avoided
        from rebalances_asked group by group_id
    )
    select group_id, coalesce(rebalances, 0) as rebalances, rebalancing_ms, longest_ms, partition_ms,
        known_partition_ms, coalesce(avoided, 0) as avoided
    from stopped left join had using (group_id)
"""  # noqa: S608
"""The cost of each group."""

COST: Final = "known_partition_ms desc, rebalancing_ms desc nulls last"

TOP: Final = f"""
with told as (
    select group_id, count(*) as incidents,
        first(kind order by known_partition_ms desc, coalesce(rebalancing_ms, 0) desc, started_at) as worst_kind
    from incidents_asked group by group_id
)
select group_id, rebalances, incidents, worst_kind, rebalancing_ms, longest_ms, partition_ms,
    known_partition_ms, avoided
from group_costs_asked left join told using (group_id)
order by {COST}, rebalances desc, group_id limit $limit
"""  # noqa: S608
BY_KIND: Final = f"""
select
    kind, count(*) as incidents, count(distinct group_id) as groups, sum(rebalances)::bigint as rebalances,
    sum(rebalancing_ms)::bigint as rebalancing_ms, {TOTAL.format(of="told")},
    count(*) filter (grade = 'unknown') as unknown
from incidents_asked as told group by kind order by {COST}, incidents desc, kind limit $limit
"""  # noqa: S608
BY_TRIGGER: Final = f"""
select
    trigger, count(*) as rebalances, count(distinct group_id) as groups,
    sum(duration_ms)::bigint as rebalancing_ms, {TOTAL.format(of="told")}
from (select *, coalesce(partition_ms, 0) as known_partition_ms from rebalances_asked) as told
group by trigger order by {COST}, rebalances desc, trigger limit $limit
"""  # noqa: S608
STORMS: Final = """
select started_at, ended_at, kind, client_host, len(groups) as groups_hit, incidents, rebalances, rebalancing_ms,
    partition_ms, groups
from storms_asked order by partition_ms desc, rebalancing_ms desc, started_at limit $limit
"""
_INCIDENT: Final = """
select
    started_at, group_id, kind, grade, headline, rebalances, rebalancing_ms, partition_ms,
    known_partition_ms, culprits, ended_at, incident
from incidents_asked where $kind is null or kind = $kind
"""
INCIDENTS: Final = {
    Order.COST: f"{_INCIDENT} order by {COST}, started_at, group_id, incident limit $limit",
    Order.TIME: f"{_INCIDENT} order by started_at desc, group_id, incident limit $limit",
}
OF_GROUP: Final = {
    "totals": f"""
        with stopped as (select {TOTAL.format(of="time")} from partition_time_asked as time)
        select count(*) as rebalances, min(started_at) as first_at, max(started_at) as last_at,
            sum(duration_ms)::bigint as rebalancing_ms, (select partition_ms from stopped) as partition_ms,
            (select known_partition_ms from stopped) as known_partition_ms, sum(avoided)::bigint as avoided
        from rebalances_asked limit $limit
    """,  # noqa: S608
    "causes": BY_KIND,
    "days": "select * exclude (group_id) from group_day_asked order by day desc limit $limit",
    "flapping": "select * exclude (group_id) from flapping_members_asked order by stays desc, process limit $limit",
    "storms": """
        select started_at, ended_at, kind, client_host, len(groups) as groups_hit, rebalances
        from storms_asked order by started_at desc limit $limit
    """,
    "downtime": """
        select since_at, until_at, longest_ms, shortest_ms, paused, owner_before, owner, members
        from coordinator_downtime_asked order by until_at desc limit $limit
    """,
}
"""The parts of the answer of `group`."""

_MOMENT: Final = {
    "rebalances": "started_at",
    "incidents": "started_at",
    "storms": "started_at",
    "group_day": "day",
    "flapping_members": "first_at",
    "coordinator_downtime": "until_at",
    "memberships": "joined_at",
}
"""The column that decides whether a row is in a window; for daily tables the window is extended to whole days.

A flapping process is in the window if the span from its first to its last join of the day overlaps the window.
"""


def top(folder: Path, asked: AskedRows) -> Answer:
    """The most expensive groups. Raises NoTables, like all functions here."""
    return ask(folder, asked, {"top": TOP})["top"]


def causes(folder: Path, asked: AskedRows, by: By = By.KIND) -> Answer:
    """The most expensive causes."""
    return ask(folder, asked, {"causes": BY_KIND if by is By.KIND else BY_TRIGGER})["causes"]


def storms(folder: Path, asked: AskedRows) -> Answer:
    """The most expensive storms."""
    return ask(folder, asked, {"storms": STORMS})["storms"]


def incidents(folder: Path, asked: AskedRows, kind: str | None = None, order: Order = Order.COST) -> Answer:
    """The most expensive, or the newest, incidents."""
    return ask(folder, asked, {"incidents": INCIDENTS[order]}, {"kind": kind})["incidents"]


def group(folder: Path, asked: AskedRows) -> dict[str, Answer]:
    """Describe the group with the id `asked.groups`: an answer for each part of OF_GROUP."""
    return ask(folder, asked, OF_GROUP, is_exact=True)


def looked_at(folder: Path, asked: AskedRows) -> dict[str, Any]:
    """The extent of the selected incidents: how many, of how many groups, from when to when."""
    query = """
        select count(*) as incidents, count(distinct group_id) as groups, min(started_at) as first_at,
            max(started_at) as last_at
        from incidents_asked
    """
    (found,) = ask(folder, asked, {"": query})[""].records
    return found


def groups_in(folder: Path, pattern: str) -> list[str]:
    """The groups that have rows and match a pattern."""
    query = "select distinct group_id from group_day where group_id in (from groups_asked) order by group_id"
    return [group_id for (group_id,) in ask(folder, AskedRows(groups=pattern), {"": query})[""].rows]


def kinds_in(folder: Path) -> list[str]:
    """The kinds of incidents that occur."""
    query = "select distinct kind from incidents order by kind"
    return [kind for (kind,) in ask(folder, AskedRows(), {"": query})[""].rows]


def extent_of(folder: Path, group_id: str) -> tuple[Instant, Instant] | None:
    """The first and the last time at which the tables mention a group; None if they do not."""
    query = """
        select min(moment) as first_at, max(moment) as last_at from (
            select started_at as moment from incidents where group_id = $group_id
            union all select unnest([joined_at, left_at]) from memberships where group_id = $group_id
        )
    """
    ((first, last),) = ask(folder, AskedRows(), {"": query}, {"group_id": group_id})[""].rows
    return None if first is None else (first, last)


def ask(
    folder: Path,
    asked: AskedRows,
    queries: Mapping[str, str],
    values: Mapping[str, object] | None = None,
    *,
    is_exact: bool = False,
) -> dict[str, Answer]:
    """Run queries over the tables, and over `TABLE_asked` with the selected rows. `values`: query parameters.

    `partition_time_asked` has the cost of those rows by group and instant, `group_costs_asked` by group.
    All queries read the same build. `is_exact`: `asked.groups` is a group's id, not a pattern. Raises NoTables.
    """
    for attempt in range(ATTEMPTS):
        build = current(folder)
        try:
            with TemporaryDirectory(prefix="muster-fleet-") as spilled, connected(Path(spilled)) as connection:
                view_tables(connection, folder, build.parts, TABLES)
                if asked.groups is not None:
                    connection.register("groups_asked", _groups(connection, asked.groups, is_exact))
                for table, moment in _MOMENT.items():
                    connection.execute(f"create view {table}_asked as {_chosen(table, moment, asked)}")
                connection.execute(f"create view partition_time_asked as {PARTITION_TIME}")
                connection.execute(f"create view group_costs_asked as {GROUP_COSTS}")
                given = {"limit": asked.limit, **(values or {})}
                return {name: _answer(connection, name, query, given) for name, query in queries.items()}
        except duckdb.OutOfMemoryException as error:
            said = f"answering from the tables in {folder} takes more than {MEMORY_LIMIT} of memory"
            raise NoTables(f"{said}: ask for less, by --since or --group ({first_line(error)})") from error
        except duckdb.Error as error:
            if attempt + 1 == ATTEMPTS:
                raise NoTables(
                    f"the tables in {folder} cannot be read: {first_line(error)}; if one of their files was altered:"
                    f" muster fleet build --log URL --rebuild --to {folder}"
                ) from error
    raise AssertionError  # the last attempt returns or raises


def _groups(connection: duckdb.DuckDBPyConnection, asked: str, is_exact: bool) -> pa.Table:
    """The selected groups: patterns match as in `muster replay`, unlike DuckDB's `glob`."""
    names = [asked]
    if not is_exact:
        found = connection.execute("select distinct group_id from group_day").fetchall()
        names = [group_id for (group_id,) in found if fnmatchcase(group_id, asked)]
    return pa.table({"group_id": pa.array(names, pa.string())})


def _chosen(table: str, moment: str, asked: AskedRows) -> str:
    """The query for the selected rows. Only numbers are inserted into it."""
    cast = "::date" if moment == "day" else ""
    first, last = ("first_at", "last_at") if table == "flapping_members" else (moment, moment)
    conditions = ["true"]
    if asked.since_ms is not None:
        conditions.append(f"{last} >= make_timestamptz({asked.since_ms * 1000}){cast}")
    if asked.until_ms is not None:
        end_us = asked.until_ms * 1000 - (moment == "day")  # a day that begins at the window's end is not in it
        conditions.append(f"{first} <= make_timestamptz({end_us}){cast}")
    if asked.groups is not None and table == "storms":
        conditions.append("exists (from groups_asked where list_contains(groups, group_id))")
    elif asked.groups is not None:
        conditions.append("group_id in (from groups_asked)")
    return f"select * from {table} where {' and '.join(conditions)}"  # noqa: S608


def _answer(connection: duckdb.DuckDBPyConnection, name: str, query: str, values: Mapping[str, object]) -> Answer:
    given = {each: value for each, value in values.items() if f"${each}" in query}
    found: pa.Table = connection.sql(query, params=given).to_arrow_table()
    columns = [_values(column) for column in found.columns]
    return Answer(name=name, columns=tuple(found.column_names), rows=tuple(zip(*columns, strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [None if each is None else instant(each // 1_000) for each in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_date(column.type):
        return [str(each) for each in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values
