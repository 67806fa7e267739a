"""Check that an archive is complete and unaltered, and optionally that it has everything that the topic has.

    the chain      each manifest has the SHA-256 of the one before it
    the files      each segment exists, with the SHA-256 and the records in its manifest
    the offsets    the segments of a partition follow each other; offsets that are missing between their records were no
                   longer in the topic when the archiver read it; they are reported
    the numbers    the sequence numbers of each group, see sequences.py
    the topic      if a log is given: each of its records is in the archive, byte for byte

Read-only; nothing is repaired.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from muster.events.log.base import EventLog, LogDamaged, LogMismatch
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.records import RawRecord
from muster.replay.archive import files
from muster.replay.archive import manifest as manifests
from muster.replay.archive.deleted import deletion_text
from muster.replay.archive.digest import record_bytes
from muster.replay.archive.files import ArchiveBusy
from muster.replay.archive.local import archived_log, raw_chunks
from muster.replay.archive.log import ArchiveLog, marks_of, stored_records
from muster.replay.archive.manifest import State
from muster.replay.archive.segment import SCHEMA, Segment, read_batches
from muster.replay.archive.sequences import MissingOffsets, Sequences
from muster.replay.progress import Watch

HOLES_MAX: Final = 100_000
"""How many holes of a partition are kept; further ones are merged."""
NAMED_MAX: Final = 20
_COLUMNS: Final = ("offset", "key", "value")


class OfPartition(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one partition.

    `holes`: the longest ranges of offsets that were no longer in the topic, at most NAMED_MAX; `missing`: the number of
    offsets in all of them. `events_compacted`: the groups' events among them, by their sequence numbers. Deleted events
    are counted separately, since compaction would have left the last record of each key.
    """

    partition: int
    next_offset: int
    expired_to: int
    records: int
    holes: tuple[tuple[int, int], ...]
    missing: int
    events_compacted: int
    deleted: int
    events_deleted: int
    unreadable: int


class VerifiedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `damage` is empty if no problem was found; `compared`: how many of the topic's records were
    compared.
    """

    archive: str
    log: str
    identity: str
    manifests: int
    segments: int
    records: int
    bytes: int
    partitions: tuple[OfPartition, ...]
    damage: tuple[str, ...]
    compared: int | None


async def verify(root: Path, log: EventLog | None, *, watch: Watch) -> VerifiedArchive:
    """Verify the archive, and compare it with the log if an open one is given. Raises LogError."""
    damage = ArchiveDamage()
    state = _chain(root, damage)
    for contradiction in state.contradictions():
        damage.note("offsets", contradiction)
    if state.deleted:
        damage.note("deleted", deletion_text(state.log.location, state.deleted))
    total, done = sum(segment.bytes for segment in state.segments.values()), 0
    parts = []
    for partition in range(state.log.partitions):
        check = _Partition(root, state, partition, damage)
        for size in check.run():
            done += size
            watch(done, total)
        parts.append(check.answer())
    compared = None if log is None else await _compare(root, state, log, damage, watch)
    return VerifiedArchive(
        archive=str(root),
        log=state.log.location,
        identity=state.log.identity,
        manifests=len(manifests.numbers(root)),
        segments=len(state.segments),
        records=sum(segment.records for segment in state.segments.values()),
        bytes=total,
        partitions=tuple(parts),
        damage=tuple(damage.said()),
        compared=compared,
    )


class ArchiveDamage:
    """All problems found, at most NAMED_MAX of each kind, and the number of the others."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def note(self, kind: str, finding: str, times: int = 1) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + times
        if len(self._found.setdefault(kind, [])) < NAMED_MAX:
            self._found[kind].append(finding)

    def said(self) -> Iterator[str]:
        """Return the problems, one sentence each."""
        for kind, found in self._found.items():
            yield from found
            if self._counts[kind] > len(found):
                yield f"{kind}: {self._counts[kind] - len(found)} more"


def _chain(root: Path, damage: ArchiveDamage) -> State:
    """Follow the chain through all existing manifests. Raises LogError if there is nothing to start from."""
    state = manifests.opened(root)
    before: str | None = None
    last = None
    for number in manifests.numbers(root):
        try:
            manifest, encoded = manifests.read(root, number)
        except FileNotFoundError as error:
            if number in manifests.numbers(root):
                raise LogDamaged(f"{error.filename} leads nowhere. Restore it from a copy of the archive") from error
            raise _changed(root) from None
        if last is not None and number != last + 1:
            damage.note("manifests", f"{manifests.path_of(root, last + 1)} is missing")
        elif before is not None and manifest.previous != before:
            damage.note("manifests", manifests.broken_chain(root, number))
        before, last = manifests.sha256_of(encoded), number
    return state


def _changed(root: Path) -> ArchiveBusy:
    return ArchiveBusy(f"{root} was compacted, or lost days to expire, while it was verified: verify it again")


