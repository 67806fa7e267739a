"""The schemas, their classes and their registry agree, and released ones never change."""

import copy
import typing
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from muster import schemas
from muster.events.avro import codec
from muster.events.avro.codec import Registry, header_of
from muster.events.causes import Cause
from muster.events.connection import ConnectionEnd
from muster.events.events import EVENT_TYPES, AnyRecordedEvent
from muster.events.ownership import OwnershipEndCause
from muster.events.state import HandedOutIdOutcome

LEVEL_1 = {
    "CoordinatorElected": "f44a6d738a9dff93",
    "CoordinatorPaused": "1c6f685209a0a68e",
    "CoordinatorReady": "977ec209cbf756ca",
    "CoordinatorStopped": "f0921f2b1a4740fd",
    "GroupAdvanced": "e466fefb68a65458",
    "GroupCreated": "4e249d8322e9cf30",
    "GroupDeleted": "f7df5a2e453a01e6",
    "GroupEmptied": "57e1bab44a82f2b3",
    "GroupStabilized": "028b29e6300b32c0",
    "JoinPhaseCompleted": "3f3e09edb9174a60",
    "JoinRefused": "944459ba162d83a3",
    "MemberAssigned": "45d47cc783d10240",
    "MemberFenced": "4ccbe0da416b1549",
    "MemberJoined": "f68b64e316b8227e",
    "MemberRejoined": "3ff71031a6caa53f",
    "MemberRemoved": "54af9fec70319278",
    "RebalanceStarted": "906f51a178fc09c3",
    "StaticMemberReplaced": "ad79e89185547444",
}
LEVEL_2 = {
    "GroupAdvanced": "0c98d1b8ced10dd9",
    "GroupConfigured": "12ddc77b2879e6be",
    "GroupCreated": "2b5377c7fc346c5f",
    "GroupDeleted": "49f91f45ab37b869",
    "GroupEmptied": "6d67f5e1cecd3f15",
    "GroupStabilized": "dac34d173e0a909d",
    "InstanceRegistered": "6df6cf75738f86ce",
    "JoinPhaseCompleted": "a1937a5fa9a568e4",
    "JoinRefused": "d967c14df19679aa",
    "MemberAssigned": "2c5267702632895f",
    "MemberFenced": "6e0ab88f853e51b5",
    "MemberJoined": "d3b7e6abb3db4016",
    "MemberRejoined": "db2924de1486a71a",
    "MemberRemoved": "39bd8fbc168edb87",
    "MemberRoleChanged": "d01d153728365e95",
    "RebalanceStarted": "a8cecec57178cee8",
    "RegistrationEnded": "9932c5df8c73778e",
    "StaticMemberReplaced": "23c466c2c03db2f2",
}
LEVEL_4 = {
    "CoordinatorPaused": "0597810c6060218d",
    "CoordinatorReady": "c3f64e5f05958002",
    "CoordinatorStopped": "bb9a08d97885aef1",
    "GroupAdvanced": "489773f6a83dc5c0",
    "GroupConfigured": "184aef4863b18b10",
    "GroupCreated": "63143c2f2713dd66",
    "GroupDeleted": "a6a909745346be25",
    "GroupEmptied": "5e5ee12d0a13b4e7",
    "GroupStabilized": "be7a8b5d79ccadcd",
    "InstanceRegistered": "c345e73c267b069b",
    "JoinPhaseCompleted": "dd5730aa2a1e00a1",
    "JoinRefused": "15198fc8656ab59c",
    "MemberAssigned": "91818f8c10769977",
    "MemberFenced": "45d6934c0b08f9c9",
    "MemberJoined": "4255d0ed35b8da91",
    "MemberRejoined": "194cf005c62d3df5",
    "MemberRemoved": "b78edd79c6e7c050",
    "MemberRoleChanged": "da5047964858c1bf",
    "RebalanceStarted": "27e8459623f6f4d6",
    "RegistrationEnded": "b47dd875f35e3ba4",
    "StaticMemberReplaced": "9688f4c4a3f8a094",
}
LEVEL_5 = {"CoordinatorReady": "bb34eb4328066d18"}
LEVEL_6 = {
    "GroupAdvanced": "4943d0a42ed295b4",
    "GroupConfigured": "9ebf7d63a3c03de2",
    "GroupCreated": "4db3ed78dee33cc3",
    "GroupDeleted": "14a1b4ed612be6a8",
    "GroupEmptied": "05325bb32b813180",
    "GroupStabilized": "99affc81a19b69bb",
    "InstanceRegistered": "4bbf47de0afc32e3",
    "JoinPhaseCompleted": "6bcb15eda25f411f",
    "JoinRefused": "ad0ba4fa7d62c233",
    "MemberAssigned": "f2ac1e72a009c9b2",
    "MemberFenced": "23362443b8d2edac",
    "MemberJoined": "e5e631297a380d02",
    "MemberRejoined": "19b271aca3dbcb14",
    "MemberRemoved": "773a4f90f050db0f",
    "MemberRoleChanged": "f64174b8118a488a",
    "RebalanceStarted": "5d121f4f52a3fc72",
    "RegistrationEnded": "1cf38c33c087e965",
    "StaticMemberReplaced": "b328aa1cf67b9640",
}
LEVEL_7 = {"GroupConfigured": "fe70dd72f6da17c5"}
FINGERPRINTS = {1: LEVEL_1, 2: LEVEL_2, 4: LEVEL_4, 5: LEVEL_5, 6: LEVEL_6, 7: LEVEL_7}
"""As in existing logs. Released: a change here makes every existing log unreadable."""

