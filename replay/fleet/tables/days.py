"""The daily tables, computed by DuckDB from the rows of other tables: a file per day, rebuilt when the day is touched.

A day is touched if a row that began on it is new, or was open in the previous build; the days before and after it are
then touched too. Storms span days: see storms.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.replay.fleet.disk_space import NoMemory, is_no_room, new_parquet
from muster.replay.fleet.tables import flapping, storms
from muster.replay.fleet.tables.builds import Build
from muster.replay.fleet.tables.parts import Part, Role, part_path, read_parquet
from muster.replay.fleet.tables.rows import FIRST_DAY, LAST_DAY
from muster.replay.fleet.tables.schemas import COORDINATOR_DOWNTIME, INCIDENTS, MEMBERSHIPS, REBALANCES, TABLES

T = TypeVar("T")

TOUCHING: Final = {
    REBALANCES.name: ("day",),
    INCIDENTS.name: ("day",),
    MEMBERSHIPS.name: ("day", "left_at"),
    COORDINATOR_DOWNTIME.name: ("day",),
}
"""The tables that the daily tables are computed from, and the columns by which a row touches a day."""

_GROUP_DAY: Final = """
with
began as (
    select
        group_id, day, count(*) as rebalances, sum(coalesce(duration_ms, 0)) as rebalancing_ms,
        max(duration_ms) as longest_ms, sum(coalesce(partition_ms, 0)) as partition_ms,
        sum(avoided) as avoided, max(members_after) as members_max
    from rebalances semi join touched using (day) group by all
),
told as (
    select
        group_id, day, count(*) as incidents,
        sum(coalesce(silent_partition_ms, 0) + empty_partition_ms + coalesce(unassigned_partition_ms, 0)) as beside_ms,
        count(*) filter (grade = 'unknown' or kind = 'unknown') as unknown, sum(partitions_moved) as partitions_moved,
        first(kind order by known_partition_ms desc, coalesce(rebalancing_ms, 0) desc, started_at, incident)
            as worst_kind
    from incidents semi join touched using (day) group by all
),
came as (select group_id, day, count(*) as joined from memberships semi join touched using (day) group by all),
went as (
    select group_id, left_at::date as day, count(*) as gone
    from memberships where left_at::date in (select day from touched) group by all
),
away as (
    select group_id, day, sum(longest_ms) as downtime_ms from coordinator_downtime semi join touched using (day)
    group by all
)
select
    group_id, day, coalesce(rebalances, 0) as rebalances, coalesce(rebalancing_ms, 0) as rebalancing_ms, longest_ms,
    coalesce(partition_ms, 0) + coalesce(beside_ms, 0) as partition_ms,
    coalesce(partitions_moved, 0) as partitions_moved,
    coalesce(avoided, 0) as avoided, coalesce(incidents, 0) as incidents, coalesce(unknown, 0) as unknown, worst_kind,
    coalesce(joined, 0) as joined, coalesce(gone, 0) as "left", members_max, coalesce(downtime_ms, 0) as downtime_ms
from began
full join told using (group_id, day)
full join came using (group_id, day)
full join went using (group_id, day)
full join away using (group_id, day)
order by day, group_id
"""
"""A group's day, from the rows that began on it.

