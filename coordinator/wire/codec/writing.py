"""Writers for responses: from a mapping of fields straight to bytes, in steps where there are arrays (see steps.py).

What belongs here: Kafka's primitive types and arrays, in both their forms (KIP-482). kio's classes say which fields a
version has, in which order and of which type; its own writer, in Python, takes five times as long. Fields that a
version lacks are left out; one that is missing from the mapping has its default. Times and durations are ints, in
ms, and throttling is never asked for. Tagged fields are never written, since none says anything that is told here.
An array is whatever has a length and can be gone through once; `Each` makes its items on the way.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from struct import Struct
from types import NoneType
from typing import Any, cast, get_args, get_origin

import msgspec
from kio.static.protocol import Entity

from muster.coordinator.load.room import Room
from muster.coordinator.load.steps import ENTRIES_PER_STEP, WAIT, Steps

Write = Callable[[bytearray, Any], None]


class Output:
    """What was written: whole chunks, and the one that is being written, so that nothing large is ever copied.

    `answer_bytes_max` bounds all of it; `room` is what it shares with others, until it is closed; None: with nobody.
    """

    def __init__(self, start: bytes = b"", *, answer_bytes_max: int, room: Room | None = None) -> None:
        self.chunk = bytearray(start)
        self._chunks: list[bytes] = []
        self._size = 0
        self._answer_bytes_max = answer_bytes_max
        self._room = room

    def cut(self) -> Steps[None]:
        """Begin a new chunk, if this one is long enough, and wait until there is room. Raises AnswerTooLarge."""
        if len(self.chunk) < CHUNK_BYTES:
            return
        self._size += len(self.chunk)
        if self._room is not None:
            self._room.take(len(self.chunk))
        if self._size > self._answer_bytes_max:
            raise AnswerTooLarge(f"it has more than {self._answer_bytes_max} bytes")
        self._chunks.append(bytes(self.chunk))
        self.chunk.clear()
        yield from self.room_given()

    def room_given(self) -> Steps[None]:
        """Wait until there is room."""
        while self._room is not None and not self._room.may_grow(self):
            yield WAIT

    def close(self) -> None:
        """It is written, or not wanted any more."""
        if self._room is not None:
            self._room.give_back(self, self._size)

    def chunks(self) -> list[bytes]:
        """All of it, in its order."""
        if self.chunk or not self._chunks:
            self._chunks.append(bytes(self.chunk))
            self.chunk.clear()
        return self._chunks


WriteInSteps = Callable[[Output, Any], Steps[None]]

CHUNK_BYTES = 65_536

_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_LEGACY_STRING_MAX = 2**15 - 1
_NO_UUID = bytes(16)
_DEFAULTS: Mapping[str, object] = {"throttle_time": 0}


class Unwritable(ValueError):
    """A value does not fit into this version."""


class AnswerTooLarge(Unwritable):
    """The answer is longer than any may be."""


class _AtOnce(msgspec.Struct, frozen=True):
    """What has no arrays is written in one call.

    `bytes_fields`: those that may be long.
    """

    write: Write
    bytes_fields: tuple[str, ...] = ()


class _InSteps(msgspec.Struct, frozen=True):
    """What has arrays."""

    write: WriteInSteps


_Writer = _AtOnce | _InSteps


@cache
def response_writer_in_steps(entity: type[Entity]) -> WriteInSteps:
    """A writer of this kio class; called with the output so far and a mapping. Raises Unwritable."""
    writer = _entity_writer(entity)
    if isinstance(writer, _InSteps):
        return writer.write
    write_at_once = writer.write

    def write(output: Output, values: Mapping[str, Any]) -> Steps[None]:
        yield 1
        write_at_once(output.chunk, values)

    return write


@cache
def _entity_writer(entity: type[Entity]) -> _Writer:
    flexible = bool(entity.__flexible__)
    steps = tuple(
        (field.name, _DEFAULTS.get(field.name, field.default), _field_writer(field, flexible=flexible))
        for field in fields(entity)
        if "tag" not in field.metadata
    )
    plain = tuple((name, default, writer.write) for name, default, writer in steps if isinstance(writer, _AtOnce))
    if len(plain) < len(steps):
        return _InSteps(_entity_writer_in_steps(steps, flexible=flexible))

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, default, put in plain:
            put(out, values[name] if default is MISSING else values.get(name, default))
        if flexible:
            out.append(0)

    kinds = {field.name: field.metadata.get("kafka_type") for field in fields(entity)}
    return _AtOnce(write, tuple(name for name, _, _ in plain if kinds[name] == "bytes"))


def _entity_writer_in_steps(steps: tuple[tuple[str, object, _Writer], ...], *, flexible: bool) -> WriteInSteps:
    def write(output: Output, values: Mapping[str, Any]) -> Steps[None]:
        for name, default, writer in steps:
            value = values[name] if default is MISSING else values.get(name, default)
            if isinstance(writer, _AtOnce):
                writer.write(output.chunk, value)
            else:
                yield from writer.write(output, value)
        if flexible:
            output.chunk.append(0)

    return write


def _field_writer(field: Field[Any], *, flexible: bool) -> _Writer:
    item = None
    for candidate in (field.type, *get_args(field.type)):
        if get_origin(candidate) is tuple:
            item = get_args(candidate)[0]
    if item is not None and is_dataclass(item):
        return _InSteps(_array_writer(_entity_writer(cast("type[Entity]", item)), flexible=flexible))
    primitive = _primitive_writer(field.metadata["kafka_type"], flexible=flexible)
    if item is not None:
        return _InSteps(_array_writer(_AtOnce(primitive), flexible=flexible))
    if NoneType in get_args(field.type) and field.metadata["kafka_type"] in _NULLABLE:
        return _AtOnce(_nullable_writer(primitive, field.metadata["kafka_type"], flexible=flexible))
    return _AtOnce(primitive)


def _struct_writer(form: Struct) -> Write:
    pack = form.pack

    def write(out: bytearray, value: int) -> None:
        out += pack(value)

    return write


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(value)


def _write_uuid(out: bytearray, value: Any) -> None:  # noqa: ANN401 -- a UUID or None
    out += _NO_UUID if value is None else value.bytes


def write_uvarint(out: bytearray, value: int) -> None:
    """An unsigned varint: seven bits a byte, the lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_legacy_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    if len(encoded) > _LEGACY_STRING_MAX:
        raise Unwritable(f"a string of {len(encoded)} bytes, {_LEGACY_STRING_MAX} can be written")
    out += _INT16.pack(len(encoded))
    out += encoded


