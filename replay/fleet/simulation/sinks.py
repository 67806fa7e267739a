"""The targets of a simulated log: an archive, a SQLite file, a topic. Each has to be empty.

Targets are checked before the simulation, which takes hours, so that an unusable one is refused immediately.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import EventLog, LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import open_log
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import Record, StoredRecord
from muster.replay.archive.commits import ArchiveWriter, Change, writing
from muster.replay.archive.files import DISK
from muster.replay.archive.manifest import Archived, load
from muster.replay.archive.segment import SCHEMA, Segment
from muster.replay.archive.writer import PartitionWriter
from muster.replay.fleet.simulation.fleet import Fleet
from muster.replay.fleet.simulation.spool import spooled
from muster.replay.text.times import DAY_MS

ARCHIVE: Final = "archive:"
SQLITE: Final = "sqlite:///"

KEPT_MS: Final = 36_500 * DAY_MS
"""The audit window of a simulated topic: its days may be long past, so compaction would remove them immediately."""

Wrote = Callable[[int], None]
"""Called with the number of records that were written."""


class Sink(Protocol):
    """A log that receives a simulation."""

    def check(self) -> None:
        """Check that it can be written and is empty. Raises LogError, OSError."""
        ...

    def write(self, spool: Path, wrote: Wrote) -> None:
        """Write the spooled records. Raises LogError, OSError."""
        ...


def sink_of(to: str, fleet: Fleet, security: KafkaSecurity) -> Sink:
    """The sink that `--to` names. Raises LogMismatch."""
    if to.startswith(ARCHIVE):
        return ArchiveSink(fleet=fleet, root=Path(unquote(to.removeprefix(ARCHIVE))))
    if to.startswith(SQLITE):
        return FileSink(fleet=fleet, path=Path(unquote(to.removeprefix(SQLITE))))
    if to.startswith("memory:"):
        raise LogMismatch(f"{to} is gone with this process: a simulation goes into an archive, a file or a topic")
    return TopicSink(fleet=fleet, url=to, security=security)


class ArchiveSink(msgspec.Struct, frozen=True, kw_only=True):
    """An archive of a log that never existed. Raises ArchiveBusy, LogMismatch, LogUnavailable."""

    fleet: Fleet
    root: Path

    def check(self) -> None:
        """See Sink. Creates the folder."""
        with writing(self.root, disk=DISK, make=True) as writer:
            if load(self.root) is not None:
                self._begin(writer)

    def write(self, spool: Path, wrote: Wrote) -> None:
        """Write segments and their manifests."""
        ends_ms = self.fleet.span.ends_ms
        with writing(self.root, disk=DISK, now_ms=ends_ms, make=True) as writer:
            self._begin(writer)
            for partition in range(self.fleet.partitions):
                segments: list[Segment] = []
                with PartitionWriter(
                    self.root, partition, start=0, day=None, now_ms=ends_ms, disk=DISK
                ) as partition_writer:
                    for batch in _columns(spool, partition):
                        segments += partition_writer.add(batch)
                        wrote(batch.num_rows)
                    segments += partition_writer.finish()
                if segments:
                    writer.commit(Change(action="archive", added=segments))

    def _begin(self, writer: ArchiveWriter) -> None:
        fleet = self.fleet
        state = writer.begin(Archived(identity=fleet.identity, location=fleet.identity, partitions=fleet.partitions))
        if any(state.next_offset(partition) for partition in range(fleet.partitions)):
            raise LogMismatch(f"the archive {self.root} has records already: a simulation goes into an empty one")


class FileSink(msgspec.Struct, frozen=True, kw_only=True):
    """A new SQLite file."""

    fleet: Fleet
    path: Path

    def check(self) -> None:
        """See Sink."""
        if self.path.exists():
            raise LogMismatch(f"{self.path} is there already: a simulation goes into a new file")
        with TemporaryFile(dir=self.path.parent):
            pass

    def write(self, spool: Path, wrote: Wrote) -> None:
        """Create the file; its records carry simulated timestamps."""
        self.check()
        asyncio.run(self._write(spool, wrote))

    async def _write(self, spool: Path, wrote: Wrote) -> None:
        log = SqliteEventLog(self.path, partitions=self.fleet.partitions)
        await log.open()
        try:
            for partition in range(self.fleet.partitions):
                offset = 0
                for rows in _rows(spool, partition):
                    records = [StoredRecord(partition, offset + n, *row) for n, row in enumerate(rows)]
                    await log.restore(records)
                    offset += len(records)
                    wrote(len(records))
        finally:
            await log.close()


class TopicSink(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, created as an owner creates its log's, except that records keep their times and are kept for 100
    years."""

    fleet: Fleet
    url: str
    security: KafkaSecurity

    def check(self) -> None:
        """See Sink. Creates the topic."""
        if self.fleet.span.ends_ms > wall_clock_ms():
            day = datetime.fromtimestamp(self.fleet.span.ends_ms / 1000, UTC)
            raise LogMismatch(
                f"the simulation ends on {day:%Y-%m-%d}, and brokers refuse records from the future: say an earlier"
                " --begin, or fewer --days"
            )
        asyncio.run(self._check())

    def write(self, spool: Path, wrote: Wrote) -> None:
        """Append as the topic's owner, one millisecond of simulated time after another."""
        asyncio.run(self._write(spool, wrote))

    async def _check(self) -> None:
        log = self._log(wall_clock_ms)
        await log.open()
        try:
            await self._check_empty(log)
        finally:
            await log.close()

    async def _write(self, spool: Path, wrote: Wrote) -> None:
        now_ms = self.fleet.span.began_ms
        log = self._log(lambda: now_ms)
        await log.open()
        try:
            await self._check_empty(log)
            for partition in range(self.fleet.partitions):
                writer = await log.claim(partition)
                for rows in _rows(spool, partition):
                    for now_ms, at_once in groupby(rows, key=itemgetter(0)):  # noqa: B007 -- the log's clock
                        records = tuple(Record(key, value) for _, key, value in at_once)
                        (refused,) = await writer.append([records])
                        if refused is not None:
                            raise LogMismatch(f"{log.location} takes no {refused.size_bytes} bytes at once")
                    wrote(len(rows))
        finally:
            await log.close()

    def _log(self, wall_ms: Callable[[], int]) -> EventLog:
        return open_log(
            self.url,
            partitions=self.fleet.partitions,
            audit_window_ms=KEPT_MS,
            security=self.security,
            wall_ms=wall_ms,
        )

    async def _check_empty(self, log: EventLog) -> None:
        for partition in range(log.partitions):
            if await log.has_owners_record(partition):
                raise LogMismatch(f"{log.location} has events already: a simulation goes into an empty topic")


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


def _rows(spool: Path, partition: int) -> Iterator[list[tuple[int, bytes, bytes | None]]]:
    for batch in spooled(spool, partition):
        yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
