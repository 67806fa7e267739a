"""Looks every few seconds whether another process has taken over partitions in which this one appends nothing.

What belongs here: when a partition is looked at, and when that tells nothing. What it must not know: what is done when
this process was deposed.

Appending tells an owner that it was deposed, and one that is idle appends nothing for hours. Meanwhile it would call
itself ready and describe groups as they were. So the end of the partition is asked for, and where it is beyond our last
append, what stands there is read: a newer owner's fence record deposes us, strangers' records do not.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.successor import first_elected
from muster.events.log.base import Deposed, EventLog, LogError, LogWriter
from muster.events.records import EventsError

CHECK_INTERVAL_S: Final = 3.0
CHECK_TIMEOUT_S: Final = 3.0
PARTITIONS_AT_ONCE: Final = 16
"""How many of those in which nothing was appended since the look before are looked at each time: a successor takes
them all."""


class _Looked(msgspec.Struct, frozen=True):
    """A writer's last position, and up to where has been read behind it."""

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
        self._last = -1
        """The partition that was looked at last."""

    async def watch(self) -> None:
        """Look every CHECK_INTERVAL_S; runs for ever."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await asyncio.gather(*(self._look(*each) for each in self._due()))

    def _due(self) -> list[tuple[int, OwnedPartition]]:
        """Note where all partitions end; return those that come next of the ones that have stood still since."""
        still = []
        for number, ownership in self._owned().items():
            next_offset, before = ownership.writer.next_offset, self._looked.get(number)
            if next_offset is None:
                continue
            if before is not None and before.next_offset == next_offset:
                still.append((number, ownership))
            else:
                self._looked[number] = _Looked(next_offset, next_offset)  # it has appended: nobody had deposed it
        due = sorted(still, key=lambda each: (each[0] <= self._last, each[0]))[:PARTITIONS_AT_ONCE]
        if due:
            self._last = due[-1][0]
        return due

    async def _look(self, number: int, ownership: OwnedPartition) -> None:
        writer, before = ownership.writer, self._looked[number]
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                end = await self._log.end_offset(number)
                if end <= before.read_to:
                    return
                elected = await first_elected(
                    self._log, writer, start=before.read_to, end=end, has_read_to=partial(self._read_to, number, before)
                )
        except (TimeoutError, LogError, EventsError):
            return  # whether the log is there, and can be read, is found out and told elsewhere
        if elected is None:
            self._read_to(number, before, end)
        elif self._is_the_newest(number, ownership, writer):  # else it is our own newer claim
            self._lost(number, Deposed(number, writer.epoch))

    def _read_to(self, number: int, before: _Looked, offset: int) -> None:
        """Note it, so that a look that takes too long goes on there the next time."""
        self._looked[number] = _Looked(before.next_offset, offset)

    def _is_the_newest(self, number: int, ownership: OwnedPartition, writer: LogWriter) -> bool:
        """Whether this process has not claimed the partition again: renewed its claim, or taken it over once more."""
        return self._owned().get(number) is ownership and ownership.writer is writer and not ownership.is_renewing