class _Partition:
    """Checks one partition."""

    def __init__(self, root: Path, state: State, partition: int, damage: ArchiveDamage) -> None:
        self._root, self._state, self._partition, self._damage = root, state, partition, damage
        expired = state.expired.get(partition)
        self._expired_to = 0 if expired is None else expired.end
        self._holes: list[MissingOffsets] = []
        self._deletions = [
            MissingOffsets(each.start, each.end) for each in state.deleted if each.partition == partition
        ]
        self._missing = self._deleted = self._records = 0
        if self._expired_to:
            self._holes.append(MissingOffsets(0, self._expired_to))
        self._sequences = Sequences(partition, self._holes, self._deletions)
        self._marks = marks_of(state, partition)

    def run(self) -> Iterator[int]:
        """Run the check; yield the size in bytes of each segment after it was read."""
        for segment in self._state.of_partition(self._partition):
            if self._file(segment):
                self._segment(segment)
            yield segment.bytes
        numbers = self._sequences
        for finding in numbers.findings:
            self._damage.note("running numbers", finding, 0)
        if numbers.lost or numbers.repeated:
            said = f"partition {self._partition}: {numbers.lost} events are missing, {numbers.repeated} came again"
            self._damage.note("running numbers", said)

    def _file(self, segment: Segment) -> bool:
        """Return whether the file is the one in its manifest."""
        path = self._root / segment.path
        try:
            sha256 = files.sha256_of(path)
        except FileNotFoundError:
            if segment.path not in manifests.opened(self._root).segments:
                raise _changed(self._root) from None
            self._damage.note("files", f"{path} is missing: the offsets {segment.start} to {segment.end}")
            return False
        except OSError as error:
            self._damage.note("files", f"{path} cannot be read: {error.strerror}")
            return False
        if sha256 != segment.sha256:
            self._damage.note("files", f"{path} was altered: its SHA-256 is {sha256}, and was {segment.sha256}")
            return False
        return True

    def _segment(self, segment: Segment) -> None:
        """Check the records' offsets and the groups' sequence numbers."""
        position, count = segment.start, 0
        try:
            path, columns = self._root / segment.path, _COLUMNS if self._marks is None else SCHEMA.names
            for batch in read_batches(path, segment, rows=CHUNK_RECORDS_MAX, columns=columns):
                for offset in batch.column("offset").to_pylist():
                    if offset > position:
                        self._hole(position, offset)
                    elif offset < position:
                        self._damage.note("offsets", f"{segment.path}: offset {offset} comes too late")
                    position = offset + 1
                count += batch.num_rows
                self._numbers(batch)
        except (OSError, LogDamaged) as error:
            self._damage.note("files", str(error))
        self._records += count
        if count != segment.records or position != segment.end:
            said = (
                f"{segment.path} has {count} records up to {position}, its manifest {segment.records} to {segment.end}"
            )
            self._damage.note("files", said)

    def _numbers(self, batch: pa.RecordBatch) -> None:
        """Check the groups' sequence numbers. Tombstones and foreign records have none."""
        if self._marks is None:
            batch = batch.filter(pc.is_valid(batch.column("value")))
            for offset, key, value in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
                self._sequences.take(offset, key or b"", value)
            return
        for record in stored_records(batch, self._marks):
            if record.value is not None:
                self._sequences.take(record.offset, record.key, record.value)

    def _hole(self, start: int, end: int) -> None:
        """Note missing offsets, and count those among them that were deleted separately."""
        for each in self._deletions:
            if each.start < end and start < each.end:
                self._compacted(start, each.start)
                self._deleted += min(end, each.end) - max(start, each.start)
                start = min(end, each.end)
        self._compacted(start, end)

    def _compacted(self, start: int, end: int) -> None:
        if start >= end:
            return
        self._missing += end - start
        if len(self._holes) >= HOLES_MAX:
            start = self._holes.pop().start
        self._holes.append(MissingOffsets(start, end))

    def answer(self) -> OfPartition:
        end = self._state.next_offset(self._partition)
        own = [hole for hole in self._holes if hole.start >= self._expired_to]
        longest = sorted(own, key=lambda hole: hole.start - hole.end)[:NAMED_MAX]
        return OfPartition(
            partition=self._partition,
            next_offset=end,
            expired_to=self._expired_to,
            records=self._records,
            holes=tuple(sorted((hole.start, hole.end) for hole in longest)),
            missing=self._missing,
            events_compacted=self._sequences.compacted,
            deleted=self._deleted + sum(max(0, each.end - max(each.start, end)) for each in self._deletions),
            events_deleted=self._sequences.deleted,
            unreadable=self._sequences.unreadable,
        )


async def _compare(root: Path, state: State, log: EventLog, damage: ArchiveDamage, watch: Watch) -> int:
    """Look up each record of the log in the archive, up to the archive's end; return the number of records."""
    ours, theirs = state.log, archived_log(log)
    if (ours.identity, ours.partitions) != (theirs.identity, theirs.partitions):
        raise LogMismatch(
            f"{root} is the archive of another log: of {ours.location} ({ours.identity}), and {theirs.location} is"
            f" {theirs.identity}"
        )
    archive = ArchiveLog(root)
    archive.use(state)
    compared, total = 0, sum(state.next_offsets.values())
    for partition in range(ours.partitions):
        end = state.next_offset(partition)
        stop = await log.end_offset(partition)
        if stop < end:
            damage.note("topic", f"partition {partition}: {theirs.location} ends at {stop}, the archive at {end}")
        expired = state.expired.get(partition)
        start = 0 if expired is None else expired.end
        copies = _records(archive, partition, start, end)
        copy = await anext(copies, None)
        async for record in _records(log, partition, start, min(end, stop)):
            while copy is not None and copy.offset < record.offset:
                copy = await anext(copies, None)
            if copy is None or copy.offset > record.offset:
                damage.note("topic", f"partition {partition}: offset {record.offset} is in the topic, and not here")
            elif record_bytes(copy) != record_bytes(record):
                damage.note("topic", f"partition {partition}: offset {record.offset} is another record in the topic")
            compared += 1
            if compared % 10_000 == 0:
                watch(compared, total)
    return compared


async def _records(log: EventLog, partition: int, start: int, end: int) -> AsyncIterator[RawRecord]:
    async for chunk in raw_chunks(log, partition, start=start, end=end):
        for record in chunk:
            yield record
