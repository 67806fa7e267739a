"""Pseudonyms: a log's records without the names of members, processes and people, so that a log can be shared.

An HMAC-SHA256 under a key replaces each member id, instance id, client id, host, principal, owner's host, and reason
sent by a client. With the same key a name has the same pseudonym in all files, so identities still match, and without
the key it is impossible to test whether a pseudonym belongs to a certain name. Group ids, topics and configs are kept.

User data is removed from a consumer's subscription and assignment; for other protocol types everything is removed. An
unreadable record might contain any name: only its position is kept, and its group if its key can be read.
"""

import hmac
import re
from hashlib import sha256
from struct import Struct
from typing import Any, Final

import msgspec

from muster.events.avro.codec import decode, encode, level_of
from muster.events.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
    subscribed_topics,
)
from muster.events.events import AnyRecordedEvent
from muster.events.keys import EntityKind, RecordKey, decode_key, encode_key, key_of
from muster.events.records import BrokenRecord, StoredRecord, UndecodableKey
from muster.events.state import Member, Protocol

KEY_BYTES_MIN: Final = 16
_DIGITS: Final = 16
_UNREADABLE: Final = b"left out"

_KINDS: Final[dict[str, str]] = {
    "member_id": "member",
    "leader_id": "member",
    "replaced_member_id": "member",
    "current_member_id": "member",
    "group_instance_id": "instance",
    "client_id": "client",
    "replaced_client_id": "client",
    "current_client_id": "client",
    "client_host": "host",
    "replaced_client_host": "host",
    "current_client_host": "host",
    "principal": "principal",
    "owner": "owner",
    "owner_before": "owner",
    "removed_by": "owner",
    "client_reason": "reason",
}
"""The kind of name in each field. A test compares this with the events: a new field must be listed here, or contain no
names.
"""

_BOILERPLATE: Final = re.compile(
    r"need to re-join with the given member-id"
    r"|(?:the )?consumer (?:is being closed|unsubscribed from all topics|poll timeout has expired\.?)"
    r"|rebalance enforced by user|max\.poll\.interval\.ms exceeded|group is already rebalancing"
    r"|cached metadata has changed|the subscription has changed|need to revoke partitions"
    r"|consumer pro-actively leaving the group|rebalance failed due to \w+Exception"
    r"|encountered [A-Z_]+ from [A-Z_]+ response"
)
"""Reasons that clients generate, up to the point where a name may follow."""

_COUNT: Final = Struct(">i")


class Pseudonyms:
    """Replaces names, with a key."""

    def __init__(self, key: bytes) -> None:
        """Raises ValueError for a key that is too short to be safe."""
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(
                f"the key has {len(key)} bytes, and needs {KEY_BYTES_MIN}: head -c 32 /dev/urandom makes one"
            )
        self._key = key
        self._known: dict[tuple[str, str], str] = {}

    def record(self, record: StoredRecord) -> StoredRecord:
        """Return the record with pseudonyms; its position and time are unchanged."""
        try:
            key = decode_key(record.key)
        except UndecodableKey:
            return msgspec.structs.replace(record, key=self._digest("key", record.key), value=_emptied(record.value))
        if record.value is not None:
            try:
                event = self.event(decode(record.value))
            except BrokenRecord:
                return msgspec.structs.replace(record, key=self._key_of(key), value=_UNREADABLE)
            return msgspec.structs.replace(
                record, key=encode_key(key_of(event)), value=encode(event, level_of(record.value))
            )
        return msgspec.structs.replace(record, key=self._key_of(key))

    def event(self, event: AnyRecordedEvent) -> AnyRecordedEvent:
        """Return the event with pseudonyms."""
        told = self._struct(event)
        assert isinstance(told, type(event))
        return told

    def name(self, kind: str, text: str) -> str:
        """Return the pseudonym of a name. Empty names and reasons that clients generate are unchanged."""
        if not text:
            return text
        found = self._known.get((kind, text))
        if found is None:
            if len(self._known) >= 100_000:
                self._known.clear()
            found = self._known[kind, text] = self._made(kind, text)
        return found

    def _made(self, kind: str, text: str) -> str:
        if kind == "owner":  # host:pid
            host, _, pid = text.rpartition(":")
            return f"{self.name('host', host)}:{pid}"
        if kind == "host":
            text = text.removeprefix("/")
        if kind == "reason" and (known := _BOILERPLATE.match(text)):
            return known[0]
        return f"{kind}-{self._digest(kind, text.encode()).hex()[:_DIGITS]}"

    def _digest(self, kind: str, data: bytes) -> bytes:
        return hmac.digest(self._key, kind.encode() + b"\0" + data, sha256)

    def _key_of(self, key: RecordKey) -> bytes:
        kinds = {
            EntityKind.STATIC_MEMBER: "instance",
            EntityKind.REGISTRATION: "instance",
            EntityKind.DYNAMIC_MEMBER: "member",
        }
        if key.kind not in kinds:
            return encode_key(key)
        return encode_key(msgspec.structs.replace(key, entity_id=self.name(kinds[key.kind], key.entity_id)))

    def _struct(self, value: msgspec.Struct) -> msgspec.Struct:
        changed = {name: self._value(name, getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, Member):
            changed["assignment"] = _assignment(value.assignment)
        if isinstance(value, Protocol):
            changed["metadata"] = _metadata(value.metadata)
        return msgspec.structs.replace(value, **changed)

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401 -- any field of an event
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, tuple):
            of_members = "member_id" if name == "absent" else name
            return tuple(self._value(of_members, each) for each in value)
        if isinstance(value, str) and name in _KINDS:
            return self.name(_KINDS[name], value)
        return value


def _emptied(value: bytes | None) -> bytes | None:
    return None if value is None else _UNREADABLE


def _assignment(assignment: bytes) -> bytes:
    decoded = assigned_partitions(assignment)
    if not decoded:
        return b"" if decoded is None else assignment if not assignment else encode_assignment({})
    partitions: dict[str, list[int]] = {}
    for topic, number in decoded:
        partitions.setdefault(topic, []).append(number)
    return encode_assignment(partitions)


def _metadata(metadata: bytes) -> bytes:
    """Return a subscription without its user data; the fields after it (owned partitions, generation) are kept."""
    if subscribed_topics(metadata) is None:
        return b""
    at = 6
    for _ in range(_COUNT.unpack_from(metadata, 2)[0]):
        at += 2 + int.from_bytes(metadata[at : at + 2])
    size = max(0, _COUNT.unpack_from(metadata, at)[0])
    return metadata[:at] + _COUNT.pack(-1) + metadata[at + 4 + size :]
