"""Readers of requests and responses that trust no length in a message, and skip unknown tagged fields.

kio's own reader trusts the length of an array and allocates that much memory at once; with a length that only a broken
or hostile client would send, that kills the process. It also refuses unknown tagged fields, which must be skipped
(KIP-482). So a struct that has arrays is read field by field here, and kio reads the fields. kio reads a struct without
arrays as a whole, in a fifth of the time; if that fails at something unknown, it is read again, field by field. Each
array's length is compared with the remaining bytes, as in Kafka's own readers. Durations and times are read as ms,
since a timedelta cannot hold every int64; an unknown error code is read as UNKNOWN_SERVER_ERROR, as in clients.

A sender can fill a message with as many entries as its bytes can hold, so an array's entries are counted before the
first one is read; and a message that may have many is read in steps (see events/steps.py).

A reader takes the buffer and an offset, and returns the value and the number of bytes that it took, as in kio. It
raises kio's DecodeError or ValueError.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, readers
from kio.serial.errors import BufferUnderflow, UnexpectedNull
from kio.static.constants import EntityType

from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.walk import AtOnce, Entity, Field, InSteps, fields_of, flatten_parts, make_for
from muster.events.steps import ENTRIES_PER_STEP, Allowance, Steps

ReadField = Callable[[bytes, int], tuple[Any, int]]
ReadInSteps = Callable[[bytes, int, Allowance], Steps[tuple[Any, int]]]

STRING_BYTES_MAX = 32_767
"""The limit of any string in a request, as in Kafka's readers; the compact form allows more. A group id that a broker
would refuse by closing the connection is thus invalid here too. Responses may have longer strings, such as `members`.
"""

_COMPACT_STRING_SIZE_MAX = STRING_BYTES_MAX + 3  # with its length, a varint

_STEP_BYTES = 1_048_576
"""How many bytes of entries are read in one step, unless a single entry has more."""

_Reader = AtOnce[ReadField] | InSteps[ReadInSteps]

_ERRORS = {error.value: error for error in ErrorCode}


def _read_error_code(buffer: bytes, offset: int) -> tuple[ErrorCode, int]:
    code, size = readers.read_int16(buffer, offset)
    return _ERRORS.get(code, ErrorCode.unknown_server_error), size


def _bounded(read: ReadField) -> ReadField:
    def read_bounded(buffer: bytes, offset: int) -> tuple[Any, int]:
        value, size = read(buffer, offset)
        if size > _COMPACT_STRING_SIZE_MAX:
            raise ValueError(f"a string has more than {STRING_BYTES_MAX} bytes")
        return value, size

    return read_bounded


_TIMES: dict[str, ReadField] = {
    "timedelta_i32": readers.read_int32,
    "timedelta_i64": readers.read_int64,
    "datetime_i64": readers.read_int64,
}
_PRIMITIVES: dict[str, ReadField] = {
    "bool": readers.read_boolean,
    "int8": readers.read_int8,
    "int16": readers.read_int16,
    "uint16": readers.read_uint16,
    "int32": readers.read_int32,
    "int64": readers.read_int64,
    "uuid": readers.read_uuid,
    "error_code": _read_error_code,
    **_TIMES,
}
_OF_ANY_LENGTH: dict[tuple[str, bool, bool], ReadField] = {  # by kind, flexible, nullable
    ("string", False, False): readers.read_legacy_string,
    ("string", False, True): readers.read_nullable_legacy_string,
    ("string", True, False): readers.read_compact_string,
    ("string", True, True): readers.read_compact_string_nullable,
    ("bytes", False, False): readers.read_legacy_bytes,
    ("bytes", True, False): readers.read_compact_string_as_bytes,
    ("records", False, True): readers.read_nullable_legacy_bytes,
    ("records", True, True): readers.read_compact_string_as_bytes_nullable,
}


@cache
def reader_in_steps(entity: Entity) -> ReadInSteps:
    """Build a reader of this kio class that counts entries; it also raises TooManyEntries."""
    reader = make_for(entity, _Readers(has_bound=entity.__type__ is EntityType.request))
    if isinstance(reader, InSteps):
        return reader.call
    read_at_once = reader.call

    def read(buffer: bytes, offset: int, _allowance: Allowance) -> Steps[tuple[Any, int]]:
        yield 1
        return read_at_once(buffer, offset)

    return read


class _Readers:
    """Makes readers (see walk.py). `has_bound`: strings are at most STRING_BYTES_MAX long."""

    def __init__(self, *, has_bound: bool) -> None:
        self._has_bound = has_bound

    def plain(self, field: Field) -> _Reader:
        kind, is_nullable = field.kafka_type, field.is_nullable and not field.is_array
        read = _PRIMITIVES.get(kind) or _OF_ANY_LENGTH[kind, field.is_flexible, is_nullable]
        return AtOnce(_bounded(read) if self._has_bound and kind == "string" and field.is_flexible else read)

    def struct(self, entity: Entity, parts: Sequence[tuple[Field, _Reader]]) -> _Reader:
        flexible = bool(entity.__flexible__)
        at_once = tuple((field.name, reader.call) for field, reader in parts if isinstance(reader, AtOnce))
        if len(at_once) < len(parts):
            steps = flatten_parts((field.name, reader) for field, reader in parts)
            return InSteps(_struct_reader_in_steps(entity, steps, flexible=flexible))
        read = _struct_reader(entity, at_once, flexible=flexible)
        if any(field.tag is not None or field.kafka_type in _TIMES for field in fields_of(entity)):
            return AtOnce(read)
        if flexible or any(field.kafka_type == "error_code" for field, _ in parts):
            of_bytes = tuple(field.name for field, _ in parts if field.kafka_type in {"bytes", "records"})
            bytes_max = STRING_BYTES_MAX if self._has_bound else inf
            return AtOnce(_kios_or(read, entity_reader(entity), of_bytes, bytes_max))
        return AtOnce(entity_reader(entity))

    def optional(self, _field: Field, struct: _Reader) -> _Reader:
        def read(buffer: bytes, offset: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
            is_there, size = readers.read_int8(buffer, offset)
            if is_there < 0:
                return None, size
            at = offset + size
            if isinstance(struct, InSteps):
                value, length = yield from struct.call(buffer, at, allowance)
            else:
                value, length = struct.call(buffer, at)
            return value, size + length

        return InSteps(read)

    def array(self, field: Field, item: _Reader) -> _Reader:
        read_length: ReadField = (
            readers.read_compact_array_length if field.is_flexible else readers.read_legacy_array_length
        )
        read_items = _items_at_once(item.call) if isinstance(item, AtOnce) else _items(item.call)

        def read(buffer: bytes, offset: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
            length, size = read_length(buffer, offset)
            at = offset + size
            if length is None or length == -1:
                if field.is_nullable:
                    return None, size
                raise UnexpectedNull(f"{field.name} was null")
            if not 0 <= length <= len(buffer) - at:  # every item takes at least one byte
                raise BufferUnderflow(f"{field.name} announces {length} items, with {len(buffer) - at} bytes left")
            allowance.take(length)
            items, at = yield from read_items(buffer, at, length, allowance)
            return tuple(items), at - offset

        return InSteps(read)


def _kios_or(
    read_otherwise: ReadField, read_as_kio: ReadField, of_bytes: tuple[str, ...], bytes_max: float
) -> ReadField:
    """Read with kio, or with `read_otherwise` if kio fails or a string may be longer than `bytes_max`.

    `of_bytes`: fields without that limit.
    """

    def read(buffer: bytes, offset: int) -> tuple[Any, int]:
        try:
            result = read_as_kio(buffer, offset)
        except (KeyError, ValueError):  # a tagged field or an error that kio does not know
            return read_otherwise(buffer, offset)
        if result[1] <= bytes_max:
            return result
        rest = result[1] - sum(len(getattr(result[0], name) or b"") for name in of_bytes)
        return result if rest <= bytes_max else read_otherwise(buffer, offset)

    return read


def _struct_reader(entity: Entity, steps: tuple[tuple[str, ReadField], ...], *, flexible: bool) -> ReadField:
    def read(buffer: bytes, offset: int) -> tuple[Any, int]:
        at = offset
        values = {}
        for name, step in steps:
            values[name], size = step(buffer, at)
            at += size
        if flexible:
            at += tagged_fields_size(buffer, at)
        return entity(**values), at - offset

    return read


def _struct_reader_in_steps(entity: Entity, steps: tuple[tuple[str, Any, bool], ...], *, flexible: bool) -> ReadInSteps:
    def read(buffer: bytes, offset: int, allowance: Allowance) -> Steps[tuple[Any, int]]:
        at = offset
        values = {}
        for name, step, is_in_steps in steps:
            values[name], size = (yield from step(buffer, at, allowance)) if is_in_steps else step(buffer, at)
            at += size
        if flexible:
            at += tagged_fields_size(buffer, at)
        return entity(**values), at - offset

    return read


_ReadItems = Callable[[bytes, int, int, Allowance], Steps[tuple[list[Any], int]]]


def _items_at_once(read_item: ReadField) -> _ReadItems:
    def read(buffer: bytes, at: int, length: int, _allowance: Allowance) -> Steps[tuple[list[Any], int]]:
        items: list[Any] = []
        while len(items) < length:
            long = at + _STEP_BYTES
            count = min(ENTRIES_PER_STEP, length - len(items))
            for _ in range(count):
                item, size = read_item(buffer, at)
                items.append(item)
                at += size
                if at > long:
                    count = ENTRIES_PER_STEP  # end the step: a long item costs as much as many short ones
                    break
            yield count
        return items, at

    return read


def _items(read_item: ReadInSteps) -> _ReadItems:
    def read(buffer: bytes, at: int, length: int, allowance: Allowance) -> Steps[tuple[list[Any], int]]:
        items: list[Any] = []
        for _ in range(length):
            item, size = yield from read_item(buffer, at, allowance)
            items.append(item)
            at += size
            yield 1
        return items, at

    return read
