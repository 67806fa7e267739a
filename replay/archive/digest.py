"""The digest of records: two copies with equal digests have the same records, in the same order.

It is a SHA-256 over the fields of each record, one record after another:

    partition (4 bytes), offset (8), timestamp_ms (8), key, number of headers (4), each one's name and value, value

Numbers are signed and big endian. Fields of variable length are preceded by their length (8 bytes); null is just the
length -1.
"""

import hashlib
from collections.abc import Iterable
from struct import Struct

from muster.events.records import RawRecord

_PLACE = Struct(">iqq")
_COUNT = Struct(">i")
_LENGTH = Struct(">q")


def record_bytes(record: RawRecord) -> bytes:
    """The record's fields in the form that is digested; other facts about its batch are left out."""
    parts = [_PLACE.pack(record.partition, record.offset, record.timestamp_ms)]
    _add(parts, record.key)
    parts.append(_COUNT.pack(len(record.headers)))
    for name, value in record.headers:
        _add(parts, name.encode())
        _add(parts, value)
    _add(parts, record.value)
    return b"".join(parts)


def digest_of(records: Iterable[RawRecord]) -> str:
    """The digest in hexadecimal."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record_bytes(record))
    return digest.hexdigest()


def _add(parts: list[bytes], field: bytes | None) -> None:
    parts.append(_LENGTH.pack(-1 if field is None else len(field)))
    if field is not None:
        parts.append(field)
