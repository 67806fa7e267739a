"""Copies the states and open rows of groups without new events since the last build, instead of folding them again.

DuckDB reads the rows, and they are written unchanged, so the cost of a build is that of the new events, and little for
every other group. A group is *touched* if it has a new record, or if its partition has one (a coordinator's event, for
instance).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from muster.replay.fleet.building.pieces import Survey
from muster.replay.fleet.disk_space import new_parquet
from muster.replay.fleet.tables.builds import Build
from muster.replay.fleet.tables.parts import STATES, Part, Role, part_path, read_parquet, schema_of
from muster.replay.fleet.tables.schemas import FOLDED

BATCH_ROWS: Final = 1_000
MEMORY_LIMIT: Final = "160MB"


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of untouched groups, and a file with the states of touched ones."""

    parts: tuple[Part, ...]
    states: tuple[Path, ...]


NOTHING_CARRIED: Final = Carried(parts=(), states=())


def carry(folder: Path, before: Build, found: Survey, number: int, scratch: Path) -> Carried:
    """Split the open rows of a build into touched and untouched groups. `scratch`: folder for the touched states."""
    parts: list[Part] = []
    config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": str(scratch / "carrying"), "threads": 2}
    with duckdb.connect(config=config) as connection:
        _note_touched(connection, found)
        for table, partition in ((STATES, "partition"), *((each.name, "log_partition") for each in FOLDED)):
            paths = [folder / part.path for part in before.of(table) if part.role is Role.OPEN]
            if not paths:
                continue
            path = part_path(table, number, "carried-open")
            rows = _copy(connection, paths, f"not ({_is_touched(partition)})", table, folder / path)
            if rows:  # else the file is a leftover
                parts.append(Part(table=table, role=Role.OPEN, path=path, rows=rows))
        paths = [folder / part.path for part in before.of(STATES)]
        states = scratch / "states.parquet"
        if paths and _copy(connection, paths, _is_touched("partition"), STATES, states):
            return Carried(parts=tuple(parts), states=(states,))
    return Carried(parts=tuple(parts), states=())


def _note_touched(connection: duckdb.DuckDBPyConnection, found: Survey) -> None:
    partitions = [partition for partition, reads in found.shared.items() if reads]
    connection.execute("create table touched_partitions as select unnest($all)::int as partition", {"all": partitions})
    connection.register("groups", pa.table({"group_id": pa.array(found.groups, pa.string())}))
    connection.execute("create table touched as from groups")


def _is_touched(partition: str) -> str:
    return f"group_id in (from touched) or {partition} in (from touched_partitions)"


def _copy(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], condition: str, table: str, to: Path) -> int:
    """Copy the rows that meet a condition, in the table's schema; return their number."""
    to.parent.mkdir(exist_ok=True)
    query = f"select * from {read_parquet(paths)} where {condition}"  # noqa: S608 -- a condition of ours
    rows = 0
    with new_parquet(to, schema_of(table)) as writer:
        found: pa.RecordBatchReader = connection.sql(query).to_arrow_reader(BATCH_ROWS)
        for batch in found:
            writer.write_batch(batch.cast(schema_of(table)))
            rows += batch.num_rows
    return rows
