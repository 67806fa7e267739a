"""Writes rows to Parquet files in bounded memory: the parts that tables consist of.

A part has a unique name, and belongs to a table once a build names it (`builds.py`); a part that no build names is a
leftover of a build that did not finish.
"""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from enum import StrEnum, unique
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import msgspec
import pyarrow as pa

from muster.replay.fleet.disk_space import new_parquet
from muster.replay.fleet.tables.rows import Row
from muster.replay.fleet.tables.schemas import TABLES

ROWS_MAX: Final = 5_000
"""How many rows of a table are buffered before they are written as a row group."""

STATE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The same limit for carried-over states, in bytes, since their sizes differ by a factor of over a thousand; writing
takes five times as much memory.
"""

_PART: Final = re.compile(r"\d{6,}-[0-9a-f]{32}-[a-z0-9-]+\.parquet")

STATES: Final = "_open"
STATES_SCHEMA: Final = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("state", pa.binary(), nullable=False),
    ]
)
"""A group's fold, carried over to the next build."""


@unique
class Role(StrEnum):
    """How a part's rows may change in later builds."""

    CLOSED = "closed"
    """Rows that never change."""
    OPEN = "open"
    """Rows of items that are still open at the end of the log: the next build replaces them."""
    DAY = "day"
    """Rows of one day, rebuilt when that day is touched."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table. `path` is relative to the folder of the tables; `day`: for the role DAY, counted from 1970."""

    table: str
    role: Role
    path: str
    rows: int
    day: int | None = None


class PartWriter:
    """Writes parts of all tables into a folder, for the build with the number `build`.

    On exit the parts are complete, on disk and listed in `parts`; after an error they are removed.
    """

    def __init__(self, folder: Path, build: int) -> None:
        self._folder = folder
        self._build = build
        self._files: dict[tuple[str, Role], _File] = {}
        self._open = ExitStack()
        self.parts: list[Part] = []

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._open.__exit__(kind, error, trace)
            return
        with self._open:
            for file in self._files.values():
                file.flush()
        self.parts = [
            Part(table=table, role=role, path=file.path, rows=file.rows) for (table, role), file in self._files.items()
        ]

    def add(self, table: str, row: Row, role: Role) -> None:
        """Add a row."""
        file = self._files.get((table, role))
        if file is None:
            path = part_path(table, self._build, role)
            schema = schema_of(table)
            (self._folder / table).mkdir(parents=True, exist_ok=True)
            writer = self._open.enter_context(new_parquet(self._folder / path, schema))
            file = self._files[table, role] = _File(path, schema, writer)
        file.add(row)

    def add_state(self, group_id: str, partition: int, state: bytes) -> None:
        """Add the carried-over state of a group."""
        self.add(STATES, (group_id, partition, state), Role.OPEN)
        file = self._files[STATES, Role.OPEN]
        file.kept_bytes += len(state)
        if file.kept_bytes >= STATE_BYTES_MAX:
            file.flush()


def part_path(table: str, build: int, kind: str) -> str:
    """Return a unique path for a new part of a table, relative to the folder of the tables."""
    return f"{table}/{build:06d}-{uuid4().hex}-{kind}.parquet"


def is_part(name: str) -> bool:
    """Return whether a file name is that of a part."""
    return _PART.fullmatch(name) is not None


def read_parquet(paths: Iterable[Path]) -> str:
    """A DuckDB expression that reads these files. Paths are taken literally, not as glob patterns or Hive
    partitions.
    """
    quoted = ("'" + escape(str(path)).replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{', '.join(quoted)}], hive_partitioning = false)"


class _File:
    def __init__(self, path: str, schema: pa.Schema, writer: Any) -> None:  # noqa: ANN401 -- pyarrow's
        self.path = path
        self.rows = 0
        self.kept_bytes = 0
        self._schema = schema
        self._kept: list[Row] = []
        self._writer = writer

    def add(self, row: Row) -> None:
        self._kept.append(row)
        if len(self._kept) >= ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        if self._kept:
            self._writer.write_batch(batch_of(self._kept, self._schema))
            self.rows += len(self._kept)
            self._kept, self.kept_bytes = [], 0


def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of a table's files."""
    return STATES_SCHEMA if table == STATES else TABLES[table].schema


def batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to a batch. Raises ValueError for a row with other columns."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
