"""The acks of a Produce request (key 0): with 0 there will be no answer.

v3 adds the transactional id, which stands before the acks; v9 is flexible.
"""

from struct import Struct

from kio.serial import readers

from coordinator.wire.messages import HEADER_START_BYTES
from coordinator.wire.reading import tagged_fields_size

PRODUCE = 0

PREFIX_BYTES_MAX = 128 * 1024
"""The acks stand within so many bytes, or the request makes no sense: two strings come before them."""

_INT16 = Struct(">h")
_FLEXIBLE_FROM = 9
_TRANSACTIONAL_FROM = 3


def acks_of(frame: bytes, api_version: int) -> int:
    """The acks of a frame, without its length, of which the end may be missing.

    Raises kio's SerialError, struct.error or IndexError when it is not there.
    """
    at = HEADER_START_BYTES
    at += _INT16.size + max(0, _INT16.unpack_from(frame, at)[0])
    if api_version >= _FLEXIBLE_FROM:
        at += tagged_fields_size(frame, at)
        length, size = readers.read_unsigned_varint(frame, at)
        at += size + max(0, length - 1)
    elif api_version >= _TRANSACTIONAL_FROM:
        at += _INT16.size + max(0, _INT16.unpack_from(frame, at)[0])
    acks: int = _INT16.unpack_from(frame, at)[0]
    return acks
