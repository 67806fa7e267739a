"""Where a simulated log goes: an archive, a SQLite file, a topic. Each has to be empty before."""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import open_log
from muster.events.records import Record, StoredRecord
from muster.replay.archive.commits import Change, writing
from muster.replay.archive.files import DISK
from muster.replay.archive.manifest import Archived
from muster.replay.archive.segment import SCHEMA, Segment
from muster.replay.archive.writer import PartitionWriter
from muster.replay.fleet.simulation.fleet import Fleet
from muster.replay.fleet.simulation.spool import spooled

ARCHIVE: Final = "archive:"
Watch = Callable[[int], None]
"""Is told of records that were written."""


def to_archive(fleet: Fleet, spool: Path, root: Path, watch: Watch) -> None:
    """Write segments and their manifests. Raises ArchiveBusy, LogMismatch, LogUnavailable."""
    log = Archived(identity=fleet.identity, location=fleet.identity, partitions=fleet.partitions)
    with writing(root, disk=DISK, now_ms=fleet.span.ends_ms, make=True) as writer:
        state = writer.begin(log)
        if any(state.next_offset(partition) for partition in range(fleet.partitions)):
            raise LogMismatch(f"the archive {root} has records already: a simulation goes into an empty one")
        for partition in range(fleet.partitions):
            segments: list[Segment] = []
            with PartitionWriter(
                root, partition, start=0, day=None, now_ms=fleet.span.ends_ms, disk=DISK
            ) as partition_writer:
                for batch in _columns(spool, partition):
                    segments += partition_writer.add(batch)
                    watch(batch.num_rows)
                segments += partition_writer.finish()
            if segments:
                writer.commit(Change(action="archive", added=segments))


def _columns(spool: Path, partition: int) -> Iterator[pa.RecordBatch]:
    offset = 0
    for batch in spooled(spool, partition):
        rows = batch.num_rows
        nothing = pa.array([[]] * rows, SCHEMA.field("headers").type)
        columns = {
            "partition": pa.array([partition] * rows, pa.int32()),
            "offset": pa.array(range(offset, offset + rows), pa.int64()),
            "timestamp_ms": batch.column("at_ms"),
            "key": batch.column("key"),
            "headers": nothing,
            "value": batch.column("value"),
            "producer_id": pa.nulls(rows, pa.int64()),
            "transactional": pa.nulls(rows, pa.bool_()),
        }
        yield pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
        offset += rows


async def to_sqlite(fleet: Fleet, spool: Path, path: Path, watch: Watch) -> None:
    """Make the file, with the times of the simulation. Raises LogError."""
    if path.exists():  # noqa: ASYNC240 -- nothing else is done meanwhile
        raise LogMismatch(f"{path} is there already: a simulation goes into a new file")
    log = SqliteEventLog(path, partitions=fleet.partitions)
    await log.open()
    try:
        for partition in range(fleet.partitions):
            offset = 0
            for rows in _rows(spool, partition):
                records = [StoredRecord(partition, offset + n, *row) for n, row in enumerate(rows)]
                await log.restore(records)
                offset += len(records)
                watch(len(records))
    finally:
        await log.close()


async def to_topic(fleet: Fleet, spool: Path, url: str, security: KafkaSecurity, watch: Watch) -> None:
    """Append to a topic as its owner, a millisecond of the simulation at a time. Raises LogError."""
    now_ms = fleet.span.began_ms
    log = open_log(url, partitions=fleet.partitions, security=security, wall_ms=lambda: now_ms)
    await log.open()
    try:
        for partition in range(fleet.partitions):
            if await log.has_owners_record(partition):
                raise LogMismatch(f"{log.location} has events already: a simulation goes into an empty topic")
        for partition in range(fleet.partitions):
            writer = await log.claim(partition)
            for rows in _rows(spool, partition):
                for now_ms, at_once in groupby(rows, key=itemgetter(0)):  # noqa: B007 -- the log's clock
                    records = tuple(Record(key, value) for _, key, value in at_once)
                    (refused,) = await writer.append([records])
                    if refused is not None:
                        raise LogMismatch(f"{log.location} takes no {refused.size_bytes} bytes at once")
                watch(len(rows))
    finally:
        await log.close()


def _rows(spool: Path, partition: int) -> Iterator[list[tuple[int, bytes, bytes | None]]]:
    for batch in spooled(spool, partition):
        yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
