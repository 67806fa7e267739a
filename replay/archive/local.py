"""The archiver in this process: reads a log with its own reader, one partition after another, and commits segments.

It can be killed at any time; the next run continues after the last commit.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from muster.events.log.base import CutLog, EventLog, LogMismatch, OwnersMarks, RawLog
from muster.events.records import BrokenBatch, RawRecord
from muster.replay.archive.commits import ArchiveWriter, Change, writing
from muster.replay.archive.deleted import DeletedRecords, deleted_before, deletion_text
from muster.replay.archive.files import DISK, Disk
from muster.replay.archive.manifest import Archived, State
from muster.replay.archive.segment import Segment, batch_of
from muster.replay.archive.writer import SEGMENT_BYTES_MAX, PartitionWriter
from muster.replay.progress import Watch

COMMIT_BYTES: Final = 8 * SEGMENT_BYTES_MAX
COMMIT_SEGMENTS: Final = 1_000
"""How much is finished before each commit: a killed archiver has to repeat no more than this."""


class ArchivedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run: what it added, and how far the archive reaches (`next_offsets` by partition).

    `damage`: what may be missing from the log that was opened, what was deleted from it before this run could archive
    it, and the unreadable parts, at which archiving of their partitions stopped.
    """

    records: int
    segments: int
    bytes: int
    next_offsets: dict[int, int]
    damage: tuple[str, ...] = ()

    @classmethod
    def of(cls, added: Sequence[Segment], state: State, damage: Sequence[str] = ()) -> "ArchivedRun":
        """The result of a run that added these segments and left the archive in this state."""
        return cls(
            records=sum(each.records for each in added),
            segments=len(added),
            bytes=sum(each.bytes for each in added),
            next_offsets=dict(state.next_offsets),
            damage=tuple(damage),
        )


def archived_log(log: EventLog) -> Archived:
    """The log's entry in manifests."""
    return Archived(identity=log.identity, location=log.location, partitions=log.partitions)


async def ends_of(log: EventLog, state: State) -> dict[int, int]:
    """The ends of the partitions. Raises LogMismatch for one that ends before the archive does."""
    ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
    for partition, end in ends.items():
        if end < state.next_offset(partition):
            raise LogMismatch(
                f"partition {partition} of {log.location} ends at offset {end}, and was archived up to"
                f" {state.next_offset(partition)}: its log has lost records since. The archive was left as it is"
            )
    return ends


async def archive(
    log: EventLog,
    root: Path,
    *,
    watch: Watch,
    disk: Disk = DISK,
    now_ms: int | None = None,
    segment_bytes_max: int = SEGMENT_BYTES_MAX,
) -> ArchivedRun:
    """Archive what the archive does not have yet. `now_ms`: replaces the wall clock.

    At an unreadable part of the log only its partition stops. Raises the log's other errors, ArchiveBusy, LogMismatch,
    LogDamaged; LogUnavailable for a full disk, too.
    """
    with writing(root, disk=disk, now_ms=now_ms, make=True) as writer:
        state = writer.begin(archived_log(log))
        ends = await ends_of(log, state)
        run = _Run(log, writer, segment_bytes_max)
        total = sum(end - state.next_offset(partition) for partition, end in ends.items())
        done = 0
        for partition, end in ends.items():
            before = state.next_offset(partition)
            async for position in run.partition(partition, end):
                watch(done + position - before, total)
            done += end - before
        run.commit()
        return run.done()


