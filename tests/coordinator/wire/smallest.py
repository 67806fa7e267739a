"""Requests with the smallest entries: as many as their bytes can hold, in each array of an API.

The bytes are built from kio's schemas, without any code under test. An entry has as few bytes as its schema allows,
except for strings, which have one letter. Entries are all equal, or all different.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin

from kio.index import load_request_schema

SIZES = {"bool": 1, "int8": 1, "int16": 2, "error_code": 2, "int32": 4, "int64": 8, "uuid": 16}
_CORRELATION_ID = b"\x00\x00\x00\x01"
SIZES |= {"timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8, "float64": 8, "uint16": 2, "uint32": 4}

Path = tuple[str, ...]
"""An array in a request, by the names of the arrays around it and its own."""


def arrays_of(entity: Any, around: Path = ()) -> Iterator[Path]:
    """Every array of a kio class, except tagged ones."""
    for field in fields(entity):
        item = item_of(field)
        if item is not None and "tag" not in field.metadata:
            yield (*around, field.name)
            if is_dataclass(item):
                yield from arrays_of(item, (*around, field.name))


def item_of(field: Any) -> Any:
    """The class of an array's entries; None for other fields."""
    for candidate in (field.type, *get_args(field.type)):
        if get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def request_of(api_key: int, api_version: int, path: Path, entries: int, *, are_distinct: bool = False) -> bytes:
    """A frame without its length, with this many entries in the array at the path, and one in those around it."""
    entity: Any = load_request_schema(api_key, api_version)
    start = api_key.to_bytes(2, "big") + api_version.to_bytes(2, "big") + _CORRELATION_ID
    header = b"\x00\x01c" + (b"\x00" if entity.__header_schema__.__flexible__ else b"")
    return start + header + smallest(entity, path, entries, are_distinct=are_distinct)


def entry_bytes(api_key: int, api_version: int, path: Path) -> int:
    """The bytes of one entry."""
    return len(request_of(api_key, api_version, path, 1)) - len(request_of(api_key, api_version, path, 0))


def smallest(
    entity: Any, path: Path = (), entries: int = 0, *, number: int | None = None, are_distinct: bool = False
) -> bytes:
    """The bytes of a kio class; with a number in its strings and integers, if given."""
    flexible = bool(entity.__flexible__)
    out = bytearray()
    for field in fields(entity):
        if "tag" in field.metadata:
            continue
        item = item_of(field)
        if item is None:
            out += _plain(field, flexible, number=number)
            continue
        inner = path[1:] if path[:1] == (field.name,) else None
        count = 0 if inner is None else (1 if inner else entries)
        out += _uvarint(count + 1) if flexible else count.to_bytes(4, "big")

        def entry(n: int | None, item: Any = item, field: Any = field, inner: Path | None = inner) -> bytes:
            if is_dataclass(item):
                return smallest(item, inner or (), entries, number=n, are_distinct=are_distinct)
            return _plain(field, flexible, in_array=True, number=n)

        out += b"".join(map(entry, range(count))) if are_distinct and not inner else entry(None) * count
    return bytes(out) + (b"\x00" if flexible else b"")


def _plain(field: Any, flexible: bool, *, in_array: bool = False, number: int | None = None) -> bytes:
    kind = field.metadata["kafka_type"]
    if kind in {"int32", "uuid"} and number is not None:
        return number.to_bytes(SIZES[kind], "big")
    if kind in SIZES:
        return bytes(SIZES[kind])
    if NoneType in get_args(field.type) and not in_array:
        return b"\x00" if flexible else b"\xff" * (2 if kind == "string" else 4)
    if kind == "string":
        text = b"g" if number is None else b"%x" % number
        return (_uvarint(len(text) + 1) if flexible else len(text).to_bytes(2, "big")) + text
    return b"\x01" if flexible else bytes(4)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
