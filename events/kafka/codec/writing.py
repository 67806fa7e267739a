"""Writers for responses: from a mapping of fields straight to bytes, in steps if there are arrays.

Writes Kafka's primitive types and arrays, in both their forms (KIP-482). kio's classes give a version's fields, their
order and types; kio's own writer, in Python, takes five times as long. Fields that a version lacks are left out; a
field that the mapping lacks gets its default. Times and durations are ints in ms; throttle times are always 0. Tagged
fields are never written, since Muster has nothing to report in them. An array is any iterable with a length, which is
iterated once; `Each` makes its items on the fly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from struct import Struct
from typing import Any, Protocol

from muster.events.kafka.codec.primitives import FIXED, INT16, INT32, write_uvarint
from muster.events.kafka.codec.walk import AtOnce, Entity, Field, InSteps, flatten_parts, make_for
from muster.events.steps import ENTRIES_PER_STEP, WAIT, Steps

WriteField = Callable[[bytearray, Any], None]


class SharedMemory(Protocol):
    """The memory that responses share while they are written: see `AnswerMemory` in
    coordinator/load/answer_memory.py.
    """

    def take(self, size: int) -> None: ...

    def may_grow(self, answer: object) -> bool: ...

    def give_back(self, answer: object, size: int) -> None: ...


class Output:
    """The output of a writer: complete chunks, and the current one, so that nothing large is ever copied.

    `answer_bytes_max` bounds all of it; `answer_memory` is shared with other responses until it is closed; None: not
    shared.
    """

    def __init__(self, start: bytes = b"", *, answer_bytes_max: int, answer_memory: SharedMemory | None = None) -> None:
        self.chunk = bytearray(start)
        self._chunks: list[bytes] = []
        self._size = 0
        self._answer_bytes_max = answer_bytes_max
        self._answer_memory = answer_memory

    def cut(self) -> Steps[None]:
        """Begin a new chunk if the current one is long enough, and wait until there is room. Raises AnswerTooLarge."""
        if len(self.chunk) < CHUNK_BYTES:
            return
        self._size += len(self.chunk)
        if self._answer_memory is not None:
            self._answer_memory.take(len(self.chunk))
        if self._size > self._answer_bytes_max:
            raise AnswerTooLarge(f"it has more than {self._answer_bytes_max} bytes")
        self._chunks.append(bytes(self.chunk))
        self.chunk.clear()
        yield from self.room_given()

    def room_given(self) -> Steps[None]:
        """Wait until there is room."""
        while self._answer_memory is not None and not self._answer_memory.may_grow(self):
            yield WAIT

    def close(self) -> None:
        """Release the memory: the response is written, or no longer needed."""
        if self._answer_memory is not None:
            self._answer_memory.give_back(self, self._size)

    def chunks(self) -> list[bytes]:
        """Return all chunks, in order; at least one."""
        return [*self._chunks, bytes(self.chunk)] if self.chunk or not self._chunks else self._chunks


WriteInSteps = Callable[[Output, Any], Steps[None]]

CHUNK_BYTES = 65_536

_LEGACY_STRING_MAX = 2**15 - 1
_NO_UUID = bytes(16)
_pack_int16, _pack_int32 = INT16.pack, INT32.pack
_DEFAULTS: Mapping[str, object] = {"throttle_time": 0}


class Unwritable(ValueError):
    """A value does not fit into this version."""


class AnswerTooLarge(Unwritable):
    """The response exceeds the limit for all responses."""


class _LongAtOnce(AtOnce[WriteField], frozen=True):
    """The writer of a struct; `bytes_fields`: those that may be long."""

    bytes_fields: tuple[str, ...]


_Writer = AtOnce[WriteField] | InSteps[WriteInSteps]


@cache
def writer_in_steps(entity: Entity) -> WriteInSteps:
    """Build a writer of this kio class; called with the output so far and a mapping. It raises Unwritable."""
    writer = make_for(entity, _Writers())
    if isinstance(writer, InSteps):
        return writer.call
    write_at_once = writer.call

    def write(output: Output, values: Mapping[str, Any]) -> Steps[None]:
        yield 1
        write_at_once(output.chunk, values)

    return write


class _Writers:
    """Makes writers (see walk.py)."""

    def plain(self, field: Field) -> _Writer:
        kind, is_nullable = field.kafka_type, field.is_nullable and not field.is_array
        write = _FIXED.get(kind) or (_COMPACT if field.is_flexible else _LEGACY)[kind]
        if is_nullable and kind in _NULLABLE:
            return AtOnce(_nullable_writer(write, kind, flexible=field.is_flexible))
        return AtOnce(write)

    def struct(self, entity: Entity, parts: Sequence[tuple[Field, _Writer]]) -> _Writer:
        flexible = bool(entity.__flexible__)
        steps = tuple(
            (field.name, _DEFAULTS.get(field.name, field.default), call, is_in_steps)
            for field, call, is_in_steps in flatten_parts(parts)
        )
        if any(is_in_steps for *_, is_in_steps in steps):
            return InSteps(_struct_writer_in_steps(steps, flexible=flexible))
        bytes_fields = tuple(field.name for field, _ in parts if field.kafka_type == "bytes")
        return _LongAtOnce(_struct_writer(tuple(step[:3] for step in steps), flexible=flexible), bytes_fields)

    def optional(self, _field: Field, struct: _Writer) -> _Writer:
        def write(output: Output, values: Any) -> Steps[None]:  # noqa: ANN401 -- None, or what the struct's writer takes
            if values is None:
                output.chunk += b"\xff"
                return
            output.chunk += b"\x01"
            if isinstance(struct, InSteps):
                yield from struct.call(output, values)
            else:
                struct.call(output.chunk, values)

        return InSteps(write)

    def array(self, field: Field, item: _Writer) -> _Writer:
        null = b"\x00" if field.is_flexible else INT32.pack(-1)
        write_items = _items(item.call) if isinstance(item, InSteps) else _items_at_once(item)

        def write(output: Output, items: Any) -> Steps[None]:  # noqa: ANN401 -- a collection of what the item's writer takes
            if items is None:
                output.chunk += null
                return
            if field.is_flexible:
                write_uvarint(output.chunk, len(items) + 1)
            else:
                output.chunk += INT32.pack(len(items))
            yield from write_items(output, items)

        return InSteps(write)


def _struct_writer(steps: tuple[tuple[str, object, WriteField], ...], *, flexible: bool) -> WriteField:
    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, default, put in steps:
            put(out, values[name] if default is MISSING else values.get(name, default))
        if flexible:
            out.append(0)

    return write


def _struct_writer_in_steps(steps: tuple[tuple[str, object, Any, bool], ...], *, flexible: bool) -> WriteInSteps:
    def write(output: Output, values: Mapping[str, Any]) -> Steps[None]:
        for name, default, write_value, is_in_steps in steps:
            value = values[name] if default is MISSING else values.get(name, default)
            if is_in_steps:
                yield from write_value(output, value)
            else:
                write_value(output.chunk, value)
        if flexible:
            output.chunk.append(0)

    return write


def _number_writer(form: Struct) -> WriteField:
    pack = form.pack

    def write(out: bytearray, value: int) -> None:
        out += pack(value)

    return write


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(value)


def _write_uuid(out: bytearray, value: Any) -> None:  # noqa: ANN401 -- a UUID or None
    out += _NO_UUID if value is None else value.bytes


def _write_legacy_string(out: bytearray, value: str) -> None:
    encoded = value.encode()
    if len(encoded) > _LEGACY_STRING_MAX:
        raise Unwritable(f"a string of {len(encoded)} bytes, {_LEGACY_STRING_MAX} can be written")
    out += _pack_int16(len(encoded))
    out += encoded


def _write_legacy_bytes(out: bytearray, value: bytes) -> None:
    out += _pack_int32(len(value))
    out += value


def _write_compact_string(out: bytearray, value: str) -> None:
    _write_compact_bytes(out, value.encode())


def _write_compact_bytes(out: bytearray, value: bytes) -> None:
    write_uvarint(out, len(value) + 1)
    out += value


_FIXED: dict[str, WriteField] = {
    **{kind: _number_writer(form) for kind, form in FIXED.items()},
    "bool": _write_bool,
    "uuid": _write_uuid,
}
_LEGACY: dict[str, WriteField] = {
    "string": _write_legacy_string,
    "bytes": _write_legacy_bytes,
    "records": _write_legacy_bytes,
}
_COMPACT: dict[str, WriteField] = {
    "string": _write_compact_string,
    "bytes": _write_compact_bytes,
    "records": _write_compact_bytes,
}
_NULLABLE = frozenset(_LEGACY)


def _nullable_writer(write_value: WriteField, kind: str, *, flexible: bool) -> WriteField:
    null = b"\x00" if flexible else (INT16 if kind == "string" else INT32).pack(-1)

    def write(out: bytearray, value: object) -> None:
        if value is None:
            out += null
        else:
            write_value(out, value)

    return write


def _items(write_item: WriteInSteps) -> WriteInSteps:
    def write(output: Output, items: Any) -> Steps[None]:  # noqa: ANN401 -- as above
        for item in items:
            yield from write_item(output, item)
            yield from output.cut()
            yield 1

    return write


def _items_at_once(item_writer: AtOnce[WriteField]) -> WriteInSteps:
    write_item = item_writer.call
    bytes_fields = item_writer.bytes_fields if isinstance(item_writer, _LongAtOnce) else ()

    def write(output: Output, items: Any) -> Steps[None]:  # noqa: ANN401 -- as above
        uncounted = 0
        for item in items:
            size = len(output.chunk)
            for name in bytes_fields:
                size += len(item.get(name) or b"")
            if size >= CHUNK_BYTES:
                yield from output.room_given()
            write_item(output.chunk, item)
            uncounted += 1
            if uncounted == ENTRIES_PER_STEP or len(output.chunk) >= CHUNK_BYTES:
                yield from output.cut()
                yield ENTRIES_PER_STEP  # a long one counts as many
                uncounted = 0
        yield from output.cut()
        yield uncounted

    return write
