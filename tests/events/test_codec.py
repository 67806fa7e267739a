"""Events as bytes: round trips, an independent decoder, and everything that is not an event."""

import io

import msgspec
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import schemas
from muster.events.avro import codec
from muster.events.avro.codec import (
    Registry,
    decode,
    decode_numbers,
    decode_partially,
    encode,
    event_type_of,
    header_of,
    records_of,
)
from muster.events.avro.partial import PartialEvent, PartialGroupEvent
from muster.events.causes import Cause
from muster.events.events import (
    EVENT_TYPES,
    AnyRecordedEvent,
    CoordinatorElected,
    GroupAdvanced,
    GroupDeleted,
    GroupEvent,
    MemberAssigned,
    MemberJoined,
    MemberRemoved,
    PartitionEvent,
)
from muster.events.keys import encode_key, key_of
from muster.events.records import FORMAT_LEVEL, BrokenRecord, Record, UnknownEventType
from tests.events.samples import full_event
from tests.events.strategies import events, events_of, group_and_member_events

EVERY_TYPE = pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
FEW = settings(max_examples=25)
"""For each of the 18 types."""
FIRST_FIELDS = ("group_id", "incarnation", "seq")
PARSED = {event_type: parse_schema(codec.REGISTRY.newest_schema_of(event_type)) for event_type in EVENT_TYPES}


def header_of_newest(event_type: type[AnyRecordedEvent]) -> bytes:
    return header_of(codec.REGISTRY.newest_schema_of(event_type))


def new_registry() -> Registry:
    """Return a registry whose coders have seen nothing yet."""
    return Registry({level: schemas.event_schemas(level) for level in schemas.levels()})


# Round trips, and an independent decoder.


@EVERY_TYPE
@FEW
@given(data=st.data())
def test_an_event_survives_the_round_trip(event_type: type[AnyRecordedEvent], data: st.DataObject) -> None:
    """The decoded event equals the encoded one, and its first ten bytes identify its type."""
    event = data.draw(events_of(event_type))
    value = encode(event, FORMAT_LEVEL)
    assert decode(value) == event
    assert event_type_of(value) is event_type


@EVERY_TYPE
@FEW
@given(data=st.data())
def test_fastavro_reads_what_we_write(event_type: type[AnyRecordedEvent], data: st.DataObject) -> None:
    """The body is Avro to a reader that has the schema."""
    event = data.draw(events_of(event_type))
    body = io.BytesIO(encode(event, FORMAT_LEVEL)[10:])
    read = schemaless_reader(body, PARSED[event_type], None)
    assert msgspec.convert(read, event_type, builtin_types=(bytes,)) == event
    assert body.read() == b""


@EVERY_TYPE
@FEW
@given(data=st.data())
def test_fastavro_writes_the_same_bytes(event_type: type[AnyRecordedEvent], data: st.DataObject) -> None:
    """Both write the same bytes, so what one wrote the other reads."""
    event = data.draw(events_of(event_type))
    written = io.BytesIO()
    schemaless_writer(written, PARSED[event_type], msgspec.to_builtins(event, builtin_types=(bytes,)))
    value = header_of_newest(event_type) + written.getvalue()
    assert value == encode(event, FORMAT_LEVEL)
    assert decode(value) == event


def test_the_header_is_little_endian() -> None:
    """The specification's order, which is the reverse of the hexadecimal number as it is usually printed."""
    assert encode(full_event(MemberJoined), 3)[:10].hex() == "c301d3b7e6abb3db4016"


@given(st.lists(events(), max_size=6))
def test_one_event_leaves_nothing_behind_in_the_next(many: list[AnyRecordedEvent]) -> None:
    """The last field is kept from value to value; only equal bytes, or the very same object, may be taken over."""
    values = [encode(event, FORMAT_LEVEL) for event in many]
    assert [decode(value) for value in values] == many
    assert [encode(event, FORMAT_LEVEL) for event in many] == values


def test_the_events_of_a_transition_share_their_why_again_when_read() -> None:
    """Equal bytes of the last field become one object, also across types."""
    first, second = full_event(MemberAssigned), full_event(GroupAdvanced)
    assert first.why is not second.why
    one, other = decode(encode(first, FORMAT_LEVEL)), decode(encode(second, FORMAT_LEVEL))
    assert isinstance(one, MemberAssigned)
    assert isinstance(other, GroupAdvanced)
    assert one.why is other.why


def test_a_cause_that_is_not_known_here_becomes_unknown() -> None:
    """A newer version may have other causes; the event is still a fact."""
    event = full_event(GroupAdvanced)
    value = encode(event, FORMAT_LEVEL).replace(bytes([2 * len("over-capacity")]) + b"over-capacity", b"\x10over-the")
    expected = msgspec.structs.replace(
        event,
        group=msgspec.structs.replace(event.group, emptied_by=Cause.UNKNOWN),
        why=msgspec.structs.replace(event.why, cause=Cause.UNKNOWN),
    )
    assert decode(value) == expected


