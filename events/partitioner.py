"""The partition of a group, by Kafka's own formula (rule FC1).

The hash is Java's `String.hashCode`: over UTF-16 units, h = 31 * h + unit, in 32 bits. Kafka's `Utils.abs` makes the
one number without a positive counterpart, -2**31, a 0.
"""

import struct
from functools import lru_cache


@lru_cache(maxsize=65536)
def partition_for(group_id: str, partitions: int) -> int:
    """Return the number of the group's partition."""
    hashed = java_string_hash(group_id)
    return (0 if hashed == -0x8000_0000 else abs(hashed)) % partitions


def java_string_hash(text: str) -> int:
    """Java's `text.hashCode()`, a signed number of 32 bits. A lone surrogate counts as itself, as in Java."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    hashed = 0
    for (unit,) in struct.iter_unpack("<H", encoded):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    return hashed - 0x1_0000_0000 if hashed > 0x7FFF_FFFF else hashed
