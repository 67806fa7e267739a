"""Archives for the fleet benchmark: many groups over several days, and one group with all events.

Their logs are generated while they are archived, and not kept: ten million records would fill the memory.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from benchmarks.measuring.history import days_of, events_of_long_group, long_group, of_group, one_group
from muster.events.avro.codec import decode_partially, records_of
from muster.events.ids import GroupId
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord
from muster.replay.archive.local import archive
from muster.replay.progress import unwatched

PARTITIONS: Final = 8
GROUP_DIGITS: Final = 6


class _ToldLog(MemoryEventLog, ABC):
    """A log whose records are generated while it is read, from any offset on."""

    def __init__(self, identity: str, partitions: int) -> None:
        storage = MemoryStorage(partitions)
        storage.identity = identity
        super().__init__(storage)

    @abstractmethod
    def told(self, partition: int, start: int) -> Iterator[StoredRecord]:
        """The records of a partition from an offset on."""

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        records = self.told(partition, start)
        if end is not None:
            records = islice(records, end - start)
        while chunk := list(islice(records, CHUNK_RECORDS_MAX)):
            yield chunk


class DaysLog(_ToldLog):
    """The history of one group, for many groups, day by day: all groups of one day before those of the next.

    It is encoded once, and each group's id is put into the bytes.
    """

    def __init__(self, groups: int, days: int) -> None:
        super().__init__(f"days-of-{groups}-groups", PARTITIONS)
        names = [GroupId(f"group-{number:0{GROUP_DIGITS}d}") for number in range(groups)]
        self._known_as = names[0].encode()
        self._names: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for name in names:
            self._names[partition_for(name, PARTITIONS)].append(name.encode())
        self._days = [
            [*zip(records_of(told, FORMAT_LEVEL), (event.why.decided_ms for event in told), strict=True)]
            for told in days_of(one_group(rebalances=2), names[0], days)
        ]

    @property
    def value_bytes(self) -> int:
        """The bytes of all values."""
        of_group = sum(len(record.value or b"") for day in self._days for record, _ in day)
        return of_group * sum(map(len, self._names))

    @property
    def events(self) -> int:
        """The events of all partitions."""
        return sum(len(day) for day in self._days) * sum(map(len, self._names))

    async def end_offset(self, partition: int) -> int:
        """See EventLog."""
        return sum(len(day) for day in self._days) * len(self._names[partition])

    def told(self, partition: int, start: int) -> Iterator[StoredRecord]:
        """See _ToldLog."""
        offset = 0
        for day in self._days:
            for name in self._names[partition]:
                if offset + len(day) <= start:
                    offset += len(day)
                    continue
                for record, at_ms in day:
                    if offset >= start:
                        yield _stored(partition, offset, at_ms, of_group(record, self._known_as, name))
                    offset += 1


class OneGroupLog(_ToldLog):
    """A log in which one group has all events."""

    def __init__(self, events: int) -> None:
        super().__init__(f"one-group-of-{events}", 1)
        self._template = one_group(rebalances=2)
        self._asked = events
        self.events = events_of_long_group(self._template, events)

    async def end_offset(self, partition: int) -> int:  # noqa: ARG002 -- of EventLog
        """See EventLog."""
        return self.events

    def told(self, partition: int, start: int) -> Iterator[StoredRecord]:
        """See _ToldLog."""
        told = long_group(self._template, GroupId("group-0"), self._asked)
        records = (record for transition in told for record in transition)
        for offset, record in islice(enumerate(records), start, None):
            assert record.value is not None, "nobody goes"
            yield _stored(partition, offset, decode_partially(record.value).why.decided_ms, record)


def _stored(partition: int, offset: int, at_ms: int, record: Record) -> StoredRecord:
    return StoredRecord(partition, offset, at_ms, record.key, record.value)


def archive_log(log: MemoryEventLog, root: Path) -> None:
    """Archive the part of the log that the archive does not have."""

    async def run() -> None:
        await log.open()
        await archive(log, root, watch=unwatched)

    asyncio.run(run())
