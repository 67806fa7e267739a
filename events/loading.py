"""A partition's records read from the first to the last, folded without decoding what was superseded.

What belongs here: which records need not be fed to a projector. What feeding does is the projector's.

How it works: a compaction in memory. By the law that the tests of compaction prove, the last record of each key gives
the same groups as all of them; an owner that takes over needs no more, and of a log with a long history little is left
to decode. Three things are kept that a compaction may drop, so that nothing is overlooked:

    the partition's own events    all of them: one may say that the log is too new. A broken one that was replaced says
                                  nothing; the level stands elsewhere too (in marks, in a file's own table)
    the deletion of a group       it has the incarnation that the group had; so have the members that are gone
    a value of no known type      its group is quarantined, though a later record may have replaced it

A value of a known type that is broken further in and was replaced is not noticed: nothing of it would be left.

Records of strangers say nothing. But compaction keeps the last record of a key, whoever wrote it: of an entity whose
last record is a stranger's, it may drop the owner's. `overwritten` says which those are; they must be written again.

    loading = Loading()
    for chunk in chunks:
        loading.read(chunk)
    for _ in loading.fold():
        ...  # others may work
    loading.projector.groups
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from muster.events.avro.codec import decode, event_type_of
from muster.events.events import PartitionEvent
from muster.events.keys import EntityKind, RecordKey
from muster.events.projector import Projector, entity_of
from muster.events.records import BrokenRecord, StoredRecord
from muster.events.strangers import Strangers

RECORDS_PER_STEP = 2_000
"""Some 40 ms, in which nobody else is served."""


class Loading:
    """One load of a partition. `projector` is complete at the end of `fold`. Raises the projector's errors."""

    def __init__(self, strangers: Strangers | None = None) -> None:
        self.projector = Projector()
        self.strangers = Strangers() if strangers is None else strangers
        self._overwritten: set[bytes] = set()
        """Keys of values behind whose last record a stranger's stands."""
        self._values: dict[bytes, StoredRecord] = {}
        """The last one of each key."""
        self._broken: dict[bytes, BrokenRecord] = {}
        """Keys that cannot be read, or are of a broken record of the partition itself, and whose last record that is:
        `muster log repair` writes a tombstone.
        """
        self._tombstones: dict[bytes, StoredRecord] = {}
        """The tombstones of groups that were deleted and do not exist again."""
        self._events_read = 0
        self._next_offset = 0

    def read(self, chunk: Iterable[StoredRecord]) -> None:
        """Take in the next records, in offset order. Raises LogTooNew."""
        values, tombstones = self._values, self._tombstones
        for record in chunk:
            self._next_offset = record.offset + 1
            key = record.key
            if record.stranger:
                self.strangers.note(record)
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

    def fold(self) -> Iterator[None]:
        """Feed what is left to the projector, a little at a time. Raises BrokenRecord."""
        for broken in self._broken.values():
            raise broken
        left = sorted([*self._values.values(), *self._tombstones.values()], key=attrgetter("offset"))
        for number, record in enumerate(left, start=1):
            self.projector.feed(record)
            if number % RECORDS_PER_STEP == 0:
                yield
        self.projector.events_read = self._events_read
        self.projector.next_offset = self._next_offset

    @property
    def overwritten(self) -> list[RecordKey]:
        """The entities that are there, but whose last record is a stranger's."""
        return [entity_of(self._values[key]) for key in self._overwritten]

    def _bury(self, record: StoredRecord) -> None:
        """Note a tombstone: a member's leaves its incarnation, a group's nothing that is older."""
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
            projector.feed(record)  # the projector says whose it is
        else:
            if not isinstance(event, PartitionEvent):
                projector.incarnation_max = max(projector.incarnation_max, event.incarnation)
