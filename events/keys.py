"""The keys of records, which name the entity that an event is about. `avro/codec.py` encodes the values.

A key is `schemas/RecordKey.avsc` in Avro's single-object encoding. That schema never changes and the encoding is
deterministic, because compaction compares the bytes of keys: one entity has one key, forever. The code is written by
hand rather than generated, so that this module alone decides about it. Loading reads one key per record; that is why
`decode_key` is straight-line code.
"""

from enum import StrEnum, unique

import msgspec

from muster.events.events import (
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    GroupConfigured,
    GroupEvent,
    MemberEvent,
    RegistrationEvent,
)
from muster.events.records import BrokenRecord, UndecodableKey
from muster.events.varints import read_length, write_int

KEY_HEADER = bytes.fromhex("c301 56fe2187931a8c28")
"""Avro's marker and the schema's fingerprint. A literal, since it can never change; a test verifies it."""


@unique
class EntityKind(StrEnum):
    """The kind of an entity, in the order of the schema: its position is what is written."""

    GROUP = "Group"
    STATIC_MEMBER = "StaticMember"
    DYNAMIC_MEMBER = "DynamicMember"
    REGISTRATION = "Registration"
    GROUP_CONFIG = "Settings"
    PARTITION = "Partition"


class RecordKey(msgspec.Struct, frozen=True):
    """An entity: its group, its kind, and its name within the kind (empty for the group itself)."""

    group_id: str
    kind: EntityKind
    entity_id: str


_KINDS = tuple(EntityKind)
_KIND_BYTES = {kind: write_int(index) for index, kind in enumerate(_KINDS)}

_PARTITION_ENTITIES: dict[type[AnyRecordedEvent], str] = {
    CoordinatorElected: "coordinator",
    CoordinatorReady: "ready",
    CoordinatorPaused: "paused",
    CoordinatorStopped: "stopped",
}


def encode_key(key: RecordKey) -> bytes:
    """Encode a key; equal keys have equal bytes."""
    group_id = key.group_id.encode()
    entity_id = key.entity_id.encode()
    return b"".join(
        (
            KEY_HEADER,
            write_int(len(group_id)),
            group_id,
            _KIND_BYTES[key.kind],
            write_int(len(entity_id)),
            entity_id,
        )
    )


def prefix_of(group_id: str) -> bytes:
    """Return the prefix of all keys of a group's entities, and of no other group's. Pass a partition's number for its
    own.
    """
    encoded = group_id.encode()
    return KEY_HEADER + write_int(len(encoded)) + encoded


def decode_key(data: bytes) -> RecordKey:
    """Decode a key, which must take up all of the bytes. Raises UndecodableKey."""
    if data[:10] != KEY_HEADER:
        raise UndecodableKey(f"the key does not begin with the header of RecordKey: {data[:10].hex()}")
    try:
        n = data[10]
        pos = 11
        if n & 129:
            n, pos = read_length(data, pos, n)
        end = pos + (n >> 1)
        group_id = data[pos:end].decode()
        kind = _KINDS_BY_BYTE[data[end]]
        pos = end + 2
        n = data[end + 1]
        if n & 129:
            n, pos = read_length(data, pos, n)
        end = pos + (n >> 1)
        entity_id = data[pos:end].decode()
    except (IndexError, KeyError, UnicodeDecodeError, BrokenRecord) as error:
        raise UndecodableKey(f"the key cannot be read: {error}") from error
    if end != len(data):
        raise UndecodableKey(f"the key is {len(data)} bytes long, but its fields end at {end}")
    return RecordKey(group_id, kind, entity_id)


_KINDS_BY_BYTE = {encoded[0]: kind for kind, encoded in _KIND_BYTES.items()}


def key_of(event: AnyRecordedEvent) -> RecordKey:
    """Return the key of the entity whose new value the event carries."""
    if isinstance(event, MemberEvent):
        member = event.member
        if member.group_instance_id is not None:
            return RecordKey(event.group_id, EntityKind.STATIC_MEMBER, member.group_instance_id)
        return RecordKey(event.group_id, EntityKind.DYNAMIC_MEMBER, member.member_id)
    if isinstance(event, GroupEvent):
        return RecordKey(event.group_id, EntityKind.GROUP, "")
    if isinstance(event, RegistrationEvent):
        return RecordKey(event.group_id, EntityKind.REGISTRATION, event.registration.group_instance_id)
    if isinstance(event, GroupConfigured):
        return RecordKey(event.group_id, EntityKind.GROUP_CONFIG, "")
    return RecordKey(str(event.partition), EntityKind.PARTITION, _PARTITION_ENTITIES[type(event)])
