"""One reading of a log: its chunks, their unreadable parts, and what is appended meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

import msgspec

from muster.events.ids import GroupId
from muster.events.keys import prefix_of
from muster.events.log.base import (
    UNKNOWN_END,
    EventLog,
    LogUnavailable,
    ReplaceableLog,
    SearchableLog,
)
from muster.events.partitioner import partition_for
from muster.events.records import BrokenBatch, ForeignRecords, StoredRecord
from muster.replay.history.items import Broken
from muster.replay.history.wording import missing_text
from muster.replay.logs.waiting import LOOK_AGAIN_AFTER_S, LogWait
from muster.replay.progress import Watch, unwatched


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a log, with its progress callback and its count of foreign records.

    `watch` is called with offsets, including those removed by compaction.
    """

    log: EventLog
    watch: Watch = unwatched
    foreign_records: ForeignRecords = msgspec.field(default_factory=ForeignRecords)
    lost: list[str] = msgspec.field(default_factory=list)
    unreadable: dict[tuple[int, int], Broken] = msgspec.field(default_factory=dict)
    """The unreadable records that affect the result, by partition and offset."""
    notes: list[str] = msgspec.field(default_factory=list)
    """Sentences to print with the result, although it is complete."""
    waiting: LogWait | None = None
    """Waits for a log that is unavailable; None: that is an error."""

    @property
    def lacks(self) -> list[str]:
        """The damaged parts and unreadable records that the result lacks, as text."""
        if not self.unreadable:
            return self.damage
        first = missing_text(self.unreadable[min(self.unreadable)])
        more = f" (and {more:,} more)" if (more := len(self.unreadable) - 1) else ""
        return [*self.damage, f"{self.log.location} cannot be read completely: {first}{more}"]

    def note_unreadable(self, records: Iterable[Broken]) -> None:
        """Add unreadable records that affect the result."""
        for each in records:
            self.unreadable[each.position.partition, each.position.offset] = each

    @property
    def damage(self) -> list[str]:
        """The damaged parts, as text; the records before them were read."""
        return list(dict.fromkeys((*self.lost, *self.log.warnings)))

    async def chunks(
        self, partitions: Sequence[int], *, wanted: Sequence[bytes] = (), start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Yield the owners' records of the partitions, one partition after another, up to their ends at the time of the
        call.

        `wanted`: see SearchableLog; other logs yield all records.
        """
        async for chunk in self.all_chunks(partitions, wanted=wanted, start=start, end=end):
            yield list(self.foreign_records.without(chunk))

    async def all_chunks(
        self, partitions: Sequence[int], *, wanted: Sequence[bytes] = (), start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read like `chunks`, including foreign records."""
        ends = {each: await self.log.end_offset(each) if end is None else end for each in partitions}
        total, done = sum(ends.values()), 0
        for partition, stop in ends.items():
            try:
                async for chunk in self._read(partition, start, stop, wanted):
                    yield chunk
                    self.watch(done + chunk[-1].offset + 1 if chunk else done, total)
            except BrokenBatch as broken:
                self.lost.append(f"{self.log.location}, {broken}; what comes after it in its partition was left out")
            done += stop

    def _read(
        self, partition: int, start: int, end: int, wanted: Sequence[bytes]
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        if wanted and isinstance(self.log, SearchableLog):
            return self.log.read_wanted(partition, wanted, start=start, end=end)
        return self.log.read(partition, start=start, end=end)


async def chunks_of(
    reading: Reading, group: GroupId, *, start: int, goes_on: bool = False
) -> AsyncIterator[Sequence[StoredRecord]]:
    """Yield the records of the group and of its partition; also others if the log cannot filter.

    `goes_on`: never stop, but yield what is appended; for a reading with `waiting`. Damage is reported at once; a
    damaged end of the log is read as soon as it becomes readable.
    """
    partition = partition_for(group, reading.log.partitions)
    wanted = (prefix_of(group), prefix_of(str(partition)))
    if reading.waiting is None:
        async for chunk in reading.chunks([partition], wanted=wanted, start=start):
            yield chunk
        return
    while True:
        end = await reading.waiting.answer(partial(reading.log.end_offset, partition))
        try:
            if start < end:
                async for chunk in reading.all_chunks([partition], wanted=wanted, start=start, end=end):
                    await _check_in_place(reading)  # the log may have been replaced while this was read
                    yield list(reading.foreign_records.without(chunk))
                    start = chunk[-1].offset + 1 if chunk else start
                start = start if end == UNKNOWN_END else end
            if not goes_on:
                return
            reading.waiting.tell(reading.damage)
            await _check_in_place(reading)
        except LogUnavailable as error:
            reading.waiting.is_away(str(error))
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)


async def _check_in_place(reading: Reading) -> None:
    if reading.waiting is not None and isinstance(reading.log, ReplaceableLog):
        await reading.waiting.answer(reading.log.check_in_place)
