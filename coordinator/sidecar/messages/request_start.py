"""Reads the first fields of a request whose rest may not have arrived yet.

The bytes are unchecked, and are read as Kafka's own readers read them. A number of more than 31 bits is refused,
because Kafka would drop its upper bits, and no request may be read differently here and in the broker. If the bytes end
too early, IndexError or struct.error is raised.
"""

import struct
from struct import Struct

from kio.schema.index import api_key_map

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.messages import HEADER_START_BYTES

_INT16 = Struct(">h")
_VARINT_BITS = 28  # of the first four bytes


def body_at(frame: bytes, *, flexible: bool) -> int:
    """Return the offset of the body, after the request header, in a frame without its length."""
    length: int = _INT16.unpack_from(frame, HEADER_START_BYTES)[0]
    at = HEADER_START_BYTES + _INT16.size
    if length > 0:
        at += length
    if not flexible:
        return at
    count, at = read_varint(frame, at)
    for _ in range(count):
        at = tagged_field_end(frame, at)
    return at


def client_id_of(frame: bytes) -> str:
    """Return the client id in a frame without its length; empty if the client sent none."""
    return read_string(frame, HEADER_START_BYTES, flexible=False)[0].decode(errors="replace")


def api_and_client_of(beginning: bytes) -> tuple[str, str]:
    """Return the API's name and the client id of a request with its length, for a log line; it may be incomplete."""
    key: int = _INT16.unpack_from(beginning, 4)[0]
    name = "".join(part.capitalize() for part in api_key_map.get(key, "").split("_")) or f"API key {key}"
    try:
        client_id, _ = read_string(beginning, 4 + HEADER_START_BYTES, flexible=False)
    except (IndexError, struct.error):
        return name, "not known"
    return name, client_id.decode(errors="replace") or "not known"


def tagged_field_end(data: bytes, at: int) -> int:
    """Return the offset after the tagged field at `at`."""
    _, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return at + size


def read_string(data: bytes, at: int, *, flexible: bool) -> tuple[bytes, int]:
    """Read a string's bytes, empty for null; return them with the offset after them."""
    if flexible:
        length, at = read_varint(data, at)
        length -= 1
    else:
        length, at = int(_INT16.unpack_from(data, at)[0]), at + _INT16.size
    if length <= 0:
        return b"", at
    ends = at + length
    if ends > len(data):
        raise IndexError(f"a string of {length} bytes")
    return data[at:ends], ends


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint, in any form, and return it with the offset after it. Raises ProtocolError."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 0
    while byte & 0x80:
        if shift == _VARINT_BITS:
            raise malformed("a number of more than five bytes")
        at += 1
        shift += 7
        byte = data[at]
        value |= (byte & 0x7F) << shift
    if value > INT32_MAX:
        raise malformed(f"{value} where a number of 31 bits should be")
    return value, at + 1


def malformed(what: str) -> ProtocolError:
    """Return the error for a malformed request."""
    return ProtocolError(Fault.MALFORMED_REQUEST, what)
