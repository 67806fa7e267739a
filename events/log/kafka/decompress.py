"""Decompresses a batch up to a limit: a few KiB may expand to many GiB.

Each of Kafka's codecs is decompressed into at most `UNCOMPRESSED_BYTES_MAX`, and the headers of a record are limited.
Knows nothing of the writer of a batch, or of what its records mean.

Owners write only zstd, but a broker recompresses if its or the topic's `compression.type` says so, and mirrors do too.
So all four codecs are read.
"""

import contextlib
import struct
from collections.abc import Callable
from mmap import mmap

import cramjam
from aiokafka.codec import snappy_decode

from muster.events.log.kafka.batches import UNCOMPRESSED_BYTES_MAX
from muster.events.log.limits import CHUNK_RECORDS_MAX

_DecompressInto = Callable[[bytes, memoryview], int]

_CODEC_BITS = 0x07
_SNAPPY = 2
_INTO_BUFFER: dict[int, _DecompressInto] = {
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
_FIRST_TRY_BYTES_MAX = 1024 * 1024
"""The largest buffer that is tried first; it is filled with zeros, which takes time and memory."""
_SNAPPY_TIMES_MAX = 32
"""Snappy's best ratio, rounded up: a copy of 64 bytes takes 3."""

_VARINT_BITS_MAX = 63

_HEADERS_MAX = 1_000
_HEADERS_COUNTED_FROM_BYTES = 4 * 1024 * 1024
"""From this size on headers are counted, since two bytes become an object of about seventy; smaller sizes are harmless.
"""
_RECORD_BYTES_UNCOUNTED_MAX = _HEADERS_COUNTED_FROM_BYTES // CHUNK_RECORDS_MAX
"""The size up to which the headers of a record are not counted: a chunk of such records is no larger than that."""


class CannotDecompress(Exception):
    """The batch is broken, or over a limit."""


def decompress(batch: memoryview, codec: int) -> bytes | memoryview | None:
    """Decompress the batch; None for one without compression. Raises CannotDecompress."""
    if codec == 0:
        _check_headers(batch[_HEAD_BYTES:], _count(batch))
        return None
    plain = _with_room_for_head(bytes(batch[_HEAD_BYTES:]), codec)
    _check_headers(plain[_HEAD_BYTES:], _count(batch))
    plain[:_HEAD_BYTES] = batch[:_HEAD_BYTES]
    attributes: int = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(plain, _ATTRIBUTES_AT, attributes & ~_CODEC_BITS)
    _LENGTH.pack_into(plain, _LENGTH_AT, len(plain) - _BYTES_BEFORE_LENGTH_COUNTS)
    return plain


def _count(batch: memoryview) -> int:
    count: int = _LENGTH.unpack_from(batch, _COUNT_AT)[0]
    return count


def _with_room_for_head(compressed: bytes, codec: int) -> memoryview:
    """Decompress records into a buffer, leaving room for the head of their batch in front."""
    if codec == _SNAPPY:
        if len(compressed) * _SNAPPY_TIMES_MAX > UNCOMPRESSED_BYTES_MAX:
            raise CannotDecompress(f"{len(compressed)} bytes of snappy may be too many")
        try:
            return memoryview(bytearray(_HEAD_BYTES) + snappy_decode(compressed))
        except (cramjam.DecompressionError, struct.error) as error:
            raise CannotDecompress(f"it is not snappy: {error}") from error
    if codec not in _INTO_BUFFER:
        raise CannotDecompress(f"there is no codec {codec}")
    return _into_buffer(compressed, _INTO_BUFFER[codec])


def _into_buffer(compressed: bytes, decompress_into: _DecompressInto) -> memoryview:
    """Decompress into a small buffer, or else into one as large as the limit, since the stated size may be wrong.

    The large one is memory-mapped, so that it takes only as much memory as is written to it.
    """
    first_try = _FIRST_TRY_TIMES * len(compressed) + 4096
    if first_try <= _FIRST_TRY_BYTES_MAX:
        with contextlib.suppress(cramjam.DecompressionError):
            return _filled(memoryview(bytearray(_HEAD_BYTES + first_try)), compressed, decompress_into)
    try:
        return _filled(memoryview(mmap(-1, _HEAD_BYTES + UNCOMPRESSED_BYTES_MAX)), compressed, decompress_into)
    except cramjam.DecompressionError as error:
        raise CannotDecompress(f"it cannot be decompressed into {UNCOMPRESSED_BYTES_MAX} bytes: {error}") from error


def _filled(buffer: memoryview, compressed: bytes, decompress_into: _DecompressInto) -> memoryview:
    return buffer[: _HEAD_BYTES + decompress_into(compressed, buffer[_HEAD_BYTES:])]


def _check_headers(records: memoryview, count: int) -> None:
    """Check the number of headers of each record that is not small, without creating objects. Raises
    CannotDecompress.
    """
    if len(records) + _HEAD_BYTES < _HEADERS_COUNTED_FROM_BYTES:
        return
    position = 0
    for _ in range(count):
        length, position = _varint(records, position)
        if length > _RECORD_BYTES_UNCOUNTED_MAX:
            _check_headers_of_record(records, position)
        elif length < 0:
            raise CannotDecompress(f"a record of {length} bytes")
        position += length


def _check_headers_of_record(records: memoryview, position: int) -> None:
    position += 1  # attributes
    for _ in range(2):  # timestamp, offset
        _, position = _varint(records, position)
    for _ in range(2):  # key, value
        size, position = _varint(records, position)
        position += max(size, 0)
    headers, _ = _varint(records, position)
    if headers > _HEADERS_MAX:
        raise CannotDecompress(f"a record with {headers} headers")


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
