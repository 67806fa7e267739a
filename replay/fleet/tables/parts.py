"""Rows -> Parquet files, in bounded memory: the parts of which tables consist.

A part is written under a name that nothing else has, and is in a table when a build names it (`builds.py`); what no
build names is a leftover of one that did not end.
"""

from enum import StrEnum, unique
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.fleet.tables.values import Row

ROWS_MAX: Final = 5_000
"""The rows of a table that are kept before they are written, as a row group."""

STATE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The same of what is carried over: its rows differ in size by more than a thousand times."""

COMPRESSION: Final = "zstd"

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
    """The later fate of a part's rows."""

    CLOSED = "closed"
    """They never change."""
    OPEN = "open"
    """They are what the log tells so far: the next build makes them anew."""
    DAY = "day"
    """They are of one day, and made anew when that day is touched."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table. `path` is relative to the folder of the tables; `day`: of the role DAY, counted from 1970."""

    table: str
    role: Role
    path: str
    rows: int
    day: int | None = None


class PartWriter:
    """Writes parts of all tables into a folder; `build` is the number of the build that they are for."""

    def __init__(self, folder: Path, build: int) -> None:
        self._folder = folder
        self._name = f"{build:06d}-{uuid4().hex}"
        self._files: dict[tuple[str, Role], _File] = {}

    def add(self, table: str, row: Row, role: Role) -> None:
        """Take in a row."""
        file = self._files.get((table, role))
        if file is None:
            path = f"{table}/{self._name}-{role}.parquet"
            file = self._files[table, role] = _File(self._folder / path, path, schema_of(table))
        file.add(row)

    def add_state(self, group_id: str, partition: int, state: bytes) -> None:
        """Take in what is carried over of a group."""
        self.add(STATES, (group_id, partition, state), Role.OPEN)
        file = self._files[STATES, Role.OPEN]
        file.kept_bytes += len(state)
        if file.kept_bytes >= STATE_BYTES_MAX:
            file.flush()

    def close(self) -> list[Part]:
        """Write what is left; returns the parts, whole and on disk."""
        return [
            Part(table=table, role=role, path=file.path, rows=file.close())
            for (table, role), file in self._files.items()
        ]


class _File:
    def __init__(self, target: Path, path: str, schema: pa.Schema) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.kept_bytes = 0
        self._schema = schema
        self._kept: list[Row] = []
        self._rows = 0
        self._writer: Any = pq.ParquetWriter(target, schema, compression=COMPRESSION)

    def add(self, row: Row) -> None:
        self._kept.append(row)
        if len(self._kept) >= ROWS_MAX:
            self.flush()

    def flush(self) -> None:
        if self._kept:
            self._writer.write_batch(batch_of(self._kept, self._schema))
            self._rows += len(self._kept)
            self._kept, self.kept_bytes = [], 0

    def close(self) -> int:
        self.flush()
        self._writer.close()
        return self._rows


def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of a table's files."""
    return STATES_SCHEMA if table == STATES else TABLES[table].schema


def batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as a batch. Raises ValueError for a row that has other columns."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