CAUSES = (Cause, HandedOutIdOutcome, OwnershipEndCause, ConnectionEnd)
"""Enumerations that are strings in the schemas, so that an older version can read what a newer one wrote."""

ANNOTATIONS = {"int": int, "long": int, "string": str, "bytes": bytes, "boolean": bool, "null": type(None)}


@pytest.mark.parametrize("level", schemas.levels())
def test_the_schemas_match_the_released_ones(level: int) -> None:
    """A new form of an event goes into the next level's folder."""
    known = {schema["name"]: header_of(schema)[2:].hex() for schema in schemas.event_schemas(level)}
    assert known == FINGERPRINTS[level]


def test_the_key_matches_the_released_one() -> None:
    """It never changes at all."""
    assert header_of(schemas.record_key_schema())[2:].hex() == "56fe2187931a8c28"


DEFAULTS = {
    "role": "Active",
    "retiring": False,
    "departures_gathered": False,
    "absent_seen_ms": [],
    "handed_out_ids": [],
    "handed_out_ids_more": 0,
    "returned": [],
    "offered_protocols": [],
    "returned_more": 0,
    "rebalanced_for": [],
}
"""The defaults other than null, which every optional field has."""


@pytest.mark.parametrize("level", schemas.levels())
def test_the_defaults_match_the_released_ones(level: int) -> None:
    """A fingerprint does not cover them, but old values are completed from them."""
    for schema in schemas.event_schemas(level):
        for field in fields_in(schema):
            optional = isinstance(field["type"], list) or field["name"] in DEFAULTS
            assert ("default" in field) == optional, (schema["name"], field["name"])
            assert field.get("default") == DEFAULTS.get(field["name"])


def fields_in(schema: Any) -> typing.Iterator[schemas.Schema]:
    if isinstance(schema, dict):
        for field in schema.get("fields", ()):
            yield field
            yield from fields_in(field["type"])
        yield from fields_in(schema.get("items"))


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
def test_each_class_has_the_fields_of_its_newest_schema(event_type: type[AnyRecordedEvent]) -> None:
    """Same names, fitting types and equal defaults, nested ones too."""
    assert_agree(event_type, codec.REGISTRY.newest_schema_of(event_type), {})