class _Run:
    """One run over all partitions."""

    def __init__(self, log: EventLog, writer: ArchiveWriter, segment_bytes_max: int) -> None:
        self._log, self._writer, self._bytes_max = log, writer, segment_bytes_max
        self._warnings = tuple(log.warnings)
        self._days = last_days(writer.state)
        self._waiting: list[Segment] = []
        self._marks: dict[int, OwnersMarks] = {}
        self._added: list[Segment] = []
        # E.g. a file that may be an older copy: its records are still archived. A deleted beginning matters only if the
        # archive does not have it.
        deletion = log.deletion_warning if isinstance(log, CutLog) else None
        self._damage = [warning for warning in log.warnings if warning != deletion]
        self._deleted: list[DeletedRecords] = []

    async def partition(self, partition: int, end: int) -> AsyncIterator[int]:
        """Archive a partition up to an offset; yield the offsets reached."""
        state, writer = self._writer.state, self._writer
        start = state.next_offset(partition)
        if start >= end:
            return
        if isinstance(self._log, RawLog):
            self._marks[partition] = await self._log.owners_marks(partition)
        with PartitionWriter(
            writer.root,
            partition,
            start=start,
            day=self._days.get(partition),
            now_ms=writer.now_ms,
            disk=writer.disk,
            segment_bytes_max=self._bytes_max,
        ) as segments:
            async for chunk in self._whole_chunks(partition, start=start, end=end):
                for segment in segments.add(batch_of(chunk)):
                    self._take(segment)
                yield chunk[-1].offset + 1
            for segment in segments.finish():
                self._take(segment)

    async def _whole_chunks(self, partition: int, *, start: int, end: int) -> AsyncIterator[Sequence[RawRecord]]:
        """Read chunks up to the first unreadable part, which is noted: reading past it would leave a permanent hole."""
        position = start
        try:
            async for chunk in raw_chunks(self._log, partition, start=start, end=end):
                if self._is_damaged():
                    return
                await self._note_deleted(partition, position, chunk[0].offset)
                yield chunk
                position = chunk[-1].offset + 1
            if not self._is_damaged():
                await self._note_deleted(partition, position, end)
        except BrokenBatch as broken:
            self._note(f"{self._log.location}, {broken}")

    async def _note_deleted(self, partition: int, start: int, end: int) -> None:
        """Note deleted records between two chunks; within a chunk, which is from one fetch, there are none."""
        found = await deleted_before(self._log, partition, start, end, known=self._writer.state.deleted)
        if found is not None:
            self._deleted.append(found)

    def _is_damaged(self) -> bool:
        """Return whether the log has skipped damage since the last call."""
        found = [warning for warning in self._log.warnings if warning not in self._warnings]
        self._warnings = tuple(self._log.warnings)
        if found:
            self._note(found[0])
        return bool(found)

    def _note(self, damage: str) -> None:
        self._damage.append(f"{damage}; nothing behind it in its partition was archived")

    def _take(self, segment: Segment) -> None:
        self._waiting.append(segment)
        is_much = sum(each.bytes for each in self._waiting) >= COMMIT_BYTES
        if is_much or len(self._waiting) >= COMMIT_SEGMENTS:
            self.commit()

    def commit(self) -> None:
        """Commit what is finished."""
        if self._waiting or self._deleted:
            change = Change(action="archive", added=self._waiting, deleted=self._deleted, marks=self._marks)
            self._writer.commit(change)
            self._added += self._waiting
            if self._deleted:
                self._damage.append(deletion_text(self._log.location, self._deleted))
            self._waiting, self._deleted, self._marks = [], [], {}

    def done(self) -> ArchivedRun:
        return ArchivedRun.of(self._added, self._writer.state, self._damage)


def last_days(state: State) -> dict[int, str]:
    """The last day of each partition that has, or had, records."""
    days = {partition: expired.before for partition, expired in state.expired.items()}
    for segment in state.segments.values():
        days[segment.partition] = max(days.get(segment.partition, ""), segment.day)
    return days


async def raw_chunks(
    log: EventLog, partition: int, *, start: int, end: int | None
) -> AsyncIterator[Sequence[RawRecord]]:
    """Read the partition's records byte for byte, in non-empty chunks."""
    if isinstance(log, RawLog):
        async for raw in log.read_raw(partition, start=start, end=end):
            if raw:
                yield raw
        return
    async for chunk in log.read(partition, start=start, end=end):
        if chunk:
            yield [RawRecord(r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in chunk]
