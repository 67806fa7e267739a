"""Bytes of a message cut at its fields, by kio's schemas, so that some can be replaced and all others stay as they are.

What belongs here: sizes. What it must not know: what the fields mean. Nothing is decoded, so whatever a newer broker
puts into a version that is known (error codes, tagged fields, KIP-482) is passed on with the rest, and what comes
behind the fields that are asked for is not looked at. A function that skips something is called with the bytes and an
offset, and gives the offset behind it. Bytes that end too early raise IndexError, struct.error or SerialError.
Arrays are gone through in steps (wire/steps.py): an answer may have as many entries as a client has asked for.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from struct import Struct
from types import NoneType
from typing import Any, cast, get_args, get_origin

from coordinator.wire.reading import tagged_fields_size
from coordinator.wire.steps import ENTRIES_PER_STEP, Steps
from coordinator.wire.writing import write_uvarint

SkipAtOnce = Callable[[bytes, int], int]
Splice = Callable[[bytes, int], Steps[bytes]]
"""From bytes and an offset in them to all that is there from the offset on, changed."""

Pieces = dict[str, bytes]
"""The fields of a struct in their order, by kio's names, each as its bytes; behind them the tagged ones as one."""

Change = Callable[[Pieces], Pieces | None]
"""From an item to the one that is there instead, which may be the same, changed; None drops the item."""

_ChangeInSteps = Callable[[Pieces], Steps[Pieces | None]]

_INT16, _INT32 = Struct(">h"), Struct(">i")

_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}
_VARINT_BITS_MAX = 28
_NULL_STRUCT = 0xFF  # -1, where a struct that may be null is


def change_items(entity: Any, name: str, change: Change) -> Splice:  # noqa: ANN401 -- kio's classes are told apart by their attributes; so below
    """For a kio class, and an array of structs in it: all from the offset on, with each of its items changed."""

    def change_in_steps(pieces: Pieces) -> Steps[Pieces | None]:
        yield 1
        return change(pieces)

    return _change_items(entity, name, change_in_steps)


def field_of(entity: Any, name: str) -> Callable[[bytes, int], Steps[bytes]]:  # noqa: ANN401
    """For a kio class, and a field that has no tag: its bytes, of what begins at the offset."""
    (at,) = (at for at, field in enumerate(fields(entity)) if field.name == name)
    skip_those_before = _in_turn([_skip_field(entity, each) for each in fields(entity)[:at]])
    skip = _skip_field(entity, fields(entity)[at])

    def piece(data: bytes, start: int) -> Steps[bytes]:
        begins = yield from _skipped(skip_those_before, data, start)
        return data[begins : (yield from _skipped(skip, data, begins))]

    return piece


def _change_items(entity: Any, name: str, change: _ChangeInSteps) -> Splice:  # noqa: ANN401
    (at,) = (at for at, field in enumerate(fields(entity)) if field.name == name)
    field = fields(entity)[at]
    array = _Array(_item(field), flexible=bool(entity.__flexible__), change=change)
    if "tag" in field.metadata:
        return _changes_tagged(entity, field.metadata["tag"], array)
    skip_those_before = _in_turn([_skip_field(entity, each) for each in fields(entity)[:at]])

    def changed(data: bytes, start: int) -> Steps[bytes]:
        begins = yield from _skipped(skip_those_before, data, start)
        written, ends = yield from array.write(data, begins)
        return b"".join((data[start:begins], written, data[ends:]))

    return changed


def change_inner_items(entity: Any, outer: str, inner: str, change: Change) -> Splice:  # noqa: ANN401
    """The same for an array in each struct of another."""
    (field,) = (each for each in fields(entity) if each.name == outer)
    changed = change_items(_item(field), inner, change)

    def change_inner(pieces: Pieces) -> Steps[Pieces | None]:
        return {outer: (yield from changed(b"".join(pieces.values()), 0))}

    return _change_items(entity, outer, change_inner)


def change_fields(entity: Any, change: Change) -> Splice:  # noqa: ANN401
    """For a kio class: all from the offset on, with its own fields changed; it cannot be dropped."""
    cut = _cutter(entity)

    def changed(data: bytes, start: int) -> Steps[bytes]:
        pieces, ends = yield from cut(data, start)
        return b"".join((*(change(pieces) or pieces).values(), data[ends:]))

    return changed