def assert_agree(annotation: Any, schema: Any, defined: dict[str, Any]) -> None:
    """Fail unless the annotation allows exactly the values that the Avro type describes."""
    if isinstance(schema, str) and schema in defined:
        schema = defined[schema]
    if isinstance(schema, list):
        arguments = typing.get_args(annotation)
        assert schema[0] == "null"
        assert len(arguments) == len(schema) == 2
        assert arguments[1] is type(None)
        assert_agree(arguments[0], schema[1], defined)
        return
    if isinstance(schema, str):
        supertype = getattr(annotation, "__supertype__", annotation)
        assert supertype is ANNOTATIONS[schema] or (schema == "string" and annotation in CAUSES)
        return
    defined[schema.get("name", "")] = schema
    match schema["type"]:
        case "record":
            assert annotation.__name__ == schema["name"]
            assert issubclass(annotation, msgspec.Struct)
            hints = typing.get_type_hints(annotation)
            assert sorted(hints) == sorted(field["name"] for field in schema["fields"])
            defaults = {field.encode_name: field.default for field in msgspec.structs.fields(annotation)}
            for field in schema["fields"]:
                assert_agree(hints[field["name"]], field["type"], defined)
                default = defaults[field["name"]]
                if "default" in field and default is not msgspec.NODEFAULT:
                    assert msgspec.json.decode(msgspec.json.encode(default)) == field["default"], field["name"]
        case "enum":
            assert issubclass(annotation, StrEnum)
            assert list(annotation) == schema["symbols"]
        case "array":
            item, rest = typing.get_args(annotation)
            assert rest is ...
            assert_agree(item, schema["items"], defined)
        case "map":
            key, value = typing.get_args(annotation)
            assert key is str
            assert_agree(value, schema["values"], defined)
        case other:
            pytest.fail(f"no rule for {other}")


def test_each_event_type_has_a_schema_and_each_schema_an_event_type() -> None:
    """Nothing can be recorded that is not described, and nothing is described that does not happen."""
    described = {schema["name"] for level in schemas.levels() for schema in schemas.event_schemas(level)}
    assert described == {event_type.__name__ for event_type in EVENT_TYPES}


def test_each_field_is_described() -> None:
    """The schemas document the topic for readers that do not use Muster."""
    for level in schemas.levels():
        for schema in schemas.event_schemas(level):
            assert schema["doc"]
            assert all(field.get("doc") for field in fields_in(schema)), schema["name"]


def test_the_registry_refuses_two_schemas_with_one_fingerprint() -> None:
    """A fingerprint does not cover defaults, so a reader could not distinguish the two forms."""
    (schema,) = (schema for schema in schemas.event_schemas(1) if schema["name"] == "GroupCreated")
    other = copy.deepcopy(schema)
    other["fields"][-1]["default"] = {}
    other["doc"] = "The same, but for what no fingerprint sees."
    with pytest.raises(ValueError, match="GroupCreated and GroupCreated have the same fingerprint"):
        Registry({1: [schema, other]})


def test_the_registry_refuses_a_schema_of_no_event_type() -> None:
    """A schema without a class could neither be written nor read."""
    (schema,) = (schema for schema in schemas.event_schemas(1) if schema["name"] == "GroupCreated")
    with pytest.raises(ValueError, match="GroupConfused belongs to no event type"):
        Registry({1: [schema | {"name": "GroupConfused"}]})


def test_a_class_that_disagrees_with_its_schema_is_found() -> None:
    """The test above can fail: on a field too few, on a field too many, on another type."""
    schema = copy.deepcopy(codec.REGISTRY.newest_schema_of(EVENT_TYPES[0]))
    (field, *others) = schema["fields"]
    for fields in (others, [*schema["fields"], {"name": "more", "type": "int"}], [field | {"type": "bytes"}, *others]):
        with pytest.raises(AssertionError):
            assert_agree(EVENT_TYPES[0], schema | {"fields": fields}, {})
