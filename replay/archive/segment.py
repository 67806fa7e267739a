"""Segments: Parquet files with the records of one partition and one day (UTC), in offset order.

    day=2026-11-21/partition-00003/00000000000000012345-0d9f6b1f03c1.parquet

The number is the offset of the first record; the rest is random, so that two writers never create the same file, and
removing a file never affects another writer. Records are kept byte for byte as in the log; nothing is decoded.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.events.log.base import LogDamaged
from muster.events.records import RawRecord
from muster.replay.archive.files import Disk, NewFile
from muster.replay.archive.without_pandas import leave_pandas_out

leave_pandas_out()

SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field(
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])),
            nullable=False,
        ),
        pa.field("value", pa.binary()),
        pa.field("producer_id", pa.int64()),
        pa.field("transactional", pa.bool_()),
    ]
)
ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""The limits of a row group, which a writer holds in memory; a single record may be larger."""
_ROW_GROUP_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The largest row group that a reader accepts; the largest possible record makes one of about 300 MB."""

PATH: Final = r"^day=(\d{4}-\d{2}-\d{2})/partition-(\d{5,9})/(\d{20})-[0-9a-f]{12}\.parquet$"
"""The path of a segment in its archive. Nothing else is ever removed or read there."""

_PATH: Final = re.compile(PATH)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment, as in a manifest. `path` is relative to the archive.

    It covers the offsets from `start` up to `end` (exclusive): those in between without a record were no longer in the
    log when it was read. `first` and `last` are the offsets of its own records.
    """

    path: str
    day: str
    partition: int
    start: int
    end: int
    first: int
    last: int
    records: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        """Check the values of a manifest. Raises ValueError."""
        named = _PATH.fullmatch(self.path)
        if named is None or (named[1], int(named[2]), int(named[3])) != (self.day, self.partition, self.first):
            place = f"partition {self.partition} and day {self.day} that begins at {self.first}"
            raise ValueError(f"{self.path!r} is no path of a segment of {place}")
        is_range = 0 <= self.start <= self.first <= self.last < self.end
        if not is_range or not 0 < self.records <= self.last - self.first + 1 or self.bytes <= 0:
            said = f"{self.records} records ({self.bytes} bytes) from {self.first} to {self.last}"
            raise ValueError(f"{self.path!r} has {said}, for the offsets {self.start} to {self.end}")

    @property
    def ranges(self) -> Sequence[tuple[str, range]]:
        """The ranges that the values of these columns must be in."""
        return ("partition", range(self.partition, self.partition + 1)), ("offset", range(self.first, self.last + 1))


def is_path(path: str) -> bool:
    """Return whether a path in an archive is that of a segment, whether or not a manifest names it."""
    return _PATH.fullmatch(path) is not None