def text_of(piece: bytes, *, flexible: bool) -> str:
    """The text of a string's bytes; "" for null."""
    _, at = _varint(piece, 0) if flexible else (0, _INT16.size)
    return piece[at:].decode()


def text_piece(text: str, *, flexible: bool) -> bytes:
    """The bytes of a string."""
    encoded = text.encode()
    if not flexible:
        return _INT16.pack(len(encoded)) + encoded
    out = bytearray()
    write_uvarint(out, len(encoded) + 1)
    return bytes(out + encoded)


class _Array:
    """An array whose items are changed."""

    def __init__(self, item: Any, *, flexible: bool, change: _ChangeInSteps) -> None:  # noqa: ANN401
        self._cut = _cutter(item)
        self._flexible = flexible
        self._change = change

    def write(self, data: bytes, begins: int) -> Steps[tuple[bytes, int]]:
        """The changed array that begins there, and the offset behind the one that there was."""
        count, at = _count(data, begins, flexible=self._flexible)
        kept = []
        for _ in range(count):
            pieces, at = yield from self._cut(data, at)
            changed = yield from self._change(pieces)
            if changed is not None:
                kept.append(b"".join(changed.values()))
        if not count:
            return data[begins:at], at  # null, or none
        length = bytearray()
        if self._flexible:
            write_uvarint(length, len(kept) + 1)
        else:
            length += _INT32.pack(len(kept))
        return b"".join((length, *kept)), at


def _changes_tagged(entity: Any, tag: int, array: _Array) -> Splice:  # noqa: ANN401
    skip_untagged = _in_turn([_skip_field(entity, each) for each in fields(entity) if "tag" not in each.metadata])

    def changed(data: bytes, start: int) -> Steps[bytes]:
        at = yield from _skipped(skip_untagged, data, start)
        count, at = _varint(data, at)
        for _ in range(count):
            begins = at
            number, at = _varint(data, at)
            size, at = _varint(data, at)
            if number == tag:
                written, _ = yield from array.write(data, at)
                length = bytearray()
                write_uvarint(length, tag)
                write_uvarint(length, len(written))
                return b"".join((data[start:begins], length, written, data[at + size :]))
            at += size
        return data[start:]

    return changed


@cache
def _cutter(entity: Any) -> Callable[[bytes, int], Steps[tuple[Pieces, int]]]:  # noqa: ANN401
    """A struct's fields, and the offset behind the struct."""
    skips: list[tuple[str, Skip]] = [
        (field.name, _skip_field(entity, field)) for field in fields(entity) if "tag" not in field.metadata
    ]
    if entity.__flexible__:
        skips.append(("", _skip_tagged))

    def cut(data: bytes, at: int) -> Steps[tuple[Pieces, int]]:
        pieces = {}
        for name, skip in skips:
            ends = (yield from skip.steps(data, at)) if isinstance(skip, _InSteps) else skip(data, at)
            if ends > len(data):
                raise IndexError(f"the bytes end at {len(data)}, in a field that ends at {ends}")
            pieces[name] = data[at:ends]
            at = ends
        return pieces, at

    return cut


# ---- sizes ---------------------------------------------------------------------------------------------


class _InSteps:
    """Skips what has arrays of things that have to be looked at."""

    __slots__ = ("steps",)

    def __init__(self, steps: Callable[[bytes, int], Steps[int]]) -> None:
        self.steps = steps


Skip = SkipAtOnce | _InSteps


def _skipped(skip: Skip, data: bytes, at: int) -> Steps[int]:
    if isinstance(skip, _InSteps):
        return (yield from skip.steps(data, at))
    return skip(data, at)


@cache
def _skip_struct(entity: Any) -> Skip:  # noqa: ANN401
    skips = [_skip_field(entity, field) for field in fields(entity) if "tag" not in field.metadata]
    return _in_turn([*skips, _skip_tagged] if entity.__flexible__ else skips)


