"""The records of a log, each a key and a value in a partition; and the errors of a history that cannot be read.

EventsError
  BrokenRecord        one record cannot be decoded; names topic or file, partition and offset
    UnknownEventType  ... because its schema is unknown here: a newer version wrote it
    UndecodableKey    ... because its key cannot be read, so not even the group is known
    BrokenBatch       ... nor can any other record of its batch
  LogTooNew           the log's format level is higher than this version knows

Foreign records are those that no owner wrote. Readers skip and count them, and note the first of each partition. The
log decides which records are foreign (`StoredRecord.is_foreign`); callers report them.
"""

from collections.abc import Iterable, Iterator

import msgspec

FORMAT_LEVEL = 7
"""The highest format level that this version reads and writes.

Levels 1, 2 and 4 to 7 have folders in `schemas/`. Level 3 has no schemas of its own: in a Kafka topic its records carry
the header `muster` (see log/kafka/marks.py), which an older version would neither write nor check for. A new log starts
at the highest level. A log keeps its level until `muster log upgrade`, so that older versions can still take it over.
"""

SIGNS_OF_LIFE_FROM_LEVEL = 4
"""From this level on owners leave signs of life alongside the events, and record the last one of the former owner."""

FORMAT_LEVEL_WRITTEN_MIN = 3
"""The lowest level that is written: logs of levels 1 and 2 are continued at this one."""


class Record(msgspec.Struct, frozen=True):
    """A key and a value as bytes; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


Transition = tuple[Record, ...]
"""Records that are appended together, or not at all."""


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as stored in a log. `timestamp_ms` is the wall clock of its append.

    `is_foreign`: no owner wrote it, so readers skip it. The log detects foreign records while reading, and drops their
    value, and their key unless it is one of ours.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    is_foreign: bool = False


class RawRecord(msgspec.Struct, frozen=True):
    """A record byte by byte, foreign or not, with its headers: for lossless copies.

    `producer_id` (-1: none) and `transactional` are those of its batch, by which foreign records are recognized; None
    if the batch is unknown, and in logs that have neither.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    producer_id: int | None = None
    transactional: bool | None = None


class EventsError(Exception):
    """Base of the errors of a history that cannot be read."""


class BrokenRecord(EventsError):
    """A record cannot be decoded. `partition` and `offset` name it."""

    def __init__(self, reason: str, *, partition: int = -1, offset: int = -1) -> None:
        super().__init__(f"partition {partition}, offset {offset}: {reason}" if offset >= 0 else reason)
        self.reason = reason
        self.partition = partition
        self.offset = offset


class UnknownEventType(BrokenRecord):
    """The value's schema is unknown here."""


class UndecodableKey(BrokenRecord):
    """The key cannot be read."""


class BrokenBatch(BrokenRecord):
    """A whole batch cannot be read, not even its keys, so it cannot be superseded by new records with the same keys."""


class LogTooNew(EventsError):
    """The log may contain events that this version does not know."""


class ForeignRecords:
    """Counts the foreign records of one reading, from the offset up to which they were counted before.

    `records`: how many; `first`: by partition, the offset of the first of them; `next_offset`: one past the last.
    """

    def __init__(self, *, counted_to: int = 0) -> None:
        self.records = 0
        self.first: dict[int, int] = {}
        self.next_offset = counted_to
        self._counted_to = counted_to

    def without(self, chunk: Iterable[StoredRecord]) -> Iterator[StoredRecord]:
        """Yield the owners' records, and note the others."""
        for record in chunk:
            if record.is_foreign:
                self.note(record)
            else:
                yield record

    def note(self, record: StoredRecord) -> None:
        """Count a foreign record."""
        if record.offset >= self._counted_to:
            self.records += 1
            self.next_offset = record.offset + 1
            self.first.setdefault(record.partition, record.offset)

    def report(self, location: str) -> str | None:
        """Return a sentence for the operator; None without foreign records."""
        if not self.records:
            return None
        partition, offset = min(self.first.items())
        return (
            f"{location}: records that this cluster's Muster did not write were skipped ({self.records}); the first"
            f" is in partition {partition} at offset {offset}"
        )
