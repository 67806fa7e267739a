"""Offsets in a compacted topic of their own, alongside the event topic, written with the same fencing.

The topic is an `EventLog` of its own, so a deposed owner cannot commit offsets either. Its records are defined in
codec.py. The offsets of a partition are in memory while it is owned; a standby has read them before
(offsets_reading.py), and its claim continues from there. Offsets that foreign records overwrote are rewritten, as in
the event topic (`coordinator/foreign_records.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from muster.coordinator.foreign_records import ForeignRecordsSeen, ForeignRecordsWatch, gap_between
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.load.slices import Yielder
from muster.coordinator.observability.metrics import ENTITIES_REWRITTEN
from muster.coordinator.offsets.base import BetweenWrites, StoredOffset, TopicPartition
from muster.coordinator.offsets.codec import fence, records, records_again
from muster.coordinator.offsets.memory import OffsetCache
from muster.coordinator.offsets.offsets_reading import ClaimedOffsets, OffsetsReading
from muster.coordinator.partition_reading import Standby, read_to_fence
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog, LogError, LogUnavailable, LogWriter
from muster.events.log.succession import check_no_other_writer
from muster.events.partitioner import partition_for
from muster.events.records import Transition

REWRITTEN_AT_ONCE = 1_000
"""Offsets rewritten in one append; others may append before the next one."""


class TopicOffsetStore:
    """Stores offsets in their own topic. `new_log` creates the store's log, with as many partitions as the event log
    has.

    It is called in `open`, when that number is known.
    """

    def __init__(self, new_log: Callable[[], EventLog]) -> None:
        self._new_log = new_log
        self._opened: EventLog | None = None
        self._begun: dict[int, LogWriter] = {}
        self._owned: dict[int, _Owned] = {}
        self._foreign_records = ForeignRecordsSeen()

    @property
    def own_log(self) -> EventLog | None:
        return self._opened

    @property
    def _log(self) -> EventLog:
        assert self._opened is not None
        return self._opened

    async def open(self) -> None:
        log = self._new_log()
        await log.open()
        self._opened = log

    async def close(self) -> None:
        for owned in self._owned.values():
            await owned.close()
        if self._opened is not None:
            await self._opened.close()

    async def begin_claim(self, partition: int) -> bool | None:
        writer = self._begun[partition] = await self._log.claim(partition)
        return writer.was_owned

    async def claim(self, partition: int) -> Iterable[GroupId]:
        """Claim a writer, write the fence record, and read all offsets; until then the former ones are visible."""
        return (await self.claim_by(partition, None)).groups

    def new_reading(self, partition: int) -> OffsetsReading:
        return OffsetsReading(self._log.location, self._foreign_records.reading(partition))

    async def claim_by(self, partition: int, standby: Standby[OffsetsReading] | None) -> ClaimedOffsets:
        """See FollowedOffsets."""
        before = 0 if standby is None else standby.loading.records_read
        writer = self._begun.pop(partition, None) or await self._log.claim(partition)
        await writer.append([(fence(partition),)])
        if partition in self._owned:
            await self._owned[partition].close()
        reading = await read_to_fence(self._log, writer, standby, lambda: self.new_reading(partition))
        self._foreign_records.report(reading.foreign_records, self._log.location)
        owned = self._owned[partition] = _Owned(self._log, writer, self._foreign_records, kept=reading.offsets)
        await owned.rewrite(reading.overwritten)
        if standby is None or reading is not standby.loading:
            before = 0
        return ClaimedOffsets(groups=reading.offsets.group_ids(), records_read=reading.records_read - before)

    async def give_up(self, partition: int) -> None:
        self._begun.pop(partition, None)
        owned = self._owned.pop(partition, None)
        if owned is not None:
            await owned.close()

    async def renew(self, partition: int, between_writes: BetweenWrites) -> None:
        """Claim a new writer and switch to it; its fence record must directly follow the former one's last record."""
        writer = await self._log.claim(partition)
        await between_writes(lambda: self._owned[partition].switch_to(writer))

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        partition = partition_for(changes[0].group_id, self._log.partitions)
        owned = self._owned.get(partition)
        if owned is None:
            raise LogUnavailable(f"the offsets of partition {partition} are no longer owned here")
        return await owned.write(changes)

    def committed(self, group_id: GroupId) -> Mapping[TopicPartition, StoredOffset]:
        owned = self._owned.get(partition_for(group_id, self._log.partitions)) if self._owned else None
        return {} if owned is None else owned.kept.committed(group_id)

    def group_ids(self) -> frozenset[GroupId]:
        return frozenset[GroupId]().union(*(owned.kept.group_ids() for owned in self._owned.values()))


