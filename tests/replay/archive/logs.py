"""A log with headers that tests write record by record, and the contents of its archives."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster.events.log.base import EventLog, OwnersMarks
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import RawRecord
from muster.replay.archive.digest import digest_of
from muster.replay.archive.local import ArchivedRun, archive, raw_chunks
from muster.replay.archive.log import ArchiveLog
from tests.replay.archive.disks import CrashingDisk

DAY_MS = 86_400_000
NOON = 20_000 * DAY_MS + DAY_MS // 2
"""Noon of 2024-10-04 (UTC), the time in these tests."""
MARK = ("muster", b"4 home 7")


class RawMemoryLog(MemoryEventLog):
    """A log whose records have headers. `records`: by partition, as they are stored."""

    def __init__(self, partitions: int = 2, *, identity: str = "topic-1") -> None:
        super().__init__(MemoryStorage(partitions))
        self.records: list[list[RawRecord]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.begins = [0] * partitions
        self.named = identity
        self.found: tuple[str, ...] = ()
        """The warnings."""

    @property
    def warnings(self) -> Sequence[str]:
        return (*filter(None, (self.deletion_warning,)), *self.found)

    @property
    def identity(self) -> str:
        return self.named

    def write(self, partition: int, *, at_ms: int = NOON, value: bytes | None = b"value", **fields: object) -> None:
        """Append a record of an owner; the fields override its defaults."""
        offset = self.ends[partition]
        record = RawRecord(partition, offset, at_ms, b"key-%d" % offset, value, (MARK,), 7, transactional=False)
        self.records[partition].append(msgspec.structs.replace(record, **fields))
        self.ends[partition] += 1

    def compact(self, partition: int, *offsets: int) -> None:
        """Remove these records, as compaction does."""
        self.records[partition] = [each for each in self.records[partition] if each.offset not in offsets]

    def delete(self, partition: int, before: int) -> None:
        """Delete the beginning, as `cleanup.policy=delete` does."""
        self.begins[partition] = before
        self.records[partition] = [each for each in self.records[partition] if each.offset >= before]

    @property
    def deletion_warning(self) -> str | None:
        return "the beginning was deleted" if any(self.begins) else None

    async def begin_offset(self, partition: int) -> int:
        return self.begins[partition]

    async def end_offset(self, partition: int) -> int:
        return self.ends[partition]

    async def read_raw(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[RawRecord]]:
        """Yield two records at a time."""
        stop = self.ends[partition] if end is None else end
        found = [each for each in self.records[partition] if start <= each.offset < stop]
        for at in range(0, len(found), 2):
            yield found[at : at + 2]

    async def owners_marks(self, partition: int) -> OwnersMarks:
        return OwnersMarks(since=0, native_from=0, home="home")


async def filled(partitions: int = 2, records: int = 10, **settings: object) -> RawMemoryLog:
    """Return an open log with some records in each partition, including a tombstone and several kinds of headers."""
    log = RawMemoryLog(partitions)
    await log.open()
    more(log, records)
    return log


def more(log: RawMemoryLog, records: int) -> None:
    """Append to each partition, with some hours between records."""
    for partition in range(log.partitions):
        for _ in range(records):
            number = log.ends[partition]
            headers = (MARK, ("null", None), ("twice", b"1"), ("twice", b"")) if number % 3 else (MARK,)
            value = None if number % 5 == 4 else b"value-%d-%d" % (partition, number)
            log.write(partition, at_ms=NOON + (number - 20) * DAY_MS // 3, value=value, headers=headers)


async def archived(log: EventLog, root: Path, **settings: object) -> ArchivedRun:
    """Archive the log, by the clock of these tests."""
    wanted: Any = {"now_ms": NOON, "disk": CrashingDisk(), **settings}
    return await archive(log, root, watch=lambda _done, _total: None, **wanted)


async def raw(log: EventLog, partition: int = 0) -> list[RawRecord]:
    """Return all records of a partition."""
    return [record async for chunk in raw_chunks(log, partition, start=0, end=None) for record in chunk]


async def digests(log: EventLog) -> list[str]:
    """Return the digest of each partition."""
    return [digest_of(await raw(log, partition)) for partition in range(log.partitions)]


async def opened(root: Path) -> ArchiveLog:
    """Open the archive as a log."""
    log = ArchiveLog(root)
    await log.open()
    return log


async def digests_in(root: Path) -> list[str]:
    return await digests(await opened(root))


def named(root: Path) -> set[str]:
    """Return the segments that exist as files."""
    return {str(path.relative_to(root)) for path in root.glob("day=*/*/*")}
