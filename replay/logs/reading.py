"""One reading of a log: its chunks, what cannot be read of them, and what is appended meanwhile.

A log that is followed is waited for when it is away, as its owner waits for it; that is said once. A log that cannot be
opened is an error all the same: nobody knows whether there is one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.keys import prefix_of
from muster.events.log.base import EventLog, LogUnavailable, SearchableLog
from muster.events.partitioner import partition_for
from muster.events.records import BrokenBatch, StoredRecord
from muster.events.strangers import Strangers

LOOK_AGAIN_AFTER_S: Final = 0.2
"""The interval at which a log that is followed is looked at."""

SILENT_FOR_S: Final = 5.0
"""The time after which a log that is followed, and does not answer, is told of."""

Watch = Callable[[int, int], None]
"""Told how far the reading is: records done, records in all. Both count offsets, also those compacted away."""


def unwatched(done: int, total: int) -> None:
    """Do nothing: the default, without a progress display."""


def _say_nothing(_: str) -> None: ...


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of a log: what is told how far it is, and what counts strangers' records."""

    log: EventLog
    watch: Watch = unwatched
    strangers: Strangers = msgspec.field(default_factory=Strangers)
    lost: list[str] = msgspec.field(default_factory=list)
    say: Callable[[str], None] = _say_nothing
    """Told, of a log that is followed, that it is away, and that it is back."""

    @property
    def damage(self) -> list[str]:
        """The parts that could not be read, in words for people; the records before it were given."""
        return list(dict.fromkeys((*self.lost, *self.log.warnings)))

    async def chunks(
        self, partitions: Sequence[int], *, wanted: Sequence[bytes] = (), start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """The owners' records of the partitions, one partition after another, as far as they reached at the call.

        `wanted`: see SearchableLog; other logs give all.
        """
        async for chunk in self.all_chunks(partitions, wanted=wanted, start=start, end=end):
            yield list(self.strangers.without(chunk))

    async def all_chunks(
        self, partitions: Sequence[int], *, wanted: Sequence[bytes] = (), start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """As `chunks`, with the records that no owner wrote."""
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
    """The records of the group, and of its partition; others, too, where the log cannot leave them out.

    `goes_on`: then those that are appended, for ever.
    """
    partition = partition_for(group, reading.log.partitions)
    wanted = (prefix_of(group), prefix_of(str(partition)))
    if not goes_on:
        async for chunk in reading.chunks([partition], wanted=wanted, start=start):
            yield chunk
        return
    following = _Following(reading, partition)
    while True:
        end = await following.end()
        try:
            if start < end:
                async for chunk in reading.all_chunks([partition], wanted=wanted, start=start, end=end):
                    yield list(reading.strangers.without(chunk))
                    start = chunk[-1].offset + 1 if chunk else start
                start = end
        except LogUnavailable as error:
            following.is_away(str(error))
        await asyncio.sleep(LOOK_AGAIN_AFTER_S)


class _Following:
    """The end of a partition that grows, and whether it was told that the log is away."""

    def __init__(self, reading: Reading, partition: int) -> None:
        self._reading = reading
        self._partition = partition
        self._is_told = False

    async def end(self) -> int:
        """Return the offset after the last record, as soon as the log tells it."""
        while True:
            asked = asyncio.ensure_future(self._reading.log.end_offset(self._partition))
            try:
                if not (await asyncio.wait({asked}, timeout=SILENT_FOR_S))[0]:
                    self.is_away(f"{self._reading.log.location} has not answered for {SILENT_FOR_S:.0f} s")
                end = await asked
            except LogUnavailable as error:
                self.is_away(str(error))
                await asyncio.sleep(LOOK_AGAIN_AFTER_S)
                continue
            finally:
                asked.cancel()
            if self._is_told:
                self._reading.say(f"{self._reading.log.location} answers again")
                self._is_told = False
            return end

    def is_away(self, reason: str) -> None:
        """Say so once."""
        if not self._is_told:
            self._reading.say(f"{reason}; waiting for it")
        self._is_told = True
