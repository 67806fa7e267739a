"""Avro's variable-length integers: zigzag, seven bits per byte, lowest first.

These are the slow paths. A number below 64 is one byte; the readers (`keys.py` and the decoders that `avro/decoder.py`
generates) handle that byte inline, and call here for the rest.

The read functions take the first byte, which the caller has read already, and the position after it; `read_long_at`,
for readers without a fast path, takes the position of the number. They raise BrokenRecord for encodings that no writer
produces, and IndexError where the data ends: callers turn that into a BrokenRecord of their own.
"""

from functools import lru_cache

from muster.events.records import BrokenRecord

_MARKS_OF_FIVE_BYTES = sum(128 << 7 * index for index in range(4))
_MARKS_OF_SIX_BYTES = sum(128 << 7 * index for index in range(5))

LAST_FOUR: dict[bytes, int] = {}
"""Maps the last four bytes of a six-byte number to their contribution to its value, less all continuation bits. For a
wall clock time in ms these bytes stay the same for eight seconds, so a reader looks here first: `n += (second << 7) +
LAST_FOUR[the four]`.
"""
_LAST_FOUR_MAX = 4_096


def read_long_at(data: bytes, pos: int) -> tuple[int, int]:
    """Return the 64-bit integer that begins at `pos`, and the position after it."""
    first = data[pos]
    return ((first >> 1) ^ -(first & 1), pos + 1) if first < 128 else read_long(data, pos + 1, first)


def read_long(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Return a 64-bit integer, and the position after it."""
    second = data[pos]
    if second < 128:
        n = first - 128 + (second << 7)
        return (n >> 1) ^ -(n & 1), pos + 1
    if len(five := data[pos : pos + 5]) == 5:
        b, c, d, e, f = five
        if c > 127 and d > 127:
            if e < 128:  # an uptime in ms, of days or weeks
                n = first + (b << 7) + (c << 14) + (d << 21) + (e << 28) - _MARKS_OF_FIVE_BYTES
                return (n >> 1) ^ -(n & 1), pos + 4
            if f < 128:  # a wall clock time of this century, in ms
                last_four = (c << 14) + (d << 21) + (e << 28) + (f << 35) - _MARKS_OF_SIX_BYTES
                if len(LAST_FOUR) >= _LAST_FOUR_MAX:
                    LAST_FOUR.clear()
                LAST_FOUR[five[1:]] = last_four
                n = first + (b << 7) + last_four
                return (n >> 1) ^ -(n & 1), pos + 5
    n = first
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        n += byte - 1 << shift  # minus one for the continuation bit of the byte before
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise BrokenRecord("a number is longer than ten bytes")
    if n > 0xFFFF_FFFF_FFFF_FFFF:
        raise BrokenRecord("a number is over 64 bits")
    return (n >> 1) ^ -(n & 1), pos


def read_int(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Return a 32-bit integer, and the position after it."""
    second = data[pos]
    if second < 128:
        n = first - 128 + (second << 7)
        return (n >> 1) ^ -(n & 1), pos + 1
    third = data[pos + 1]
    if third < 128:  # most timeouts, in ms
        n = first - 128 + (second - 128 << 7) + (third << 14)
        return (n >> 1) ^ -(n & 1), pos + 2
    n, pos = read_long(data, pos, first)
    if n > 0x7FFF_FFFF or n < -0x8000_0000:
        raise BrokenRecord(f"{n} is over 32 bits")
    return n, pos


def read_length(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Return a length or an index, *doubled* as it is written, and the position after it. Never negative."""
    n, pos = read_long(data, pos, first) if first > 127 else ((first >> 1) ^ -(first & 1), pos)
    if n < 0:
        raise BrokenRecord(f"a length or an index is {n}")
    return n << 1, pos


def read_block_count(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or a map, doubled, and the position of the first.

    A negative count is followed by the block's size in bytes, which is not used here.
    """
    n, pos = read_long(data, pos, first) if first > 127 else ((first >> 1) ^ -(first & 1), pos)
    if n < 0:
        _, pos = read_length(data, pos + 1, data[pos])
        n = -n
    return n << 1, pos


def write_long(n: int) -> bytes:
    """Encode a 64-bit integer. Raises OverflowError if it is longer."""
    n = (n << 1) ^ (n >> 63)
    if 1 << 35 <= n < 1 << 42:  # a wall clock time of this century, in ms
        return bytes(
            (n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21 & 127 | 128, n >> 28 & 127 | 128, n >> 35)
        )
    if not 0 <= n <= 0xFFFF_FFFF_FFFF_FFFF:
        raise OverflowError("a number is over 64 bits")
    written = bytearray()
    while n > 127:
        written.append(n & 127 | 128)
        n >>= 7
    written.append(n)
    return bytes(written)


@lru_cache(maxsize=4096)
def write_int(n: int) -> bytes:
    """Encode a 32-bit integer or a length. Raises OverflowError if it is longer.

    Results are cached because, unlike times, most of these numbers recur.
    """
    if n > 0x7FFF_FFFF or n < -0x8000_0000:
        raise OverflowError(f"{n} is over 32 bits")
    return write_long(n)
