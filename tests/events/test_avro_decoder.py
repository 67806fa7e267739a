"""The makers of coders: schema resolution, what they emit, what they refuse."""

import copy
import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fastavro import parse_schema, schemaless_writer

from muster.events.avro import codec
from muster.events.avro.codec import Registry, header_of
from muster.events.avro.decoder import compile_decoder, decoder_source
from muster.events.avro.encoder import compile_encoder
from muster.events.avro.schema import Schema
from muster.events.causes import Cause
from muster.events.events import EVENT_TYPES, AnyRecordedEvent, GroupAdvanced, GroupCreated, MemberJoined, Why
from muster.events.records import BrokenRecord
from tests.events.samples import full_event

HEADER = bytes(10)


def newest(event_type: type[AnyRecordedEvent]) -> Schema:
    return copy.deepcopy(codec.REGISTRY.newest_schema_of(event_type))


def field_of(schema: Schema, *path: str) -> Schema:
    """The field at the path of names: of the record, of the record that this field is, and so on."""
    (field,) = (field for field in schema["fields"] if field["name"] == path[0])
    return field_of(field["type"], *path[1:]) if path[1:] else field


def without(schema: Schema, *path: str) -> Schema:
    """The schema as if it had never had the field."""
    record = field_of(schema, *path[:-1])["type"] if len(path) > 1 else schema
    record["fields"].remove(field_of(schema, *path))
    return schema


def written(schema: Schema, event: dict[str, Any]) -> bytes:
    """A value as a writer with this schema leaves it."""
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(copy.deepcopy(schema)), event)
    return header_of(copy.deepcopy(schema)) + body.getvalue()


def plain(event: AnyRecordedEvent) -> dict[str, Any]:
    event_as_dictionary: dict[str, Any] = msgspec.to_builtins(event, builtin_types=(bytes,))
    return event_as_dictionary


def decoder(writer: Schema, event_type: type[msgspec.Struct], reader: Schema | None = None) -> Callable[[bytes], Any]:
    return compile_decoder(writer, reader or writer, event_type, {})


# Older and newer schemas.


def test_a_field_that_the_writer_lacked_takes_the_default_of_the_newest_schema() -> None:
    """An old log stays readable; the default is the schema's, not the class's."""
    reader = newest(GroupAdvanced)
    field_of(reader, "why", "client_id")["default"] = None
    field_of(reader, "why", "parked_ms")["default"] = 17
    field_of(reader, "group")["default"] = plain(full_event(GroupAdvanced))["group"]
    old = without(without(without(newest(GroupAdvanced), "why", "client_id"), "why", "parked_ms"), "group")
    event = full_event(GroupAdvanced)
    read = compile_decoder(old, reader, GroupAdvanced, {})(written(old, plain(event)))
    why = msgspec.structs.replace(event.why, client_id=None, parked_ms=17)
    assert read == msgspec.structs.replace(event, why=why)


def test_defaults_that_are_empty_lists_and_bytes_are_of_the_class_types() -> None:
    """A list becomes a tuple, a string of Avro's becomes bytes."""
    reader = newest(MemberJoined)
    field_of(reader, "member", "protocols")["default"] = []
    field_of(reader, "member", "assignment")["default"] = ""
    old = without(without(newest(MemberJoined), "member", "protocols"), "member", "assignment")
    read = compile_decoder(old, reader, MemberJoined, {})(written(old, plain(full_event(MemberJoined))))
    assert (read.member.protocols, read.member.assignment) == ((), b"")


