"""How far each field of a message reaches, by kio's schemas, in bytes that nobody decodes.

What belongs here: sizes. What it must not know: what is done with the fields (splicing.py). What skips something is
called with the bytes and an offset, and gives the offset behind it: at once, or in steps (load/steps.py) where there
are arrays of things that have to be looked at one by one. Bytes that end too early raise IndexError, struct.error or
SerialError, or give an offset behind their end.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from struct import Struct
from types import NoneType
from typing import Any, cast, get_args, get_origin

from muster.coordinator.load.steps import ENTRIES_PER_STEP, Steps
from muster.coordinator.wire.codec.reading import tagged_fields_size

SkipAtOnce = Callable[[bytes, int], int]

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


class SkipInSteps:
    """Skips what has arrays of things that have to be looked at."""

    __slots__ = ("steps",)

    def __init__(self, steps: Callable[[bytes, int], Steps[int]]) -> None:
        self.steps = steps


Skip = SkipAtOnce | SkipInSteps


def skipped(skip: Skip, data: bytes, at: int) -> Steps[int]:
    """In whichever way."""
    if isinstance(skip, SkipInSteps):
        return (yield from skip.steps(data, at))
    return skip(data, at)


@cache
def _skip_struct(entity: Any) -> Skip:  # noqa: ANN401 -- kio's classes are told apart by their attributes; so below
    skips = [skip_field(entity, field) for field in fields(entity) if "tag" not in field.metadata]
    return in_turn([*skips, skip_tagged] if entity.__flexible__ else skips)


def skip_field(entity: Any, field: Field[Any]) -> Skip:  # noqa: ANN401
    """For a kio class, and a field of it that has no tag."""
    flexible = bool(entity.__flexible__)
    item = item_of(field)
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
        return (yield from skipped(skip, data, at + 1))

    return SkipInSteps(skip_if_there)


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


def in_turn(skips: Sequence[Skip]) -> Skip:
    """One for all of them, where each begins behind the one before."""
    merged: list[Skip] = []
    for skip in skips:
        if isinstance(skip, _Fixed) and merged and isinstance(merged[-1], _Fixed):
            merged[-1] = _Fixed(merged[-1].size + skip.size)
        else:
            merged.append(skip)
    if len(merged) == 1:
        return merged[0]
    plain = [skip for skip in merged if not isinstance(skip, SkipInSteps)]

    def skip_all(data: bytes, at: int) -> int:
        for skip in plain:
            at = skip(data, at)
        return at

    def skip_all_in_steps(data: bytes, at: int) -> Steps[int]:
        for skip in merged:
            at = (yield from skip.steps(data, at)) if isinstance(skip, SkipInSteps) else skip(data, at)
        return at

    return skip_all if len(plain) == len(merged) else SkipInSteps(skip_all_in_steps)


def _skip_array(skip_item: Skip, flexible: bool) -> Skip:
    if isinstance(skip_item, _Fixed):
        size = skip_item.size

        def skip_fixed(data: bytes, at: int) -> int:
            count, at = count_at(data, at, flexible=flexible)
            return at + count * size

        return skip_fixed

    if isinstance(skip_item, SkipInSteps):
        skip_in_steps = skip_item.steps

        def skip_large(data: bytes, at: int) -> Steps[int]:
            count, at = count_at(data, at, flexible=flexible)
            for _ in range(count):  # no item is empty, so this ends with the bytes
                at = yield from skip_in_steps(data, at)
                yield 1
            return at

        return SkipInSteps(skip_large)

    skip_at_once = skip_item

    def skip(data: bytes, at: int) -> Steps[int]:
        count, at = count_at(data, at, flexible=flexible)
        for done in range(1, count + 1):  # as above
            at = skip_at_once(data, at)
            if not done % ENTRIES_PER_STEP:
                yield ENTRIES_PER_STEP
        yield count % ENTRIES_PER_STEP
        return at

    return SkipInSteps(skip)


def item_of(field: Field[Any]) -> Any:  # noqa: ANN401
    """What an array field has arrays of; None when it is no array."""
    for candidate in (field.type, *get_args(field.type)):
        if get_origin(candidate) is tuple:
            return get_args(candidate)[0]
    return None


def count_at(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """How many items, none for null, and where the first is."""
    if flexible:
        length, at = varint_at(data, at)
        return max(0, length - 1), at
    return max(0, _INT32.unpack_from(data, at)[0]), at + _INT32.size


def _skip_compact(data: bytes, at: int) -> int:
    length, at = varint_at(data, at)
    return at + max(0, length - 1)


def _skip_string(data: bytes, at: int) -> int:
    return at + _INT16.size + max(0, int(_INT16.unpack_from(data, at)[0]))


def _skip_bytes(data: bytes, at: int) -> int:
    return at + _INT32.size + max(0, int(_INT32.unpack_from(data, at)[0]))


def skip_tagged(data: bytes, at: int) -> int:
    """The tagged fields at the end of a struct."""
    return at + tagged_fields_size(data, at) if data[at] else at + 1


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and the offset behind it."""
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