class _Owned:
    """An owned partition: its offsets, its writer (one append at a time), and its watch for foreign records.

    `kept`: the durable offsets.
    """

    def __init__(self, log: EventLog, writer: LogWriter, seen: ForeignRecordsSeen, *, kept: OffsetCache) -> None:
        self._log = log
        self._writer = writer
        self.kept = kept
        self._appending = asyncio.Lock()
        self._bug: Exception | None = None
        self._watch = ForeignRecordsWatch(log, writer.partition, seen, rewrite=self._rewrite, failed=self._failed)

    async def close(self) -> None:
        """Stop watching for foreign records."""
        await self._watch.close()

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        """Make changes durable, as in OffsetStore, and visible before anything else is appended."""
        transitions = [transition async for transition in self._transitions(changes)]
        async with self._appending:
            verdicts = await self._append(transitions)
            await self.kept.apply_each(changes, verdicts)
            return verdicts

    async def _transitions(self, changes: Sequence[OffsetsChange]) -> AsyncIterator[Transition]:
        """Yield the records of each change; deleting all of a group's offsets includes those of earlier changes."""
        present: dict[GroupId, set[TopicPartition]] = {}
        yielder = Yielder()
        for change in changes:
            of_group = present.setdefault(change.group_id, set(self.kept.committed(change.group_id)))
            deleted = set(change.deleted) | (of_group if change.all_deleted else set())
            of_group -= deleted
            of_group |= {(commit.topic, commit.partition) for commit in change.committed}
            transition = []
            for record in records(change, sorted(deleted)):
                transition.append(record)
                await yielder.maybe_yield()
            yield tuple(transition)

    async def switch_to(self, writer: LogWriter) -> None:
        """Switch to a newer writer; its fence record must directly follow the former writer's last record."""
        async with self._appending:
            await writer.append([(fence(writer.partition),)])
            await check_no_other_writer(self._log, self._writer, writer)
            self._notice(gap_between(self._writer.next_offset, writer.next_offset, 1))
            self._writer = writer

    async def rewrite(self, keys: Iterable[bytes]) -> None:
        """Rewrite offsets whose last record is foreign, because compaction would keep that record."""
        left, yielder = iter(keys), Yielder()
        while some := list(islice(left, REWRITTEN_AT_ONCE)):
            async with self._appending:
                again = list(records_again(some, self.kept))
                if again:
                    ENTITIES_REWRITTEN.inc(len(again))
                    await self._append(again)
            await yielder.maybe_yield()

    async def _append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        if self._bug is not None:
            raise self._bug
        before = self._writer.next_offset
        verdicts = await self._writer.append(transitions)
        stored = [each for each, verdict in zip(transitions, verdicts, strict=True) if verdict is None]
        self._notice(gap_between(before, self._writer.next_offset, sum(map(len, stored))))
        return verdicts

    def _notice(self, gap: range | None) -> None:
        if gap is not None:
            self._watch.notice(gap)

    async def _rewrite(self, keys: Collection[bytes]) -> None:
        with suppress(LogError):  # the writer is lost, and the next write raises
            await self.rewrite(keys)

    def _failed(self, bug: Exception) -> None:
        self._bug = bug
