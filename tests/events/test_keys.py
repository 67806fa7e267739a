"""Keys: which entity an event is about, and the bytes that compaction compares."""

import io

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from muster import schemas
from muster.events.avro.codec import header_of
from muster.events.events import EVENT_TYPES, GroupEvent, MemberEvent
from muster.events.keys import KEY_HEADER, EntityKind, RecordKey, decode_key, encode_key, key_of
from muster.events.records import UndecodableKey
from tests.events.strategies import events, events_of, record_keys

SCHEMA = parse_schema(schemas.record_key_schema())
KEY = RecordKey("orders", EntityKind.STATIC_MEMBER, "i" * 70)


def test_the_bytes_of_a_key_never_change() -> None:
    """Compaction compares bytes: another encoding of the same entity would be another entity."""
    assert encode_key(RecordKey("orders", EntityKind.DYNAMIC_MEMBER, "m-1")).hex() == (
        "c30156fe2187931a8c280c6f726465727304066d2d31"
    )


def test_the_header_is_the_fingerprint_of_the_schema() -> None:
    """The literal in the module equals the schema's."""
    assert header_of(schemas.record_key_schema()) == KEY_HEADER
    (kinds,) = (field["type"] for field in schemas.record_key_schema()["fields"] if field["name"] == "kind")
    assert kinds["symbols"] == list(EntityKind)


@given(record_keys())
def test_a_key_survives_the_round_trip_and_is_what_fastavro_writes(key: RecordKey) -> None:
    """A key decodes to itself, and its body is Avro to others."""
    encoded = encode_key(key)
    assert decode_key(encoded) == key
    fields = {"group_id": key.group_id, "kind": str(key.kind), "entity_id": key.entity_id}
    assert schemaless_reader(io.BytesIO(encoded[10:]), SCHEMA, None) == fields
    written = io.BytesIO()
    schemaless_writer(written, SCHEMA, fields)
    assert KEY_HEADER + written.getvalue() == encoded


def test_a_key_cut_anywhere_is_undecodable() -> None:
    """No part of a key is a key."""
    encoded = encode_key(KEY)
    for length in range(len(encoded)):
        with pytest.raises(UndecodableKey):
            decode_key(encoded[:length])


def test_bytes_behind_a_key_make_it_undecodable() -> None:
    """A key is whole."""
    with pytest.raises(UndecodableKey):
        decode_key(encode_key(KEY) + b"\0")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("0c6f72646572730c00", id="a kind that is none"),
        pytest.param("02ff0000", id="not UTF-8"),
        pytest.param("010000", id="a negative length"),
        pytest.param("000001", id="a negative length of the entity's"),
        pytest.param("808080808080808080808080010000", id="an endless number"),
        pytest.param("ffffffffffffffffff7f", id="a number over 64 bits"),
    ],
)
def test_a_malformed_key_is_undecodable(body: str) -> None:
    """Each way in which a body can be wrong has the one error."""
    with pytest.raises(UndecodableKey):
        decode_key(KEY_HEADER + bytes.fromhex(body))


@given(st.binary(max_size=60))
def test_no_bytes_raise_another_exception(body: bytes) -> None:
    """Whatever follows the header, it is a key or undecodable."""
    try:
        key = decode_key(KEY_HEADER + body)
    except UndecodableKey:
        return
    assert decode_key(encode_key(key)) == key


def test_a_foreign_header_is_undecodable() -> None:
    """The first ten bytes are those of the schema and no others."""
    with pytest.raises(UndecodableKey, match="c30256fe"):
        decode_key(b"\xc3\x02" + encode_key(KEY)[2:])


@given(st.one_of(*(events_of(t) for t in EVENT_TYPES if issubclass(t, MemberEvent))))
def test_a_member_goes_under_its_instance_id_or_else_its_member_id(event: MemberEvent) -> None:
    """Static and dynamic members have different kinds, so equal ids do not collide."""
    if event.member.group_instance_id is None:
        expected = RecordKey(event.group_id, EntityKind.DYNAMIC_MEMBER, event.member.member_id)
    else:
        expected = RecordKey(event.group_id, EntityKind.STATIC_MEMBER, event.member.group_instance_id)
    assert key_of(event) == expected  # type: ignore[arg-type]


@given(st.one_of(*(events_of(t) for t in EVENT_TYPES if issubclass(t, GroupEvent))))
def test_an_event_of_the_group_goes_under_the_group_itself(event: GroupEvent) -> None:
    """The group's own key has an empty entity id."""
    assert key_of(event) == RecordKey(event.group_id, EntityKind.GROUP, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "entity_id"),
    [
        ("CoordinatorElected", "coordinator"),
        ("CoordinatorReady", "ready"),
        ("CoordinatorPaused", "paused"),
        ("CoordinatorStopped", "stopped"),
    ],
)
@given(data=st.data())
def test_an_event_of_the_partition_goes_under_its_number(name: str, entity_id: str, data: st.DataObject) -> None:
    """Each type has its own key, so none compacts another."""
    (event_type,) = (t for t in EVENT_TYPES if t.__name__ == name)
    event = data.draw(events_of(event_type))
    assert key_of(event) == RecordKey(str(event.partition), EntityKind.PARTITION, entity_id)


@given(events())
def test_every_event_has_a_key_that_can_be_written(event: object) -> None:
    """No event type is without a key."""
    assert decode_key(encode_key(key_of(event))) == key_of(event)  # type: ignore[arg-type]