def test_blocks_with_their_size_are_read() -> None:
    """An array or a map may come in several blocks, each with a negative count and its size in bytes."""
    event = msgspec.structs.replace(full_event(CoordinatorElected), settings={"a": "1" * 62, "b": "2"})
    a, b = b"\x02a\x7c" + b"1" * 62, b"\x02b\x022"
    value = encode(event, FORMAT_LEVEL)
    assert value.endswith(b"\x04" + a + b + b"\x00")
    in_blocks = value.removesuffix(b"\x04" + a + b + b"\x00") + b"\x01\x82\x01" + a + b"\x01\x08" + b + b"\x00"
    assert decode(in_blocks) == event


def test_a_number_that_no_reader_takes_is_not_written() -> None:
    """Better no event than one that quarantines its group."""
    event = full_event(GroupAdvanced)
    with pytest.raises(OverflowError):
        encode(msgspec.structs.replace(event, owner_epoch=2**31), FORMAT_LEVEL)
    with pytest.raises(OverflowError):
        encode(msgspec.structs.replace(event, seq=2**63), FORMAT_LEVEL)


# Bytes that are no event.


@EVERY_TYPE
def test_a_value_cut_anywhere_is_broken(event_type: type[AnyRecordedEvent]) -> None:
    """No part of a value is a value, both for a new decoder and for one that has read the whole."""
    value = encode(full_event(event_type), FORMAT_LEVEL)
    registry = new_registry()
    for _ in range(2):
        for length in range(len(value)):
            with pytest.raises(BrokenRecord):
                registry.decode(value[:length])
        assert registry.decode(value) == full_event(event_type)


@EVERY_TYPE
def test_bytes_behind_a_value_make_it_broken(event_type: type[AnyRecordedEvent]) -> None:
    """Only whole values are accepted, both by a new decoder and by one that has read the whole."""
    value = encode(full_event(event_type), FORMAT_LEVEL)
    registry = new_registry()
    for _ in range(2):
        with pytest.raises(BrokenRecord):
            registry.decode(value + b"\0")
        registry.decode(value)


@EVERY_TYPE
@FEW
@given(body=st.binary(max_size=200))
def test_any_bytes_behind_a_header_are_an_event_or_broken(event_type: type[AnyRecordedEvent], body: bytes) -> None:
    """No other error leaves the decoder."""
    try:
        decode(header_of_newest(event_type) + body)
    except UnknownEventType:
        pytest.fail("the type is known")
    except BrokenRecord:
        return