def day_text(day: int) -> str:
    """The name of a day; `day`: days since 1970."""
    return (_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d")


def day_number(day: str) -> int:
    """The days since 1970 of a named day. Raises ValueError."""
    return (datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH).days


def batch_of(records: Sequence[RawRecord]) -> pa.RecordBatch:
    """Convert records to columns."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.partition for r in records], pa.int32()),
            pa.array([r.offset for r in records], pa.int64()),
            pa.array([r.timestamp_ms for r in records], pa.int64()),
            pa.array([r.key for r in records], pa.binary()),
            _headers(records),
            pa.array([r.value for r in records], pa.binary()),
            pa.array([r.producer_id for r in records], pa.int64()),
            pa.array([r.transactional for r in records], pa.bool_()),
        ],
        schema=SCHEMA,
    )


def _headers(records: Sequence[RawRecord]) -> pa.ListArray:
    """Build the headers from flat columns: one dict per header would take most of the time."""
    offsets, names, values = [0], list[str](), list[bytes | None]()
    for record in records:
        for name, value in record.headers:
            names.append(name)
            values.append(value)
        offsets.append(len(names))
    kind = SCHEMA.field("headers").type
    entries = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(kind.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=kind)


def records_of(batch: pa.RecordBatch) -> list[RawRecord]:
    """Convert columns to records."""
    columns = [batch.column(name).to_pylist() for name in SCHEMA.names]
    return [
        RawRecord(
            partition, offset, at, key, value, tuple((h["key"], h["value"]) for h in headers), producer, transactional
        )
        for partition, offset, at, key, headers, value, producer, transactional in zip(*columns, strict=True)
    ]


class SegmentWriter:
    """Writes one segment."""

    def __init__(self, root: Path, partition: int, day: str, disk: Disk) -> None:
        self._root, self._partition, self._day = root, partition, day
        self._file = NewFile(root, disk)
        self._parquet = pq.ParquetWriter(
            self._file, SCHEMA, compression="zstd", use_dictionary=["partition", "key", "headers.list.element.key"]
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._first: int | None = None
        self._last = -1
        self._records = 0

    @property
    def bytes(self) -> int:
        """The current size, including data that is not compressed yet."""
        return self._file.bytes + self._waiting_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append records of the partition and the day, after the previous ones."""
        if not batch.num_rows:
            return
        offsets = batch.column("offset")
        self._first = offsets[0].as_py() if self._first is None else self._first
        self._last = offsets[-1].as_py()
        self._records += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._parquet.write_table(pa.Table.from_batches(self._waiting), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def finish(self, *, start: int, end: int) -> Segment:
        """Give the file its name, and set the offsets that it covers. It must have at least one record."""
        assert self._first is not None, "a segment has a record"
        self._write_waiting()
        self._parquet.close()
        name = f"{self._first:020d}-{self._file.path.name[:12]}.parquet"
        path = f"day={self._day}/partition-{self._partition:05d}/{name}"
        self._file.keep(self._root / path)
        return Segment(
            path=path,
            day=self._day,
            partition=self._partition,
            start=start,
            end=end,
            first=self._first,
            last=self._last,
            records=self._records,
            bytes=self._file.bytes,
            sha256=self._file.sha256,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Remove the file, unless it was finished."""
        self._file.discard()
        self._parquet.close()  # else it is closed when garbage-collected, and writes its footer then
        self._file.abandon()


def read_batches(
    path: Path,
    segment: Segment | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    rows: int = ROW_GROUP_ROWS,
    columns: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Read the records at offsets from `start` up to `end` (exclusive), in batches of at most `rows` rows.

    `columns`: the columns to read, including the offset; by default all. Raises LogDamaged for a file that cannot be
    read, or differs from the manifest's entry (`segment`) as far as its metadata shows; FileNotFoundError.
    """
    try:
        yield from _batches(path, segment, start=start, end=end, rows=rows, columns=list(columns) or SCHEMA.names)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise LogDamaged(f"{path} cannot be read: {error}; see fleet verify, and restore it from a copy") from error


def _batches(
    path: Path, segment: Segment | None, *, start: int, end: int | None, rows: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    size = path.stat().st_size
    if segment is not None and size != segment.bytes:
        raise _other(path, f"it has {size} bytes, and manifests say {segment.bytes}")
    with pq.ParquetFile(path, pre_buffer=False) as file:
        if segment is not None:
            _refuse_others(path, file, segment)
        groups = [n for n in range(file.num_row_groups) if _may_have(file, n, start, end)]
        if not groups:
            return
        for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=columns, use_threads=False):
            batch.validate(full=True)
            some = _between(batch, start, end)
            if some.num_rows:
                yield some


def _between(batch: pa.RecordBatch, start: int, end: int | None) -> pa.RecordBatch:
    """Select the rows at these offsets."""
    offsets = batch.column("offset")
    if offsets[0].as_py() >= start and (end is None or offsets[-1].as_py() < end):
        return batch
    found = offsets.to_pylist()
    first = bisect_left(found, start)
    return batch.slice(first, (len(found) if end is None else bisect_left(found, end)) - first)


def _refuse_others(path: Path, file: pq.ParquetFile, segment: Segment) -> None:
    """Raise LogDamaged for a file whose columns, records or sizes differ from the segment's."""
    if not file.schema_arrow.equals(SCHEMA):
        raise _other(path, f"its columns are {', '.join(f'{each.name} {each.type}' for each in file.schema_arrow)}")
    found = file.metadata
    if found.num_rows != segment.records:
        raise _other(path, f"it has {found.num_rows} records, and manifests say {segment.records}")
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        if group.num_rows > ROW_GROUP_ROWS or group.total_byte_size > _ROW_GROUP_BYTES_MAX:
            size = f"{group.num_rows} records, {group.total_byte_size} bytes"
            raise _other(path, f"row group {number} is too large for one: {size}")
        for column, wanted in segment.ranges:
            told = group.column(SCHEMA.get_field_index(column)).statistics
            if told is None or not told.has_min_max or told.min not in wanted or told.max not in wanted:
                span = "nothing" if told is None else f"{told.min} to {told.max}"
                raise _other(path, f"its {column} is {span}, and manifests say {wanted[0]} to {wanted[-1]}")


def _other(path: Path, why: str) -> LogDamaged:
    return LogDamaged(f"{path} is not the file that was archived: {why}. Restore it from a copy; see fleet verify")


def _may_have(file: pq.ParquetFile, group: int, start: int, end: int | None) -> bool:
    statistics = file.metadata.row_group(group).column(SCHEMA.get_field_index("offset")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.max >= start and (end is None or statistics.min < end))
