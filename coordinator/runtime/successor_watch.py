"""Looks every few seconds whether another process has taken over partitions in which this one appends nothing.

What belongs here: when a partition is looked at, and when that tells nothing. What it must not know: what is done when
this process was deposed.

Appending tells an owner that it was deposed, and one that is idle appends nothing for hours. Meanwhile it would call
itself ready and describe groups as they were. So the end of the partition is asked for, and where it is beyond our last
append, what stands there is read: a newer owner's fence record deposes us, strangers' records do not.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import msgspec

from muster.coordinator.runtime.ownership import OwnedPartition
from muster.coordinator.runtime.successor import first_elected
from muster.events.log.base import Deposed, EventLog, LogError, LogWriter
from muster.events.records import EventsError

CHECK_INTERVAL_S: Final = 3.0
CHECK_TIMEOUT_S: Final = 3.0
PARTITIONS_AT_ONCE: Final = 16
"""The number of partitions that are looked at each time, if there are more: a successor takes them all."""


class _Looked(msgspec.Struct, frozen=True):
    """A writer, its last position, and up to where has been read behind it."""

    writer: LogWriter
    next_offset: int
    read_to: int


class SuccessorWatch:
    """See the module. `owned`: the partitions of this process; `lost` is called with the number of one and Deposed."""

    def __init__(
        self,
        event_log: EventLog,
        owned: Callable[[], Mapping[int, OwnedPartition]],
        lost: Callable[[int, Exception], None],
    ) -> None:
        self._log = event_log
        self._owned = owned
        self._lost = lost
        self._looked: dict[int, _Looked] = {}
        self._next = 0

    async def watch(self) -> None:
        """Look every CHECK_INTERVAL_S; runs for ever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await asyncio.gather(*(self._look(*each) for each in self._due()))

    def _due(self) -> list[tuple[int, OwnedPartition]]:
        """The partitions that come next."""
        owned = sorted(self._owned().items())
        begin = self._next if self._next < len(owned) else 0
        self._next = begin + PARTITIONS_AT_ONCE
        return list(islice(owned, begin, self._next))

    async def _look(self, number: int, ownership: OwnedPartition) -> None:
        writer = ownership.writer
        next_offset = writer.next_offset
        before = self._looked.get(number)
        if next_offset is None:
            return
        if before is None or before.writer is not writer or before.next_offset != next_offset:
            self._looked[number] = _Looked(writer, next_offset, next_offset)  # it has appended: nobody had deposed it
            return
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                end = await self._log.end_offset(number)
                if end <= before.read_to:
                    return
                elected = await first_elected(self._log, writer, start=before.read_to, end=end)
        except (TimeoutError, LogError, EventsError):
            return  # whether the log is there, and can be read, is found out and told elsewhere
        if elected is None:
            self._looked[number] = _Looked(writer, next_offset, end)
        elif self._is_the_newest(number, ownership, writer):  # else it is our own newer claim
            self._lost(number, Deposed(number, writer.epoch))

    def _is_the_newest(self, number: int, ownership: OwnedPartition, writer: LogWriter) -> bool:
        """Whether this process has not claimed the partition again: renewed its claim, or taken it over once more."""
        return self._owned().get(number) is ownership and ownership.writer is writer and not ownership.is_renewing