@EVERY_TYPE
@FEW
@given(data=st.data())
def test_a_changed_byte_makes_another_event_or_a_broken_one(
    event_type: type[AnyRecordedEvent], data: st.DataObject
) -> None:
    """Damage that random bytes would never reach: deep inside a value that is well otherwise."""
    value = bytearray(encode(full_event(event_type), FORMAT_LEVEL))
    value[data.draw(st.integers(10, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        event = decode(bytes(value))
    except BrokenRecord:
        return
    assert decode(encode(event, FORMAT_LEVEL)) == event or event.why.cause is Cause.UNKNOWN  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        pytest.param("", "ends too early", id="nothing"),
        pytest.param("02ff", "not UTF-8", id="a string that is not UTF-8"),
        pytest.param("01", "a length or an index is -1", id="a negative length"),
        pytest.param("ff" * 10 + "01", "longer than ten bytes", id="an endless number"),
        pytest.param("feffffffffffffffff7f", "over 64 bits", id="a number of more than 64 bits"),
        pytest.param("00000000" + "0a", "group.state: no symbol", id="no such symbol"),
        pytest.param("00000000" + "01", "group.state: no symbol", id="a negative symbol"),
        pytest.param("000000" + "ffffffff1f", "over 32 bits", id="an int of more than 32 bits"),
        pytest.param("00000000" + "0000" + "0000" + "04", "group.protocol_type: no branch", id="no such branch"),
    ],
)
def test_a_malformed_body_is_broken_with_a_reason(tail: str, reason: str) -> None:
    """The reason names the field where it can."""
    with pytest.raises(BrokenRecord, match=reason):
        decode(header_of_newest(GroupAdvanced) + bytes.fromhex(tail))


def test_a_count_that_is_a_lie_ends_with_the_data() -> None:
    """Four billion items are not waited for when there are three bytes."""
    value = encode(full_event(CoordinatorElected), FORMAT_LEVEL)
    start = value.index(b"\x04\x02a")
    with pytest.raises(BrokenRecord):
        decode(value[:start] + b"\xfe\xff\xff\xff\x1f" + b"\x02a\x02")


@pytest.mark.parametrize("value", [b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + bytes(7), bytes(10), b"{}" * 20])
def test_a_value_without_the_marker_is_broken(value: bytes) -> None:
    """It was not written by any version."""
    with pytest.raises(BrokenRecord) as raised:
        decode(value)
    assert not isinstance(raised.value, UnknownEventType)
    assert event_type_of(value) is None


def test_an_unknown_fingerprint_is_an_unknown_event_type() -> None:
    """A newer version wrote it: the reader may skip it, the owner may not."""
    value = b"\xc3\x01" + b"whatever" + b"body"
    with pytest.raises(UnknownEventType, match=b"whatever".hex()):
        decode(value)
    assert event_type_of(value) is None


# The records of a transition.


def test_the_last_event_of_an_entity_is_followed_by_its_tombstone() -> None:
    """MemberRemoved and GroupDeleted record the reason, and the tombstone lets compaction remove the entity."""
    joined, removed, deleted = full_event(MemberJoined), full_event(MemberRemoved), full_event(GroupDeleted)
    member_key, group_key = encode_key(key_of(removed)), encode_key(key_of(deleted))
    assert records_of([joined, removed, deleted], FORMAT_LEVEL) == (
        Record(member_key, encode(joined, FORMAT_LEVEL)),
        Record(member_key, encode(removed, FORMAT_LEVEL)),
        Record(member_key, None),
        Record(group_key, encode(deleted, FORMAT_LEVEL)),
        Record(group_key, None),
    )


@given(st.lists(events(), max_size=5))
def test_each_event_is_one_record_under_its_own_key(many: list[AnyRecordedEvent]) -> None:
    """In order, none lost."""
    records = [record for record in records_of(many, FORMAT_LEVEL) if record.value is not None]
    assert [record.key for record in records] == [encode_key(key_of(event)) for event in many]
    assert [decode(record.value or b"") for record in records] == many


@given(group_and_member_events())
def test_a_partial_event_has_the_fields_of_the_whole_one(event: object) -> None:
    """Number, cause, time; for an event on the group's own key also the group's state."""
    seen = decode_partially(encode(event, FORMAT_LEVEL))  # type: ignore[arg-type]
    assert isinstance(seen, PartialGroupEvent if isinstance(event, GroupEvent) else PartialEvent)
    assert (seen.incarnation, seen.seq) == (event.incarnation, event.seq)  # type: ignore[attr-defined]
    assert (seen.why.cause, seen.why.decided_ms) == (event.why.cause, event.why.decided_ms)  # type: ignore[attr-defined]
    if isinstance(seen, PartialGroupEvent):
        image = event.group  # type: ignore[attr-defined]
        assert (seen.group.state, seen.group.generation_id) == (image.state, image.generation_id)
        assert seen.group.previous_state is image.previous_state


@EVERY_TYPE
def test_an_event_of_a_partition_is_not_decoded_partially(event_type: type[AnyRecordedEvent]) -> None:
    """It is of no group, and has no number."""
    value = encode(full_event(event_type), FORMAT_LEVEL)
    if issubclass(event_type, PartitionEvent):
        with pytest.raises(BrokenRecord, match=f"{event_type.__name__} is not an event of a group"):
            decode_partially(value)
    else:
        assert isinstance(
            decode_partially(value), PartialGroupEvent if issubclass(event_type, GroupEvent) else PartialEvent
        )


@given(group_and_member_events())
def test_the_numbers_are_those_that_decoding_finds(event: object) -> None:
    """Whatever follows them, or nothing."""
    value = encode(event, FORMAT_LEVEL)  # type: ignore[arg-type]
    wanted = (event.incarnation, event.seq)  # type: ignore[attr-defined]
    assert decode_numbers(value) == decode_numbers(value + b"?") == wanted


@EVERY_TYPE
def test_an_event_of_a_partition_has_no_numbers(event_type: type[AnyRecordedEvent]) -> None:
    """Neither does an event of an unknown type, or one that is truncated in them."""
    value = encode(full_event(event_type), FORMAT_LEVEL)
    if issubclass(event_type, PartitionEvent):
        with pytest.raises(BrokenRecord, match="no event of a group begins with c301"):
            decode_numbers(value)
        return
    for broken in (value[:12], value[:10], value[:10] + b"\x01" * 4, b"?" * 40, b""):
        with pytest.raises(BrokenRecord):
            decode_numbers(broken)


@EVERY_TYPE
def test_all_schemas_of_a_groups_events_begin_with_its_numbers(event_type: type[AnyRecordedEvent]) -> None:
    """So they are found without a look at the rest."""
    known = [schema for level in schemas.levels() for schema in schemas.event_schemas(level)]
    own = [schema for schema in known if schema["name"] == event_type.__name__]
    assert own
    for schema in own:
        names = tuple(field["name"] for field in schema["fields"][:3])
        assert (names == FIRST_FIELDS) is not issubclass(event_type, PartitionEvent)
