"""A log copied into Parquet, undecoded, so that Spark can read it in parallel; and the little that all groups share.

One file for each partition and chunk. Only keys are looked at: a record goes to the group that its key names.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from muster.events.keys import EntityKind, decode_key
from muster.events.log.base import EventLog
from muster.events.records import StoredRecord, UndecodableKey
from muster.events.strangers import Strangers
from muster.replay.fleet.fold import partition_reads
from muster.replay.history.items import Read

ROWS_PER_FILE = 250_000


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """The staged copy: its place, the number of records, those of whole partitions, and strangers' records."""

    directory: Path
    records: int
    shared: dict[int, list[Read]]
    strangers: Strangers


async def stage(log: EventLog, directory: Path, *, watch: Callable[[int, int], None]) -> Staged:
    """Copy the log as far as it reached at the call. Raises what the log raises."""
    ends = [await log.end_offset(partition) for partition in range(log.partitions)]
    total, done, count = sum(ends), 0, 0
    shared: dict[int, list[Read]] = {}
    strangers = Strangers()
    for partition, end in enumerate(ends):
        of_partition: list[StoredRecord] = []
        rows: list[StoredRecord] = []
        groups: list[str] = []
        async for chunk in log.read(partition, end=end):
            for record in strangers.without(chunk):
                group_id = _group_of(record)
                if group_id is None:
                    of_partition.append(record)
                elif record.value is not None:
                    rows.append(record)
                    groups.append(group_id)
            if len(rows) >= ROWS_PER_FILE:
                count += _write(directory / f"{partition}-{rows[0].offset}.parquet", groups, rows)
                rows, groups = [], []
            watch(done + (chunk[-1].offset + 1 if chunk else 0), total)
        if rows:
            count += _write(directory / f"{partition}-{rows[0].offset}.parquet", groups, rows)
        shared[partition] = partition_reads(of_partition)
        done += end
    return Staged(directory=directory, records=count, shared=shared, strangers=strangers)


def _group_of(record: StoredRecord) -> str | None:
    """The group that the key names; None for what concerns the partition, or cannot be read."""
    try:
        key = decode_key(record.key)
    except UndecodableKey:
        return None
    return None if key.kind is EntityKind.PARTITION else key.group_id


def _write(path: Path, groups: list[str], rows: list[StoredRecord]) -> int:
    import pyarrow as pa  # noqa: PLC0415 -- an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns: dict[str, Any] = {
        "group_id": pa.array(groups, pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp_ms": pa.array([row.timestamp_ms for row in rows], pa.int64()),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
    }
    pq.write_table(pa.table(columns), path)
    return len(rows)
