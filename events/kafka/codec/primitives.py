"""Kafka's primitive types as bytes: fixed sizes, varints, and tagged fields (KIP-482)."""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from kio.serial import readers
from kio.serial.errors import BufferUnderflow

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")

FIXED: Final[Mapping[str, Struct]] = {
    "bool": Struct(">?"),
    "int8": Struct(">b"),
    "int16": INT16,
    "uint16": Struct(">H"),
    "error_code": INT16,
    "int32": INT32,
    "uint32": Struct(">I"),
    "timedelta_i32": INT32,
    "int64": _INT64,
    "timedelta_i64": _INT64,
    "datetime_i64": _INT64,
    "float64": Struct(">d"),
    "uuid": Struct(">16s"),
}
"""The types of fixed size, by Kafka's names, as kio has them."""

TAGGED_FIELDS_MAX: Final = 100
"""The limit of tagged fields in one struct; Kafka's own have five at most."""
NO_TAGGED_FIELDS: Final = b"\x00"

_VARINT_BYTES_MAX: Final = 5


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint: seven bits per byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value <= 0x7F:
        return bytes((value,))
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint, and the offset after it. Raises IndexError."""
    byte = data[at]
    value, length = byte & 0x7F, 1
    while byte & 0x80:
        if length == _VARINT_BYTES_MAX:
            raise IndexError(f"a length has more than {_VARINT_BYTES_MAX} bytes")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << 7 * length
        length += 1
    return value, at + 1


def tagged_fields_size(buffer: bytes, offset: int) -> int:
    """Return the size of the tagged fields, all of which are skipped: none is used here.

    Raises kio's BufferUnderflow.
    """
    count, size = readers.read_unsigned_varint(buffer, offset)
    at = offset + size
    if count > TAGGED_FIELDS_MAX:
        raise BufferUnderflow(f"a struct announces {count} tagged fields, {TAGGED_FIELDS_MAX} are read")
    for _ in range(count):
        _, size = readers.read_unsigned_varint(buffer, at)
        at += size
        length, size = readers.read_unsigned_varint(buffer, at)
        at += size + length
        if at > len(buffer):
            raise BufferUnderflow(f"a tagged field announces a length of {length} bytes")
    return at - offset
