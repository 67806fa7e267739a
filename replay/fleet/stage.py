"""A log's records copied into Parquet, undecoded, for an engine to sort; and the little that all groups share.

The columns are those of an archive's segments, and the group that the key names. Only keys are looked at. What comes
from a log is read from the offsets on that the build before it reached.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.events.keys import EntityKind, decode_key
from muster.events.log.base import EventLog
from muster.events.records import StoredRecord, UndecodableKey
from muster.events.strangers import Strangers
from muster.replay.history.items import Read
from muster.replay.logs.sources import Reading, Watch, read_record

ROWS_MAX: Final = 16_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""The records that are kept before they are written."""

STATE_OFFSET: Final = -1
"""The offset under which a group's state stands, before all of its records."""

SCHEMA: Final = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """The staged copy: its files, what it holds, and how far it goes. `shared`: what concerns whole partitions."""

    files: tuple[Path, ...]
    records: int
    value_bytes: int
    shared: dict[int, list[Read]]
    until: dict[int, int]
    strangers: Strangers
    damage: tuple[str, ...]


async def stage(
    log: EventLog, folder: Path, *, since: Mapping[int, int], watch: Watch | Callable[[int, int], None]
) -> Staged:
    """Copy the log from the offsets `since` on, as far as it reached at the call. Raises what the log raises."""
    reading = Reading(log=log, strangers=Strangers())
    ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
    total = sum(end - since.get(partition, 0) for partition, end in ends.items())
    staging = _Staging(folder)
    shared: dict[int, list[Read]] = {}
    done = 0
    for partition, end in ends.items():
        start = since.get(partition, 0)
        of_partition = shared.setdefault(partition, [])
        async for chunk in reading.chunks([partition], start=start, end=end):
            for record in chunk:
                group_id = _group_of(record)
                if group_id is not None:
                    staging.add(group_id, record)
                elif (found := read_record(record)) is not None:
                    of_partition.append(found[1])
            if chunk:
                watch(done + chunk[-1].offset + 1 - start, total)
        done += max(0, end - start)
    staging.flush()
    return Staged(
        files=tuple(staging.files),
        records=staging.records,
        value_bytes=staging.bytes,
        shared=shared,
        until=ends,
        strangers=reading.strangers,
        damage=tuple(reading.damage),
    )


def _group_of(record: StoredRecord) -> str | None:
    """The group that the key names; None for what concerns the partition, or cannot be read."""
    try:
        key = decode_key(record.key)
    except UndecodableKey:
        return None
    return None if key.kind is EntityKind.PARTITION else key.group_id


class _Staging:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[tuple[str, StoredRecord]] = []
        self._kept_bytes = 0
        self.files: list[Path] = []
        self.records = 0
        self.bytes = 0

    def add(self, group_id: str, record: StoredRecord) -> None:
        """Take in a record. A tombstone says nothing that the event before it does not."""
        if record.value is None:
            return
        self._rows.append((group_id, record))
        self._kept_bytes += len(record.value)
        if len(self._rows) >= ROWS_MAX or self._kept_bytes >= BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        path = self._folder / f"staged-{len(self.files):06d}.parquet"
        groups, records = zip(*self._rows, strict=True)
        columns: list[Any] = [
            groups,
            [record.partition for record in records],
            [record.offset for record in records],
            [record.timestamp_ms for record in records],
            [record.key for record in records],
            [record.value for record in records],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), path, compression="lz4")
        self.files.append(path)
        self.records += len(self._rows)
        self.bytes += self._kept_bytes
        self._rows, self._kept_bytes = [], 0
