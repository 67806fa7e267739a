"""Loads a partition: reads its records from first to last, without decoding superseded ones.

It works like a compaction in memory. The last record of each key produces the same groups as all records do (the
compaction tests prove it), so an owner that takes over decodes only these, which are few even in a log with a long
history. Three kinds of records are kept that a compaction may drop, so that nothing is missed:

    the partition's own events    all of them: one may say that the log is too new. A broken one that was replaced is
                                  lost, but the level is stored elsewhere, too (in marks, in a file's own table)
    the deletion of a group       it has the group's incarnation; likewise the removal of a member
    a value of unknown type       its group is quarantined, even if a later record may have replaced it

A superseded value of a known type that is broken after its header goes unnoticed: compaction would have removed it
anyway.

Foreign records change nothing. But compaction keeps the last record of a key, no matter who wrote it: if that is a
foreign one, the owner's record of the entity may be removed. `overwritten` lists these entities; their records must be
written again.

    loading = Loading()
    for chunk in chunks:
        loading.read(chunk)
    for _ in loading.fold():
        ...  # others may work
    loading.projector.groups

After that a reading may continue, in a process that follows another one's partition: each record is applied as it
arrives, and superseded ones are not kept. The result equals that of a full load, except for an unreadable record: only
later records tell whether it counts. In that case it raises MustReadAnew.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from muster.events.avro.codec import decode, event_type_of
from muster.events.events import PartitionEvent
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key, encode_key
from muster.events.projector import Projector, entity_of
from muster.events.records import BrokenRecord, ForeignRecords, StoredRecord, UndecodableKey

RECORDS_PER_STEP = 32
"""About 0.5 ms of work."""
COLLECTED_AT_ONCE: Final = 1_000
"""Records per step of a first reading, which only collects them: 0.5 ms of work."""
FOLLOWED_AT_ONCE: Final = 64
"""Records per step of a continued reading, which applies them as they arrive: 1 ms of work."""

DELETED_MAX = 10_000
"""The number of deleted groups that a continued reading remembers, since offsets of the last ones may still exist."""


class LastRead(msgspec.Struct, frozen=True):
    """The last record of a reading; a reading that continues uses it to recognize the log."""

    offset: int
    timestamp_ms: int
    key: bytes

    def is_at(self, record: StoredRecord) -> bool:
        """Return whether this is the record at that offset, or that record was compacted away."""
        return record.offset > self.offset or (record.timestamp_ms, record.key) == (self.timestamp_ms, self.key)


class MustReadAnew(Exception):
    """The reading cannot continue from its position; the whole partition has to be loaded again."""


class Loading:
    """One reading of a partition. `projector` is complete at the end of `fold`. Raises the projector's errors.

    After `fold` it may continue with `read`, and is complete after each call. Between two calls it can be abandoned or
    handed over; so can an unfinished `fold`: another call does the rest.
    """

    def __init__(self, foreign_records: ForeignRecords | None = None) -> None:
        self.projector = Projector()
        self.foreign_records = ForeignRecords() if foreign_records is None else foreign_records
        self.last: LastRead | None = None
        """The last record that was read, foreign or not."""
        self._overwritten: set[bytes] = set()
        """Keys whose last record is foreign, after an owner's value."""
        self._values: dict[bytes, StoredRecord] = {}
        """The last record of each key."""
        self._broken: dict[bytes, BrokenRecord] = {}
        """Unreadable keys, and keys whose last record is a broken one of the partition itself. `muster log repair`
        writes a tombstone for them.
        """
        self._tombstones: dict[bytes, StoredRecord] = {}
        """The tombstones of groups that were deleted and not created again."""
        self._events_read = 0
        self._next_offset = 0
        self._left: Iterator[StoredRecord] | None = None
        """The records that are not folded yet, once `fold` was called."""
        self._is_folded = False

    @classmethod
    def going_on(
        cls,
        projector: Projector,
        *,
        last: LastRead | None,
        overwritten: Iterable[RecordKey] = (),
        foreign_records: ForeignRecords | None = None,
    ) -> "Loading":
        """Create a reading that continues from this projector; `last` and `overwritten` come from the reading
        before.
        """
        loading = cls(foreign_records)
        loading.projector, loading.last = projector, last
        loading._overwritten = set(map(encode_key, overwritten))
        loading._next_offset = projector.next_offset
        loading._left, loading._is_folded = iter(()), True
        return loading

    @property
    def next_offset(self) -> int:
        """The offset from which the reading continues."""
        return self._next_offset

    @property
    def records_at_once(self) -> int:
        """How many of the next records can be read without a pause."""
        return FOLLOWED_AT_ONCE if self._is_folded else COLLECTED_AT_ONCE

    @property
    def events_read(self) -> int:
        """The number of events read so far."""
        return self.projector.events_read if self._is_folded else self._events_read

    @property
    def is_folded(self) -> bool:
        """True if `projector` is complete."""
        return self._is_folded

    @property
    def is_being_folded(self) -> bool:
        """True if a `fold` has begun and not finished; nothing can be read until it has."""
        return self._left is not None and not self._is_folded

    def nothing_before(self, offset: int) -> None:
        """Note that compaction has removed all records before this offset, back to the last one that was read."""
        self._next_offset = max(self._next_offset, offset)
        if self._is_folded:
            self.projector.next_offset = self._next_offset

    def read(self, chunk: Sequence[StoredRecord]) -> None:
        """Process the next records, in offset order. Raises LogTooNew; once folded, MustReadAnew and EventsError."""
        if self._is_folded:
            for record in chunk:
                self._follow(record)
        else:
            assert self._left is None, "it is being folded"
            self._collect(chunk)
        if chunk:
            self.last = LastRead(chunk[-1].offset, chunk[-1].timestamp_ms, chunk[-1].key)

    def _collect(self, chunk: Iterable[StoredRecord]) -> None:
        values, tombstones = self._values, self._tombstones
        for record in chunk:
            self._next_offset = record.offset + 1
            key = record.key
            if record.is_foreign:
                self.foreign_records.note(record)
                if key in values:
                    self._overwritten.add(key)
                continue
            if self._overwritten:
                self._overwritten.discard(key)
            if self._broken:
                self._broken.pop(key, None)
            try:
                if record.value is None:
                    self._bury(record)
                    continue
                self._events_read += 1
                if tombstones:
                    tombstones.pop(key, None)
                if event_type_of(record.value) is None or (
                    key not in values and entity_of(record).kind is EntityKind.PARTITION
                ):
                    self.projector.feed(record)
                else:
                    values[key] = record
            except BrokenRecord as broken:
                if record.value is not None:
                    self._broken[key] = broken

    def _follow(self, record: StoredRecord) -> None:
        """Feed a record that follows the folded ones. Raises MustReadAnew, LogTooNew and BrokenRecord."""
        projector = self.projector
        if record.is_foreign:
            self.foreign_records.note(record)
            if (entity := _entity_or_none(record.key)) is not None and projector.has(entity):
                self._overwritten.add(record.key)
        else:
            self._overwritten.discard(record.key)
            if record.value is not None or _entity_or_none(record.key) is not None:  # else it was repaired
                quarantined = len(projector.quarantined)
                if quarantined and GroupId(entity_of(record).group_id) in projector.quarantined:
                    raise MustReadAnew("a record of a group that is quarantined came")
                projector.feed(record)
                if len(projector.quarantined) != quarantined:
                    raise MustReadAnew("a record came that cannot be read")
        while len(projector.deleted) > DELETED_MAX:
            del projector.deleted[next(iter(projector.deleted))]
        projector.next_offset = self._next_offset = record.offset + 1

    def fold(self) -> Iterator[None]:
        """Feed the remaining records to the projector, a few at a time. Raises BrokenRecord."""
        if self._left is None:
            for broken in self._broken.values():
                raise broken
            left = [*self._values.values(), *self._tombstones.values()]
            left.sort(key=attrgetter("offset"))
            self._left = iter(left)
            self._values, self._tombstones = {}, {}
        for number, record in enumerate(self._left, start=1):
            self.projector.feed(record)
            if number % RECORDS_PER_STEP == 0:
                yield
        if not self._is_folded:
            self._is_folded = True
            self.projector.events_read = self._events_read
            self.projector.next_offset = self._next_offset

    @property
    def overwritten(self) -> list[RecordKey]:
        """The entities that exist, but whose last record is foreign; known once all is folded."""
        entities = [decode_key(key) for key in self._overwritten]
        return [entity for entity in entities if self.projector.has(entity)]

    def _bury(self, record: StoredRecord) -> None:
        """Note a tombstone. For a member only the incarnation is kept; for a group everything older is dropped."""
        if entity_of(record).kind is EntityKind.GROUP:
            self._tombstones[record.key] = record
        else:
            last = self._values.pop(record.key, None)
            if last is not None and last.value is not None:
                self._forget(last, last.value)
        if self.projector.quarantined:
            self.projector.feed(record)

    def _forget(self, record: StoredRecord, value: bytes) -> None:
        projector = self.projector
        try:
            event = decode(value)
        except BrokenRecord:
            projector.feed(record)  # the projector finds the group that it belongs to
        else:
            if not isinstance(event, PartitionEvent):
                projector.incarnation_max = max(projector.incarnation_max, event.incarnation)


def _entity_or_none(key: bytes) -> RecordKey | None:
    """Decode a key; None if it is not one of ours."""
    try:
        return decode_key(key)
    except UndecodableKey:
        return None
