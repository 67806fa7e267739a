"""Merges small closed parts, so that many small builds leave about as many files as one large build.

Parts are merged as soon as there are AT_ONCE of about the same size. So a table has fewer than AT_ONCE parts of each
size below FULL_ROWS, about 40 in all, plus the full ones, which are never merged; and a row is rewritten once per size,
six times at most.

Merging is part of a build: its manifest names the merged part instead of the others, which are kept for readers of the
previous build (`builds.py`). So no reader sees a row twice or misses one, whenever the build ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from muster.replay.fleet.disk_space import new_parquet
from muster.replay.fleet.tables.builds import CannotBuild
from muster.replay.fleet.tables.parts import Part, Role, part_path, read_parquet, schema_of

AT_ONCE: Final = 8
FULL_ROWS: Final = 100_000
BATCH_ROWS: Final = 10_000
MEMORY_LIMIT: Final = "160MB"
"""DuckDB's memory limit; the rest goes to disk."""


def joined(folder: Path, closed: Iterable[Part], number: int, scratch: Path) -> list[Part]:
    """Return the closed parts of all tables, small ones merged. `number`: the build's; `scratch`: for large sorts."""
    by_table = sorted(closed, key=lambda part: part.table)  # which keeps their order
    made: list[Part] = []
    for table, parts in groupby(by_table, key=lambda part: part.table):
        of_table = list(parts)
        while few := next(_of_one_size(of_table), None):
            path = part_path(table, number, "joined-closed")
            rows = _join(folder, few, folder / path, scratch)
            of_table = [part for part in of_table if part not in few]
            of_table.append(Part(table=table, role=Role.CLOSED, path=path, rows=rows))
        made += of_table
    return made


def _of_one_size(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield parts to merge, each time enough for a full part if there are that many."""
    for size in range(_size(FULL_ROWS) + 1):
        alike = [part for part in parts if part.rows < FULL_ROWS and _size(part.rows) == size]
        if len(alike) >= AT_ONCE:
            rows, few = 0, list[Part]()
            for part in alike:
                few.append(part)
                rows += part.rows
                if rows >= FULL_ROWS:
                    break
            yield few


def _size(rows: int) -> int:
    """The size class of a part, in powers of AT_ONCE."""
    size = 0
    while rows >= AT_ONCE:
        rows, size = rows // AT_ONCE, size + 1
    return size


def _join(folder: Path, parts: Sequence[Part], to: Path, scratch: Path) -> int:
    """Merge the rows of all parts, sorted by day so that queries for a few days read little; return their number."""
    schema = schema_of(parts[0].table)
    order = "day" if "day" in schema.names else "appended_at"
    config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": str(scratch / "joining"), "threads": 2}
    files = read_parquet(folder / part.path for part in parts)
    rows = 0
    with duckdb.connect(config=config) as connection, new_parquet(to, schema) as writer:
        found: pa.RecordBatchReader = connection.sql(f"from {files} order by {order}").to_arrow_reader(BATCH_ROWS)
        for batch in found:
            writer.write_batch(batch.cast(schema))
            rows += batch.num_rows
    if rows != (named := sum(part.rows for part in parts)):
        raise CannotBuild(
            f"parts of {folder / parts[0].table} have {rows} rows, and the last build names {named}: say --rebuild"
        )
    return rows