@pytest.mark.parametrize(
    ("extra", "value"),
    [
        ("int", 5),
        ("long", 2**50),
        ("boolean", True),
        ("string", "é"),
        ("bytes", b"\0" * 300),
        (["null", "string"], None),
        (["null", "string", "long"], 7),
        ({"type": "array", "items": "string"}, ["a", "b"]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        ({"type": "enum", "name": "Colour", "symbols": ["Red", "Green"]}, "Green"),
        ({"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}),
        ({"type": "array", "items": {"type": "map", "values": ["null", "bytes"]}}, [{"a": None, "b": b"c"}]),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
@pytest.mark.parametrize("last", [False, True], ids=["inside", "last"])
def test_a_field_that_the_class_does_not_have_is_read_past(extra: Any, value: Any, last: bool) -> None:
    """A field that is gone by now does not matter, in the event or deep inside it."""
    writer = newest(MemberJoined)
    field = {"name": "gone", "type": extra}
    event = full_event(MemberJoined)
    fields = plain(event)
    if last:
        writer["fields"].append(field)
        fields["gone"] = value
    else:
        field_of(writer, "member")["type"]["fields"].insert(3, field)
        fields["member"]["gone"] = value
    decode = decoder(writer, MemberJoined, newest(MemberJoined))
    encoded = written(writer, fields)
    assert decode(encoded) == decode(encoded) == event
    for length in range(10, len(encoded)):
        with pytest.raises((BrokenRecord, IndexError, UnicodeDecodeError)):
            decode(encoded[:length])


def test_a_field_may_become_optional() -> None:
    """A field that was always written is still read where it may be missing now."""
    writer = newest(GroupAdvanced)
    field = field_of(writer, "why", "client_id")
    field["type"] = "string"
    del field["default"]
    event = full_event(GroupAdvanced)
    assert decoder(writer, GroupAdvanced)(written(writer, plain(event))) == event


def test_the_order_of_fields_and_of_symbols_is_the_writers() -> None:
    """Resolution is by name."""
    writer = newest(GroupAdvanced)
    field_of(writer, "group", "state")["type"]["symbols"].reverse()
    field_of(writer, "group")["type"]["fields"][2:] = reversed(field_of(writer, "group")["type"]["fields"][2:])
    event = full_event(GroupAdvanced)
    assert decoder(writer, GroupAdvanced)(written(writer, plain(event))) == event


def test_the_registry_reads_every_form_of_an_event_and_writes_that_of_the_level() -> None:
    """A log may hold two forms of one event; a reader does not notice. A level without a form has that of the last."""
    new = newest(GroupAdvanced)
    field_of(new, "why", "parked_ms")["default"] = 0
    old = without(newest(GroupAdvanced), "why", "parked_ms")
    registry = Registry({1: [old], 2: [new]})
    event = full_event(GroupAdvanced)
    old_value, new_value = written(old, plain(event)), written(new, plain(event))
    for _ in range(2):
        assert registry.decode(new_value) == event
        assert registry.decode(old_value).why.parked_ms == 0  # type: ignore[union-attr]
    assert [registry.encode(event, level) for level in (1, 2, 3)] == [old_value, new_value, new_value]
    with pytest.raises(ValueError, match="GroupCreated cannot be written in a log of format level 1"):
        registry.encode(full_event(GroupCreated), 1)
    assert registry.event_type_of(old_value) is GroupAdvanced


def test_forms_of_the_last_field_are_distinguished() -> None:
    """The bytes of a `why` of another form are not taken for those of this one, even when they are the same."""
    new = newest(GroupAdvanced)
    why = field_of(new, "why")["type"]
    why["fields"] = [why["fields"][0], {"name": "arrived_ms", "type": "long"}, {"name": "decided_ms", "type": "long"}]
    swapped = copy.deepcopy(new)
    field_of(swapped, "why")["type"]["fields"][1:] = reversed(why["fields"][1:])
    known: dict[str, Any] = {}
    reader = newest(GroupAdvanced)
    for name in ("parked_ms", "arrived_ms", "decided_ms"):
        field_of(reader, "why", name)["default"] = 0
    value = written(new, plain(full_event(GroupAdvanced)) | {"why": {"cause": "x", "arrived_ms": 1, "decided_ms": 2}})
    one = compile_decoder(new, reader, GroupAdvanced, known)(value)
    other = compile_decoder(swapped, reader, GroupAdvanced, known)(value)
    assert one.why == Why(cause=Cause.UNKNOWN, arrived_ms=1, decided_ms=2)
    assert other.why == Why(cause=Cause.UNKNOWN, arrived_ms=2, decided_ms=1)


# Schemas that are refused immediately, not with the first event.


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def thing(*fields: Schema) -> Schema:
    return {"type": "record", "name": "Thing", "fields": list(fields)}


@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        (thing({"name": "size", "type": "int"}), "Thing.name: the writer's schema lacks it"),
        (thing({"name": "name", "type": "int"}), "name: the Avro type 'int' does not fit"),
        (thing({"name": "name", "type": ["null", "string"]}), "name: the Avro type 'null' does not fit"),
        (thing({"name": "name", "type": "double"}), "name: no decoder for the Avro type 'double'"),
        (thing({"name": "pos", "type": "int"}, {"name": "name", "type": "string"}), "pos: the decoder reserves this"),
    ],
)
def test_a_schema_that_cannot_become_the_class_is_refused(writer: Schema, reason: str) -> None:
    """The reason names the field."""
    with pytest.raises(ValueError, match=reason):
        decoder(writer, Thing)


def test_a_symbol_that_the_class_does_not_have_is_refused() -> None:
    """A state that this version does not know has a schema that it does not know."""
    writer = newest(GroupAdvanced)
    field_of(writer, "group", "state")["type"]["symbols"].append("Confused")
    with pytest.raises(ValueError, match="Confused"):
        decoder(writer, GroupAdvanced)


@pytest.mark.parametrize("kind", ["double", ["null", "int", "string"], ["int", "string"]], ids=str)
def test_an_encoder_refuses_what_no_schema_of_ours_uses(kind: Any) -> None:
    """The reason names the field."""
    with pytest.raises(ValueError, match="name: no encoder"):
        compile_encoder(thing({"name": "name", "type": kind}), HEADER, {})


def test_the_source_matches_its_documentation() -> None:
    """The sample in the module's docstring is what comes out."""
    fields = [{"name": "name", "type": "string"}]
    source, _ = decoder_source(thing(*fields), thing(*fields), Thing, {})
    assert source == (
        "def decode(data):\n"
        "    pos = 10\n"
        "    n = data[pos]\n"
        "    pos += 1\n"
        "    if n & 129:\n"
        "        n, pos = read_length(data, pos, n)\n"
        "    end = pos + (n >> 1)\n"
        "    name = data[pos:end].decode()\n"
        "    pos = end\n"
        "    if pos != len(data):\n"
        "        raise BrokenRecord('the value has %d bytes, but its fields end at byte %d' % (len(data), pos))\n"
        "    return Thing(name=name)\n"
    )


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
def test_encoded_events_are_decoded_with_the_same_schema(event_type: type[AnyRecordedEvent]) -> None:
    """The two makers agree without the registry between them."""
    schema, event = newest(event_type), full_event(event_type)
    assert decoder(schema, event_type)(compile_encoder(schema, HEADER, {})(event)) == event
