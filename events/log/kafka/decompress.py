"""Decompressing a batch up to a limit: a few KiB may stand for many GiB.

What belongs here: decompressing each of Kafka's codecs into at most `UNCOMPRESSED_BYTES_MAX`, and the limit of headers
of a record. What it must not know: the writer of a batch, and the meaning of its records.

Owners write zstd alone, but a broker compresses anew where its or the topic's `compression.type` says so, and so do
mirrors. So all four codecs are read.
"""

import struct
from collections.abc import Callable

import cramjam
from aiokafka.codec import snappy_decode

from muster.events.log.kafka.batches import UNCOMPRESSED_BYTES_MAX

_CODEC_BITS = 0x07
_SNAPPY = 2
_INTO_BUFFER: dict[int, Callable[[bytes, bytearray], int]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}

_HEAD_BYTES = 61
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_COUNT_AT = 57
_BYTES_BEFORE_LENGTH_COUNTS = 12

_FIRST_TRY_TIMES = 16
_NEXT_TRY_TIMES = 8
_SNAPPY_TIMES_MAX = 32
"""Snappy's best ratio, rounded up: a copy of 64 bytes takes 3."""

_VARINT_BITS_MAX = 63

_HEADERS_MAX = 1_000
_HEADERS_COUNTED_FROM_BYTES = 4 * 1024 * 1024
"""The size from which headers are counted: two bytes become an object of some seventy, so less is harmless."""


class CannotDecompress(Exception):
    """The batch is broken, or over a limit."""


def decompressed(batch: memoryview, codec: int) -> bytes | None:
    """Decompress the batch; None for one without compression. Raises CannotDecompress."""
    if codec == 0:
        if len(batch) >= _HEADERS_COUNTED_FROM_BYTES:
            _check_headers(batch[_HEAD_BYTES:], _count(batch))
        return None
    records = _records(bytes(batch[_HEAD_BYTES:]), codec)
    _check_headers(records, _count(batch))
    head = bytearray(batch[:_HEAD_BYTES])
    attributes: int = _ATTRIBUTES.unpack_from(head, _ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, attributes & ~_CODEC_BITS)
    _LENGTH.pack_into(head, _LENGTH_AT, _HEAD_BYTES + len(records) - _BYTES_BEFORE_LENGTH_COUNTS)
    return b"".join((head, records))


def _count(batch: memoryview) -> int:
    count: int = _LENGTH.unpack_from(batch, _COUNT_AT)[0]
    return count


def _records(compressed: bytes, codec: int) -> memoryview:
    if codec == _SNAPPY:
        if len(compressed) * _SNAPPY_TIMES_MAX > UNCOMPRESSED_BYTES_MAX:
            raise CannotDecompress(f"{len(compressed)} bytes of snappy may be too many")
        try:
            return memoryview(snappy_decode(compressed))
        except (cramjam.DecompressionError, struct.error) as error:
            raise CannotDecompress(f"it is not snappy: {error}") from error
    if codec not in _INTO_BUFFER:
        raise CannotDecompress(f"there is no codec {codec}")
    return _into_buffer(compressed, _INTO_BUFFER[codec])


def _into_buffer(compressed: bytes, decompress_into: Callable[[bytes, bytearray], int]) -> memoryview:
    """Decompress into buffers that grow up to the limit: the stated size need not be true."""
    size = min(_FIRST_TRY_TIMES * len(compressed) + 4096, UNCOMPRESSED_BYTES_MAX)
    while True:
        buffer = bytearray(size)
        try:
            return memoryview(buffer)[: decompress_into(compressed, buffer)]
        except cramjam.DecompressionError as error:
            if size == UNCOMPRESSED_BYTES_MAX:
                raise CannotDecompress(
                    f"it cannot be decompressed into {UNCOMPRESSED_BYTES_MAX} bytes: {error}"
                ) from error
            size = min(size * _NEXT_TRY_TIMES, UNCOMPRESSED_BYTES_MAX)


def _check_headers(records: memoryview, count: int) -> None:
    """Check the number of each record's headers, without making objects. Raises CannotDecompress."""
    if len(records) < _HEADERS_COUNTED_FROM_BYTES:
        return
    position = 0
    for _ in range(count):
        length, position = _varint(records, position)
        end = position + length
        position += 1  # attributes
        for _ in range(2):  # timestamp, offset
            _, position = _varint(records, position)
        for _ in range(2):  # key, value
            size, position = _varint(records, position)
            position += max(size, 0)
        headers, _ = _varint(records, position)
        if headers > _HEADERS_MAX:
            raise CannotDecompress(f"a record with {headers} headers")
        position = end


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise CannotDecompress("a number that does not end")
