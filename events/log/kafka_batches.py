"""Transitions as Kafka's record batches (message format 2), and back.

What belongs here: which transitions share a batch, a batch as bytes, the records in fetched bytes. What it must not
know: connections, topics, brokers. Pure, but for the clock that the caller reads.

A batch is appended whole or not at all, so a transition never spans two. The limit is on the batch as it is sent,
compressed; what fits uncompressed is packed together, and a transition that may only fit compressed stands alone.
"""

from collections.abc import Iterator, Sequence

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from events.records import BrokenRecord, StoredRecord, Transition

_MAGIC = 2
_NO_COMPRESSION = 0
_ZSTD = 4
_COMPRESSED_FROM_BYTES = 4096
"""Below this a batch is sent as it is: compressing would cost more time than the bytes do."""

BATCH_OVERHEAD_BYTES = 61 + 64
"""The header of the batch, and what `origin` takes in the last record."""
_RECORD_OVERHEAD_BYTES = 48
"""At most: seven variable-length numbers of 5 to 10 bytes, and the header that `epoch_base` takes."""

_ANY_SIZE = 2**31 - 1
_EPOCH_BASE = "muster.epoch-base"
_ORIGIN = "muster.origin"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote a batch: Kafka's producer id and epoch, and what the epoch is counted from (see kafka_producer.py)."""

    producer_id: int
    producer_epoch: int
    epoch_base: int
    origin: bytes = b""
    """Where the batch was written (see kafka_origin.py)."""


def uncompressed_bytes(transition: Transition) -> int:
    """An upper bound on what the transition's records take in a batch."""
    return sum(_RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value or b"") for record in transition)


def packed(transitions: Sequence[Transition], *, limit_bytes: int) -> Iterator[range]:
    """Which neighbours share a batch: ranges of indices, in order, as few as fit the limit."""
    first, size = 0, BATCH_OVERHEAD_BYTES
    for index, transition in enumerate(transitions):
        added = uncompressed_bytes(transition)
        if size + added > limit_bytes and first < index:
            yield range(first, index)
            first, size = index, BATCH_OVERHEAD_BYTES
        size += added
    if first < len(transitions):
        yield range(first, len(transitions))


def encode_batch(transitions: Sequence[Transition], stamp: Stamp, *, base_sequence: int, timestamp_ms: int) -> bytes:
    """One record batch: idempotent, not transactional; compressed when it is large enough to gain by it."""
    large = sum(map(uncompressed_bytes, transitions)) >= _COMPRESSED_FROM_BYTES
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=_ZSTD if large else _NO_COMPRESSION,
        is_transactional=0,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=base_sequence,
        batch_size=_ANY_SIZE,
    )
    headers = [(_EPOCH_BASE, str(stamp.epoch_base).encode())] if stamp.epoch_base else []
    last_headers = [*headers, (_ORIGIN, stamp.origin)] if stamp.origin else headers
    records = [record for transition in transitions for record in transition]
    last = len(records) - 1
    for offset, record in enumerate(records):
        of_record = last_headers if offset == last else headers
        builder.append(offset, timestamp_ms, record.key, record.value, of_record)
    return bytes(builder.build())


def decode_batches(fetched: bytes, partition: int, *, start: int, end: int) -> Iterator[tuple[list[StoredRecord], int]]:
    """For each whole batch its records at offsets from `start` up to `end` (exclusive), and the offset after it.

    A broker sends whole batches, but the first may begin before `start`, and the last may be cut off by the size of
    the fetch: it is left for the next one. Raises BrokenRecord for a batch whose checksum is wrong.
    """
    batches = MemoryRecords(fetched)
    position = start
    while batches.has_next() and position < end:
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise BrokenRecord("the checksum of the batch is wrong", partition=partition, offset=batch.base_offset)
        position = batch.next_offset
        records = () if batch.is_control_batch else batch
        yield (
            [
                StoredRecord(partition, record.offset, record.timestamp, record.key or b"", record.value)
                for record in records
                if start <= record.offset < end
            ],
            position,
        )


def last_stamp(fetched: bytes) -> Stamp | None:
    """Who wrote the last whole batch in fetched bytes; None when there is none."""
    batches = MemoryRecords(fetched)
    stamp = None
    while batches.has_next():
        batch = batches.next_batch()
        headers = {name: value for record in batch for name, value in record.headers}
        stamp = Stamp(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            epoch_base=int(headers.get(_EPOCH_BASE, 0)),
            origin=headers.get(_ORIGIN, b""),
        )
    return stamp
