"""Decodes fetched bytes into records, in pieces, and marks foreign records. Pure.

Handles batches, records and headers. The rule that makes a record foreign is in `marks.py`.

A broker checks little of what it receives, and other clients may write to the topic. So a batch is decompressed up to a
limit (decompress.py), its records are decoded in pieces, and an unreadable batch is skipped if it is foreign; if it may
be an owner's, it raises BrokenBatch, which names it.
"""

from collections.abc import Iterator
from itertools import islice
from struct import unpack_from

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from muster.events.log.kafka.batches import (
    EPOCH_BASE,
    MARK,
    MARKED_FROM,
    NATIVE_FROM,
    ORIGIN,
    PARTITIONS,
    Stamp,
)
from muster.events.log.kafka.decompress import CannotDecompress, decompress
from muster.events.log.kafka.marks import (
    KEY_PREFIXES,
    Marks,
    Written,
    decode_origin,
    is_elsewhere,
    is_foreign,
    is_native,
    noted_origin,
)
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.records import BrokenBatch, RawRecord, StoredRecord

_LENGTH_AT = 8
_BYTES_BEFORE_LENGTH_COUNTS = 12
_MAGIC_AT = 16
_MAGIC = 2

_NOTES = frozenset({MARK, ORIGIN, EPOCH_BASE, MARKED_FROM, NATIVE_FROM, PARTITIONS})
"""The headers by which a batch describes its writer."""

_FOREIGN_KEY_BYTES_MAX = 128 * 1024
"""The limit of our keys: a group id and a member id have at most 32 KiB each."""

_CANNOT_BE_READ = (CannotDecompress, KafkaError, ValueError, IndexError)
"""The errors that reading a broken batch raises."""

_Piece = tuple[list[StoredRecord], int]


class _Batch:
    """A batch in fetched bytes. `head` is None for message formats before 2, which are not read."""

    __slots__ = ("_data", "_head", "base_offset", "next_offset")

    def __init__(self, data: memoryview, head: DefaultRecordBatch | None) -> None:
        self._data = data
        self._head = head
        self.base_offset: int = unpack_from(">q", data)[0] if head is None else head.base_offset
        self.next_offset: int = self.base_offset + 1 if head is None else head.next_offset

    @property
    def is_whole(self) -> bool:
        """True if the checksum is correct."""
        return self._head is None or self._head.validate_crc()

    @property
    def is_control(self) -> bool:
        return self._head is not None and self._head.is_control_batch

    @property
    def is_transactional(self) -> bool:
        return self._head is not None and self._head.is_transactional

    @property
    def producer(self) -> tuple[int, int]:
        """Kafka's producer id and epoch; only for a batch whose records can be read."""
        assert self._head is not None
        return self._head.producer_id, self._head.producer_epoch

    def records(self) -> Iterator[DefaultRecord]:
        """Iterate over the records. Raises one of _CANNOT_BE_READ, perhaps after some of them."""
        if self._head is None:
            raise CannotDecompress("its message format is older than 2")
        plain = decompress(self._data, self._head.compression_type)
        records = iter(self._head if plain is None else DefaultRecordBatch(plain))
        return iter(records.__next__, None)  # it supports only one iteration, and raises on a second iter()


def decode_batches(
    fetched: bytes, partition: int, *, start: int, end: int, marks: Marks
) -> Iterator[tuple[list[StoredRecord], int]]:
    """Decode the records at offsets from `start` up to `end` (exclusive), in pieces, each with the next offset.

    A broker sends whole batches, but the first may begin before `start`, and the last may be cut off by the size of the
    fetch: it is left for the next one. `marks` is updated when the first mark is found. Raises BrokenBatch for a batch
    whose checksum is wrong, and for an owner's that cannot be read.
    """
    position = start
    for batch in _batches(fetched):
        if position >= end:
            return
        if not batch.is_whole:
            raise BrokenBatch("the checksum of the batch is wrong", partition=partition, offset=batch.base_offset)
        if not batch.is_control:
            for piece, position in _pieces(batch, partition, start, end, marks):
                yield piece, position
        if position != batch.next_offset:
            position = batch.next_offset
            yield [], position


def _pieces(batch: _Batch, partition: int, start: int, end: int, marks: Marks) -> Iterator[_Piece]:
    """Decode a batch, at most CHUNK_RECORDS_MAX records at a time; unreadable ones become one foreign record."""
    is_owners, after = False, batch.base_offset
    try:
        records = batch.records()
        while some := list(islice(records, CHUNK_RECORDS_MAX)):
            after = some[-1].offset + 1
            if some[0].offset < start or after > end:
                some = [record for record in some if start <= record.offset < end]
            # Nearly always all records are ours, and native; then they are converted all at once, since a takeover
            # waits for this.
            if not batch.is_transactional and some and _are_all_native(some, batch.producer[0], marks.home):
                marks.meet(some[0].offset)
                piece = [StoredRecord(partition, r.offset, r.timestamp, r.key or b"", r.value) for r in some]
            else:
                piece = [_stored(record, partition, marks, batch) for record in some]
            is_owners = is_owners or not all(record.is_foreign for record in piece)
            yield piece, after
    except _CANNOT_BE_READ as error:
        if is_owners or marks.since is None or batch.base_offset < marks.since:
            reason = f"the batch cannot be read: {error or type(error).__name__}"
            raise BrokenBatch(reason, partition=partition, offset=batch.base_offset) from error
        yield [StoredRecord(partition, max(start, after), 0, b"", None, is_foreign=True)], after + 1


