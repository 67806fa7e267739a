"""One reading of a partition of the offsets topic, which can be continued, and the protocol of a store that uses it.

Tracks the state across records; codec.py decodes them.

Unlike the reading of events (`events/loading.py`) it applies each record immediately, because offsets are cheap to
decode; `fold` only reports records that cannot be read. In a first reading such a record only counts if it is the last
one of its key; after that it counts at once, and a standby discards the reading.

Foreign records are ignored. But if the last record with an offset's key is foreign, compaction may remove the owner's:
`overwritten` has these keys; their offsets must be written again.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.codec import offset_at, take
from muster.coordinator.offsets.memory import OffsetCache
from muster.coordinator.partition_reading import Standby
from muster.events.ids import GroupId
from muster.events.loading import LastRead
from muster.events.records import BrokenRecord, ForeignRecords, StoredRecord


class OffsetsReading:
    """Reads one partition of the offsets topic into `offsets`. Errors name the topic by `location`."""

    records_at_once: Final = 100
    """About 1 ms of work."""
    is_being_folded: Final = False

    def __init__(self, location: str, foreign_records: ForeignRecords) -> None:
        self._location = location
        self.foreign_records = foreign_records
        self.offsets = OffsetCache()
        self.last: LastRead | None = None
        """The last record read, including foreign ones."""
        self.records_read = 0
        self._overwritten: set[bytes] = set()
        self._broken: dict[bytes, BrokenRecord] = {}
        """Keys whose last record cannot be read, until `fold`."""
        self._next_offset = 0
        self._is_folded = False

    @property
    def next_offset(self) -> int:
        """The offset from which reading continues."""
        return self._next_offset

    @property
    def is_folded(self) -> bool:
        """Return whether the first reading is complete, without unreadable records."""
        return self._is_folded

    @property
    def overwritten(self) -> Collection[bytes]:
        """The keys of the offsets whose last record is foreign."""
        return self._overwritten

    def nothing_before(self, offset: int) -> None:
        """Note that there is no record left before this offset: compaction has removed the last ones."""
        self._next_offset = max(self._next_offset, offset)

    def read(self, chunk: Sequence[StoredRecord]) -> None:
        """Apply the next records, in offset order. Raises BrokenRecord, once folded."""
        for record in chunk:
            self._take(record)
            self._next_offset = record.offset + 1
        self.records_read += len(chunk)
        if chunk:
            self.last = LastRead(chunk[-1].offset, chunk[-1].timestamp_ms, chunk[-1].key)

    def _take(self, record: StoredRecord) -> None:
        key = record.key
        if record.is_foreign:
            self.foreign_records.note(record)
            if offset_at(key, self.offsets) is not None:  # there may be millions of others
                self._overwritten.add(key)
            return
        self._overwritten.discard(key)
        self._broken.pop(key, None)
        try:
            take(self.offsets, record, self._location)
        except BrokenRecord as broken:
            if record.value is None:
                return  # it was repaired
            if self._is_folded:
                raise
            self._broken[key] = broken

    def fold(self) -> Iterator[None]:
        """Note that a reading has reached its end. Raises BrokenRecord."""
        for broken in self._broken.values():
            raise broken
        self._is_folded = True
        yield from ()


class ClaimedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The groups that have offsets, and the number of topic records read for the claim."""

    groups: Iterable[GroupId]
    records_read: int


@runtime_checkable
class FollowedOffsets(OffsetStore, Protocol):
    """A store whose partitions can be followed by a process that does not own them."""

    def new_reading(self, partition: int) -> OffsetsReading:
        """Create a reading of the partition that starts at its first record. The store must be open."""
        ...

    async def claim_by(self, partition: int, standby: Standby[OffsetsReading] | None) -> ClaimedOffsets:
        """Like `claim`, but continue a standby's reading up to the claim; from then on the store has the offsets.

        Everything is read if there is no usable standby. The standby can be used again if this fails, unless it is
        spent.
        """
        ...

    async def give_up(self, partition: int) -> None:
        """Forget the partition's offsets because it is no longer owned; nothing is written for it from now on."""
        ...
