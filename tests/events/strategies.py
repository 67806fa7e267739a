"""Arbitrary valid events of every type, for property tests. `events()` is any of them, `events_of(type)` one type.

The values follow from the classes and their schemas: a new field is covered as soon as it has a type known here.
"""

import functools
import types
import typing
from typing import Any

import msgspec
from hypothesis import strategies as st

from muster.events.avro import codec
from muster.events.causes import Cause
from muster.events.connection import ConnectionEnd
from muster.events.events import EVENT_TYPES, AnyEvent, AnyRecordedEvent, PartitionEvent
from muster.events.keys import EntityKind, RecordKey
from muster.events.ownership import OwnershipEndCause
from muster.events.state import HandedOutIdOutcome

INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(1_500_000_000_000, 2_000_000_000_000)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=10) | st.sampled_from(("", "m" * 64, "😀" * 4000))
"""Some are long enough that their length takes two or three bytes."""
BYTES = st.binary(max_size=10) | st.sampled_from((b"", b"b" * 64, bytes(10_000)))


@functools.cache
def events_of(event_type: type[AnyRecordedEvent]) -> st.SearchStrategy[Any]:
    """Events of one type."""
    return _structs(event_type, codec.REGISTRY.newest_schema_of(event_type))


def events() -> st.SearchStrategy[AnyRecordedEvent]:
    """Events of all types, those of partitions as well."""
    return st.one_of(*(events_of(event_type) for event_type in EVENT_TYPES))


def group_and_member_events() -> st.SearchStrategy[AnyEvent]:
    """Events of groups and members, each with any ids: they make no history of a group."""
    return st.one_of(*(events_of(t) for t in EVENT_TYPES if not issubclass(t, PartitionEvent)))


def record_keys() -> st.SearchStrategy[RecordKey]:
    return st.builds(RecordKey, TEXTS, st.sampled_from(EntityKind), TEXTS)


def _structs(cls: type[msgspec.Struct], schema: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    return st.builds(cls, **{name: _values(hints[name], fields[name]) for name in cls.__struct_fields__})


def _values(hint: Any, schema: Any) -> st.SearchStrategy[Any]:
    """Values of the annotated type that the Avro type can hold."""
    if isinstance(schema, list):
        return st.one_of(*(_values(_branch(hint, branch), branch) for branch in schema))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "string" and hint in (Cause, HandedOutIdOutcome, OwnershipEndCause, ConnectionEnd):
        return st.sampled_from([value for value in hint if value is not hint.UNKNOWN])
    match kind:
        case "array":
            return st.lists(_values(typing.get_args(hint)[0], schema["items"]), max_size=5).map(tuple)
        case "map":
            return st.dictionaries(TEXTS, _values(typing.get_args(hint)[1], schema["values"]), max_size=5)
        case "record":
            return _structs(hint, schema)
    plain = {"int": INTS, "long": LONGS, "string": TEXTS, "bytes": BYTES, "boolean": st.booleans(), "null": st.none()}
    return plain[kind] if kind in plain else st.sampled_from(hint)


def _branch(hint: Any, schema: Any) -> Any:
    if not isinstance(hint, types.UnionType) or schema == "null":
        return None if schema == "null" else hint
    (other,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    return other
