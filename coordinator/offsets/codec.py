"""Encodes a committed offset as a record of the offsets topic, and applies records to the offsets in memory.

A record's key is the partition that was committed, its value the commit, both as versioned JSON that any tool can read;
a tombstone is a deleted offset. The topic also contains the fence records of owners.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.base import StoredOffset, TopicPartition
from muster.coordinator.offsets.memory import OffsetCache, stored
from muster.events.ids import GroupId
from muster.events.records import BrokenRecord, Record, StoredRecord, Transition

VERSION = 1

_NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError)
"""Errors of decoding a key or a value that is not ours."""


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """The key of an offset. Never change the fields or their order: compaction compares the bytes."""

    version: int = VERSION
    group: str
    topic: str
    partition: int


class _Value(StoredOffset, frozen=True, kw_only=True):
    version: int = VERSION


class _Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The fence record, after which no former owner can write."""

    version: int = VERSION
    owner: int


def take(cache: OffsetCache, record: StoredRecord, location: str) -> None:
    """Apply a record to the cache. Raises BrokenRecord, which names the offsets topic."""
    try:
        decoded = msgspec.json.decode(record.key, type=dict[str, Any])
        if "owner" in decoded:
            return
        name = msgspec.convert(decoded, _Key)
        partition = (name.topic, name.partition)
        if record.value is None:
            cache.remove(GroupId(name.group), partition)
        else:
            kept = msgspec.structs.asdict(msgspec.json.decode(record.value, type=_Value))
            del kept["version"]
            cache.put(GroupId(name.group), partition, StoredOffset(**kept))
    except _NOT_OURS as error:
        reason = f"this is no committed offset, in {location}: {error}"
        raise BrokenRecord(reason, partition=record.partition, offset=record.offset) from error


def unreadable_offset(record: StoredRecord, location: str) -> BrokenRecord | None:
    """Return the error if the record makes its partition unreadable; None if it does not."""
    try:
        take(OffsetCache(), record, location)
    except BrokenRecord as broken:
        return broken
    return None


def fence(partition: int) -> Record:
    """Create the fence record of an owner."""
    encoded = msgspec.json.encode(_Fence(owner=partition))
    return Record(encoded, encoded)


def records(change: OffsetsChange, deleted: Sequence[TopicPartition]) -> Iterator[Record]:
    """Yield the records of a change, its deletions first."""
    for topic, partition in deleted:
        yield Record(_key(change.group_id, topic, partition), None)
    for commit in change.committed:
        yield Record(_key(change.group_id, commit.topic, commit.partition), _value(stored(commit)))


def records_again(keys: Iterable[bytes], cache: OffsetCache) -> Iterator[Transition]:
    """Yield the records that these keys must have in the topic; nothing for keys that do not exist."""
    for key in keys:
        kept = offset_at(key, cache)
        if kept is not None:
            yield (Record(key, _value(kept)),)


def offset_at(key: bytes, cache: OffsetCache) -> StoredOffset | None:
    """Return the offset with exactly this key; None for any other bytes."""
    try:
        name = msgspec.json.decode(key, type=_Key)
    except _NOT_OURS:
        return None
    kept = cache.committed(GroupId(name.group)).get((name.topic, name.partition))
    return kept if key == _key(GroupId(name.group), name.topic, name.partition) else None


def _value(kept: StoredOffset) -> bytes:
    return msgspec.json.encode(_Value(**msgspec.structs.asdict(kept)))


def _key(group_id: GroupId, topic: str, partition: int) -> bytes:
    return msgspec.json.encode(_Key(group=group_id, topic=topic, partition=partition))