def _write_legacy_bytes(out: bytearray, value: bytes) -> None:
    out += _INT32.pack(len(value))
    out += value


def _write_compact_string(out: bytearray, value: str) -> None:
    _write_compact_bytes(out, value.encode())


def _write_compact_bytes(out: bytearray, value: bytes) -> None:
    write_uvarint(out, len(value) + 1)
    out += value


_FIXED: dict[str, Write] = {
    "bool": _write_bool,
    "int8": _struct_writer(_INT8),
    "int16": _struct_writer(_INT16),
    "int32": _struct_writer(_INT32),
    "int64": _struct_writer(_INT64),
    "error_code": _struct_writer(_INT16),
    "timedelta_i32": _struct_writer(_INT32),
    "timedelta_i64": _struct_writer(_INT64),
    "datetime_i64": _struct_writer(_INT64),
    "uuid": _write_uuid,
}
_LEGACY: dict[str, Write] = {
    "string": _write_legacy_string,
    "bytes": _write_legacy_bytes,
    "records": _write_legacy_bytes,
}
_COMPACT: dict[str, Write] = {
    "string": _write_compact_string,
    "bytes": _write_compact_bytes,
    "records": _write_compact_bytes,
}
_NULLABLE = frozenset(_LEGACY)


def _primitive_writer(kind: str, *, flexible: bool) -> Write:
    return _FIXED.get(kind) or (_COMPACT if flexible else _LEGACY)[kind]


def _nullable_writer(write_value: Write, kind: str, *, flexible: bool) -> Write:
    null = b"\x00" if flexible else (_INT16 if kind == "string" else _INT32).pack(-1)

    def write(out: bytearray, value: object) -> None:
        if value is None:
            out += null
        else:
            write_value(out, value)

    return write


def _array_writer(item_writer: _Writer, *, flexible: bool) -> WriteInSteps:
    null = b"\x00" if flexible else _INT32.pack(-1)

    def write(output: Output, items: Any) -> Steps[None]:  # noqa: ANN401 -- a collection of what the item's writer takes
        if items is None:
            output.chunk += null
            return
        if flexible:
            write_uvarint(output.chunk, len(items) + 1)
        else:
            output.chunk += _INT32.pack(len(items))
        if isinstance(item_writer, _InSteps):
            for item in items:
                yield from item_writer.write(output, item)
                yield from output.cut()
                yield 1
            return
        uncounted, bytes_fields = 0, item_writer.bytes_fields
        for item in items:
            size = len(output.chunk)
            for name in bytes_fields:
                size += len(item.get(name) or b"")
            if size >= CHUNK_BYTES:
                yield from output.room_given()
            item_writer.write(output.chunk, item)
            uncounted += 1
            if uncounted == ENTRIES_PER_STEP or len(output.chunk) >= CHUNK_BYTES:
                yield from output.cut()
                yield ENTRIES_PER_STEP  # a long one is as many
                uncounted = 0
        yield from output.cut()
        yield uncounted

    return write
