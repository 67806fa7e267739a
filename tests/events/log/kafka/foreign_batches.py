"""Batches of other producers in an event topic: with any codec, in transactions, or unreadable."""

from collections.abc import Sequence

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from muster.events.records import Record

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_CONTROL = 0x20
_CRC_AT, _ATTRIBUTES_AT, _HEAD_BYTES = 17, 21, 61

Headers = Sequence[tuple[str, bytes | None]]


def batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    transactional: bool = False,
    headers: Headers = (),
) -> bytes:
    """Like any producer's; a key or a value of None is null."""
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), 77, 0, 0, 2**31 - 1)
    for offset, record in enumerate(records):
        builder.append(offset, 1, record.key or None, record.value, list(headers))
    return at_offset(bytes(builder.build()), base_offset)


def at_offset(batch: bytes, base_offset: int) -> bytes:
    """The batch as a broker stores it: the base offset precedes what the checksum covers."""
    return base_offset.to_bytes(8, "big") + batch[8:]


def control_batch(base_offset: int) -> bytes:
    """The marker that ends a transaction."""
    ended = batch([Record(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")], base_offset=base_offset)
    return with_attributes(ended, _CONTROL | 0x10)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The batch with other attributes, and the right checksum."""
    changed = batch[:_ATTRIBUTES_AT] + attributes.to_bytes(2, "big") + batch[_ATTRIBUTES_AT + 2 :]
    checksum: int = calc_crc32c(changed[_ATTRIBUTES_AT:])
    return changed[:_CRC_AT] + checksum.to_bytes(4, "big") + changed[_ATTRIBUTES_AT:]


def with_records(batch: bytes, records: bytes, attributes: int) -> bytes:
    """The batch with other bytes for its records."""
    length = _HEAD_BYTES - 12 + len(records)
    changed = batch[:8] + length.to_bytes(4, "big") + batch[12:_HEAD_BYTES] + records
    return with_attributes(changed, attributes)


def bomb(base_offset: int, unpacked_bytes: int) -> bytes:
    """Return a few KiB of zstd that unpack to this many bytes."""
    packed = bytes(cramjam.zstd.compress(b"\x00" * 2**24)) * (unpacked_bytes // 2**24)
    return with_records(batch([Record(b"a", b"1")], base_offset=base_offset), packed, ZSTD)


def of_an_old_format(base_offset: int) -> bytes:
    """Return a message set of format 1, in which each message is a separate entry."""
    message = b"\x00" * 4 + b"\x01" + b"\x00" * 40
    return base_offset.to_bytes(8, "big") + len(message).to_bytes(4, "big") + message