Moved partitions are counted by incident, as the replay does: a cooperative assignor revokes a partition in one
rebalance and assigns it in the next, so neither rebalance alone has moved it.
"""

QUERIES: Final = {"group_day": _GROUP_DAY, "storms": storms.QUERY, "flapping_members": flapping.QUERY}
"""Each returns the rows of its table for the days in the table `touched`."""

ROWS_AT_ONCE: Final = 250_000
"""About how many rows are processed at a time: DuckDB cannot spill to disk the state that it keeps for each day."""

_OF_ONE_DAY: Final = frozenset({"group_day", "flapping_members"})
"""Tables whose rows depend on their own day alone; a storm may last into the next."""

MEMORY_LIMIT: Final = "400MB"


def derived(folder: Path, before: Build | None, parts: Sequence[Part], number: int, scratch: Path) -> list[Part]:
    """The parts of the daily tables: those of touched days rebuilt, the others as they were.

    `scratch`: for what does not fit into memory. Raises NoMemory if even that is not enough.
    """
    live = [*(before.closed if before else ()), *parts]
    earlier = [part for part in before.parts if part.role is not Role.CLOSED] if before else []
    with connected(scratch / "days") as connection:
        touched = _touched(connection, folder, [*parts, *(part for part in earlier if part.role is Role.OPEN)])
        if not touched:
            return [part for part in earlier if part.role is Role.DAY]
        view_tables(connection, folder, live, TOUCHING)
        made: list[Part] = []
        for name in QUERIES:
            anew = _days_anew(connection, name, touched)
            made += (part for part in earlier if part.table == name and part.role is Role.DAY and part.day not in anew)
            for days in _slices(sorted(anew), parts if name in _OF_ONE_DAY else ()):
                for rows in _of_days(connection, name, days):
                    made += _by_day(rows, name, folder, number)
    return made


def _days_anew(connection: duckdb.DuckDBPyConnection, name: str, touched: Set[int]) -> Set[int]:
    """The days for which a table is rebuilt. Raises NoMemory."""
    if name in _OF_ONE_DAY:
        return touched
    _touch(connection, touched)
    ask = partial(storms.days_of_storms, connection, touched)
    try:
        return ask()
    except duckdb.OutOfMemoryException as error:
        if is_no_room(error):
            raise
        return _with_all_memory(connection, name, sorted(touched), ask)


def _slices(days: Sequence[int], parts: Iterable[Part]) -> Iterator[Sequence[int]]:
    """Split the days into slices; the more rows these parts have, the more slices."""
    rows = sum(part.rows for part in parts if part.table in TOUCHING)
    at_once = max(1, -(-len(days) // (1 + rows // ROWS_AT_ONCE)))
    for begin in range(0, len(days), at_once):
        yield days[begin : begin + at_once]


def _of_days(connection: duckdb.DuckDBPyConnection, name: str, days: Sequence[int]) -> Iterator[pa.Table]:
    """The rows of a table for these days; for fewer days at a time if DuckDB has too little memory.

    If they cannot be split further, DuckDB may use its default limit, most of the machine's memory. Raises NoMemory.
    """
    try:
        yield _answered(connection, name, days)
    except duckdb.OutOfMemoryException as error:
        if is_no_room(error):
            raise
        if len(days) == 1 or name not in _OF_ONE_DAY:
            yield _with_all_memory(connection, name, days, partial(_answered, connection, name, days))
            return
        middle = len(days) // 2
        yield from _of_days(connection, name, days[:middle])
        yield from _of_days(connection, name, days[middle:])


def _with_all_memory(connection: duckdb.DuckDBPyConnection, name: str, days: Sequence[int], ask: Callable[[], T]) -> T:
    with duckdb.connect() as another:  # after `reset` DuckDB reports this limit, but keeps the old one
        ((limit,),) = another.execute("select current_setting('memory_limit')").fetchall()
    connection.execute(f"set memory_limit = '{limit}'")
    try:
        return ask()
    except duckdb.OutOfMemoryException as error:
        if is_no_room(error):
            raise
        first, last = _dates((days[0], days[-1]))
        of = f"the day {first}" if first == last else f"the days {first} to {last}"
        raise NoMemory(
            f"the table {name} of {of} cannot be made in {limit} of memory, which is most of what there is: build on a"
            " machine with more"
        ) from error
    finally:
        connection.execute(f"set memory_limit = '{MEMORY_LIMIT}'")


def _answered(connection: duckdb.DuckDBPyConnection, name: str, days: Sequence[int]) -> pa.Table:
    _touch(connection, days)
    return connection.sql(QUERIES[name]).to_arrow_table()


def _touch(connection: duckdb.DuckDBPyConnection, days: Iterable[int]) -> None:
    connection.execute("create or replace table touched as select unnest($days)::date as day", {"days": _dates(days)})


def connected(spilled: Path) -> duckdb.DuckDBPyConnection:
    """Connect to an in-memory database that uses UTC days. `spilled`: folder for what does not fit into memory."""
    config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": str(spilled), "threads": 2}
    connection = duckdb.connect(config=config)
    connection.execute("set TimeZone = 'UTC'")
    return connection


def view_tables(
    connection: duckdb.DuckDBPyConnection, folder: Path, parts: Iterable[Part], names: Iterable[str]
) -> None:
    """Create a view of each table over its parts; a table without parts is empty."""
    by_table: dict[str, list[Path]] = {name: [] for name in names}
    for part in parts:
        if part.table in by_table:
            by_table[part.table].append(folder / part.path)
    for name, paths in by_table.items():
        if paths:
            connection.execute(f"create view {name} as select * from {read_parquet(paths)}")  # noqa: S608 -- quoted
        else:
            empty = pa.Table.from_pylist([], schema=TABLES[name].schema)
            connection.register(name, empty)


def _touched(connection: duckdb.DuckDBPyConnection, folder: Path, parts: Iterable[Part]) -> set[int]:
    """The days of these parts' rows, and the days next to them."""
    found: set[int] = set()
    for part in parts:
        if part.table in TOUCHING:
            query = " union ".join(
                f"select distinct {column}::date - date '1970-01-01' from {read_parquet([folder / part.path])}"  # noqa: S608
                f" where {column} is not null"
                for column in TOUCHING[part.table]
            )
            found.update(day for (day,) in connection.execute(query).fetchall())
    return {day for each in found for day in (each - 1, each, each + 1) if FIRST_DAY <= day <= LAST_DAY}


def _dates(days: Iterable[int]) -> list[str]:
    """The days in a form that DuckDB can read."""
    return [str(each) for each in pa.array(sorted(days), pa.int32()).cast(pa.date32()).to_pylist()]


def _by_day(rows: pa.Table, name: str, folder: Path, number: int) -> list[Part]:
    table = rows.cast(TABLES[name].schema)
    parts = []
    days: Any = pc.unique(table.column("day"))
    for day in days:
        of_day = table.filter(pc.equal(table.column("day"), day))
        path = part_path(name, number, str(day))
        (folder / name).mkdir(exist_ok=True)
        with new_parquet(folder / path, of_day.schema) as writer:
            writer.write_table(of_day)
        parts.append(Part(table=name, role=Role.DAY, path=path, rows=of_day.num_rows, day=day.cast(pa.int32()).as_py()))
    return parts