def _skip_field(entity: Any, field: Field[Any]) -> Skip:  # noqa: ANN401
    flexible = bool(entity.__flexible__)
    item = _item(field)
    if item is not None:
        skip_item = _skip_struct(cast("Hashable", item)) if is_dataclass(item) else _skip_plain(field, flexible)
        return _skip_array(skip_item, flexible)
    (kind,) = (each for each in get_args(field.type) or (field.type,) if each is not NoneType)
    if not is_dataclass(kind):
        return _skip_plain(field, flexible)
    skip = _skip_struct(cast("Hashable", kind))
    if NoneType not in get_args(field.type):
        return skip

    def skip_if_there(data: bytes, at: int) -> Steps[int]:
        if data[at] == _NULL_STRUCT:
            return at + 1
        return (yield from _skipped(skip, data, at + 1))

    return _InSteps(skip_if_there)


def _skip_plain(field: Field[Any], flexible: bool) -> SkipAtOnce:
    kind = field.metadata["kafka_type"]
    size = _SIZES.get(kind)
    if size is not None:
        return _Fixed(size)
    if flexible:
        return _skip_compact
    return _skip_string if kind == "string" else _skip_bytes


class _Fixed:
    """Skips what has always the same size; neighbours are taken together."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, _data: bytes, at: int) -> int:
        return at + self.size


def _in_turn(skips: Sequence[Skip]) -> Skip:
    merged: list[Skip] = []
    for skip in skips:
        if isinstance(skip, _Fixed) and merged and isinstance(merged[-1], _Fixed):
            merged[-1] = _Fixed(merged[-1].size + skip.size)
        else:
            merged.append(skip)
    if len(merged) == 1:
        return merged[0]
    plain = [skip for skip in merged if not isinstance(skip, _InSteps)]

    def skip_all(data: bytes, at: int) -> int:
        for skip in plain:
            at = skip(data, at)
        return at

    def skip_all_in_steps(data: bytes, at: int) -> Steps[int]:
        for skip in merged:
            at = (yield from skip.steps(data, at)) if isinstance(skip, _InSteps) else skip(data, at)
        return at

    return skip_all if len(plain) == len(merged) else _InSteps(skip_all_in_steps)


def _skip_array(skip_item: Skip, flexible: bool) -> Skip:
    if isinstance(skip_item, _Fixed):
        size = skip_item.size

        def skip_fixed(data: bytes, at: int) -> int:
            count, at = _count(data, at, flexible=flexible)
            return at + count * size

        return skip_fixed

    if isinstance(skip_item, _InSteps):
        skip_in_steps = skip_item.steps

        def skip_large(data: bytes, at: int) -> Steps[int]:
            count, at = _count(data, at, flexible=flexible)
            for _ in range(count):  # no item is empty, so this ends with the bytes
                at = yield from skip_in_steps(data, at)
                yield 1
            return at

        return _InSteps(skip_large)

    skip_at_once = skip_item

    def skip(data: bytes, at: int) -> Steps[int]:
        count, at = _count(data, at, flexible=flexible)
        for done in range(1, count + 1):  # as above
            at = skip_at_once(data, at)
            if not done % ENTRIES_PER_STEP:
                yield ENTRIES_PER_STEP
        yield count % ENTRIES_PER_STEP
        return at

    return _InSteps(skip)


def _item(field: Field[Any]) -> Any:  # noqa: ANN401
    """What an array field has arrays of; None when it is no array."""
    for candidate in (field.type, *get_args(field.type)):
        if get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def _count(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """How many items, none for null, and where the first is."""
    if flexible:
        length, at = _varint(data, at)
        return max(0, length - 1), at
    return max(0, _INT32.unpack_from(data, at)[0]), at + _INT32.size


def _skip_compact(data: bytes, at: int) -> int:
    length, at = _varint(data, at)
    return at + max(0, length - 1)


def _skip_string(data: bytes, at: int) -> int:
    return at + _INT16.size + max(0, int(_INT16.unpack_from(data, at)[0]))


def _skip_bytes(data: bytes, at: int) -> int:
    return at + _INT32.size + max(0, int(_INT32.unpack_from(data, at)[0]))


def _skip_tagged(data: bytes, at: int) -> int:
    return at + tagged_fields_size(data, at) if data[at] else at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > _VARINT_BITS_MAX:
            raise IndexError("a length has more than 5 bytes")
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at + 1
