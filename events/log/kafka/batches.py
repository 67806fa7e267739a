"""Transitions as Kafka's record batches (message format 2).

Packs transitions into batches, and encodes batches and the headers of records; decoding.py reads them. Pure, except for
the clock that the caller reads.

A batch is appended completely or not at all, so a transition never spans two. The limit applies to the batch as it is
sent, compressed; transitions that fit uncompressed are packed together, and a transition that may only fit compressed
gets a batch of its own.
"""

from collections.abc import Iterator, Sequence

import msgspec
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from muster.events.records import FORMAT_LEVEL, Transition

_MAGIC = 2
_NO_COMPRESSION = 0
_ZSTD = 4
_COMPRESSED_FROM_BYTES = 4096
"""The size from which a batch is compressed; below it compressing takes more time than it saves."""

BATCH_OVERHEAD_BYTES = 61 + 40 + 40 + 30
"""The header of the batch, and the headers `marked_from`, `native_from` and `partitions` of its last record."""
_RECORD_OVERHEAD_BYTES = 130
"""At most seven variable-length numbers of 5 to 10 bytes, the mark, and the header of `epoch_base`."""

UNCOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""The limit on the records of one batch: an owner writes no more, a reader decompresses no more."""

_ANY_SIZE = 2**31 - 1

MARK = "muster"
"""The first header of every record of an owner. Its value: the format level in decimal, a space, the id of the cluster
that it was written on, a space, and the producer id that it was written with, in decimal.
"""
EPOCH_BASE = "muster.epoch-base"
ORIGIN = "muster.origin"
"""The header of a batch's last record in which earlier versions stored what is now in the mark's value."""
MARKED_FROM = "muster.marked-from"
NATIVE_FROM = "muster.native-from"
PARTITIONS = "muster.partitions"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The writer of a batch: Kafka's producer id and epoch, and the base of our epochs (see producer.py)."""

    producer_id: int
    producer_epoch: int
    epoch_base: int
    origin: bytes = b""
    """The cluster that the batch was written on, and the format level of its writer (`Origin` in marks.py)."""
    marked_from: int | None = None
    """The first offset of the partition from which all owners mark, perhaps this batch's own; None: unknown."""
    native_from: int | None = None
    """The first offset from which owners' records must be native (marks.py); None: as for `marked_from`."""
    partitions: int | None = None
    """The topic's number of partitions; None: not noted, by an earlier version."""

    @property
    def is_marked(self) -> bool:
        """True if the batch's owner marks its records, or a former one did."""
        return self.marked_from is not None


def uncompressed_bytes(transition: Transition) -> int:
    """Return an upper bound on the bytes that the transition takes in a batch."""
    return sum(_RECORD_OVERHEAD_BYTES + len(record.key) + len(record.value or b"") for record in transition)


def pack(transitions: Sequence[Transition], *, limit_bytes: int) -> Iterator[range]:
    """Pack neighbours into as few batches as the limit allows; yield ranges of indices, in order."""
    first, size = 0, BATCH_OVERHEAD_BYTES
    for index, transition in enumerate(transitions):
        added = uncompressed_bytes(transition)
        if size + added > limit_bytes and first < index:
            yield range(first, index)
            first, size = index, BATCH_OVERHEAD_BYTES
        size += added
    if first < len(transitions):
        yield range(first, len(transitions))


def mark_of(origin: bytes, producer_id: int) -> bytes:
    """Encode the value of the header `muster`; `origin`: see `Origin` in marks.py."""
    return b"%b %d" % (origin, producer_id) if origin else str(FORMAT_LEVEL).encode()


def encode_batch(transitions: Sequence[Transition], stamp: Stamp, *, base_sequence: int, timestamp_ms: int) -> bytes:
    """Encode one record batch: idempotent, not transactional, compressed if it is large enough to benefit."""
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
    headers = [(MARK, mark_of(stamp.origin, stamp.producer_id))]
    if stamp.epoch_base:
        headers.append((EPOCH_BASE, str(stamp.epoch_base).encode()))
    last_headers = headers.copy()
    if stamp.marked_from is not None:
        last_headers.append((MARKED_FROM, str(stamp.marked_from).encode()))
    if stamp.native_from is not None:
        last_headers.append((NATIVE_FROM, str(stamp.native_from).encode()))
    if stamp.partitions is not None:
        last_headers.append((PARTITIONS, str(stamp.partitions).encode()))
    records = [record for transition in transitions for record in transition]
    last = len(records) - 1
    for offset, record in enumerate(records):
        of_record = last_headers if offset == last else headers
        builder.append(offset, timestamp_ms, record.key, record.value, of_record)
    return bytes(builder.build())