def decode_raw(
    fetched: bytes, partition: int, *, start: int, end: int, marks: Marks
) -> Iterator[tuple[list[RawRecord], int]]:
    """Decode like `decode_batches`, but every record byte by byte; unreadable foreign batches are left out.

    Raises BrokenBatch like `decode_batches`.
    """
    for batch in _batches(fetched):
        if batch.base_offset >= end:
            return
        if not batch.is_whole:
            raise BrokenBatch("the checksum of the batch is wrong", partition=partition, offset=batch.base_offset)
        try:
            records = iter(()) if batch.is_control else batch.records()
            while some := list(islice(records, CHUNK_RECORDS_MAX)):
                after = some[-1].offset + 1
                if some[0].offset < start or after > end:
                    some = [record for record in some if start <= record.offset < end]
                yield _raw(some, partition, batch), after
        except _CANNOT_BE_READ as error:
            if marks.since is None or batch.base_offset < marks.since:
                reason = f"the batch cannot be read: {error or type(error).__name__}"
                raise BrokenBatch(reason, partition=partition, offset=batch.base_offset) from error
        yield [], batch.next_offset


def _raw(records: list[DefaultRecord], partition: int, batch: _Batch) -> list[RawRecord]:
    producer_id, is_transactional = batch.producer[0], batch.is_transactional
    return [
        RawRecord(partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers), producer_id, is_transactional)
        for r in records
    ]


def _are_all_native(records: list[DefaultRecord], producer_id: int, home: str | None) -> bool:
    """Return whether all records have the same mark, and the owner that it names wrote the batch on this cluster."""
    mark = records[0].headers[:1]
    if not is_native(mark, producer_id) or is_elsewhere(noted_origin(mark), home):
        return False
    return [record.headers[:1] for record in records].count(mark) == len(records)


def _stored(record: DefaultRecord, partition: int, marks: Marks, batch: _Batch) -> StoredRecord:
    """Convert a record, by the rule in `marks.py`."""
    key, offset = record.key or b"", record.offset
    if is_foreign(offset, record.headers, marks, producer_id=batch.producer[0], transactional=batch.is_transactional):
        key = key if len(key) <= _FOREIGN_KEY_BYTES_MAX else b""
        return StoredRecord(partition, offset, record.timestamp, key, None, is_foreign=True)
    return StoredRecord(partition, offset, record.timestamp, key, record.value)


def writers_of(fetched: bytes, *, end: int, home: str | None = None) -> Iterator[tuple[Written | None, int]]:
    """Yield the writer of each whole batch that begins before `end`, and the offset after it.

    The writer is None if it is unknown: for a transactional or unreadable batch, or for one whose owners do not
    note `home` as their cluster, if that is known.
    """
    for batch in _batches(fetched):
        if batch.base_offset >= end:
            return
        yield _written(batch, home), batch.next_offset


def records_of(fetched: bytes) -> Iterator[DefaultRecord | None]:
    """Yield each record of the whole batches, including foreign ones; None for unreadable ones."""
    for batch in _batches(fetched):
        try:
            yield from () if batch.is_control else batch.records()
        except _CANNOT_BE_READ:
            yield None


def _written(batch: _Batch, home: str | None) -> Written | None:
    if batch.is_control or batch.is_transactional:
        return None
    noted, origin, by_key, native = dict[str, bytes](), b"", False, False
    before: list[tuple[str, bytes | None]] = []
    try:
        records = batch.records()
        producer_id, producer_epoch = batch.producer
        for record in records:
            by_key = by_key or (record.key or b"").startswith(KEY_PREFIXES)
            headers = record.headers
            if headers != before:  # nearly all records have the same
                before = headers
                noted |= {name: value or b"" for name, value in headers if name in _NOTES}
                origin = noted_origin(headers) or origin
                native = native or is_native(headers, producer_id)
    except _CANNOT_BE_READ:
        return None
    if home and (MARK in noted or origin):
        cluster = decode_origin(origin)
        if cluster is None or cluster.is_elsewhere(home):
            return None
    stamp = Stamp(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        epoch_base=_number(noted.get(EPOCH_BASE)) or 0,
        origin=origin,
        marked_from=_number(noted.get(MARKED_FROM)),
        native_from=_number(noted.get(NATIVE_FROM)),
        partitions=_number(noted.get(PARTITIONS)),
    )
    return Written(
        base_offset=batch.base_offset,
        stamp=stamp,
        marked=MARK in noted,
        native=native,
        by_unmarked_owner=by_key or ORIGIN in noted or EPOCH_BASE in noted,
    )


def _number(noted: bytes | None) -> int | None:
    """Decode a number from a header; None if we cannot have written it."""
    return int(noted) if noted is not None and noted.isdigit() and len(noted) < 20 else None


def _batches(fetched: bytes) -> Iterator[_Batch]:
    """Yield the whole batches."""
    memory, view, position = MemoryRecords(fetched), memoryview(fetched), 0
    while len(view) > position + _MAGIC_AT:
        end = position + _BYTES_BEFORE_LENGTH_COUNTS + max(0, unpack_from(">i", view, position + _LENGTH_AT)[0])
        if end > len(view):
            return  # cut off
        if view[position + _MAGIC_AT] == _MAGIC:
            yield _Batch(view[position:end], memory.next_batch())
        else:
            yield _Batch(view[position:end], None)
            memory = MemoryRecords(fetched[end:])
        position = end
