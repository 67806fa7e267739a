"""Repairing an event log in which an owner's record has a key that cannot be read, so that its partition is not served.

What belongs here: finding such records, whether somebody may be serving the partition, and the tombstone that ends it.

Not even the group of such a record is known by its key, so nobody may go on as if it were not there. A tombstone under
the same key says that an administrator has looked at it; from then on it is passed over (`events/loading.py`), until
compaction removes both. To write it the partition is claimed, which would depose whoever serves it. Who does has said
so: an owner that has read a partition writes CoordinatorReady, and one that stops there never comes to that.
"""

from collections.abc import Sequence

import msgspec

from events.codec import decode, records_of
from events.events import (
    AnyPartitionEvent,
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    PartitionEvent,
)
from events.log.base import AppendRefused, EventLog, LogUnavailable
from events.projector import entity_of
from events.records import FORMAT_LEVEL, BrokenRecord, LogTooNew, Record, StoredRecord, UndecodableKey


class UnreadableKey(msgspec.Struct, frozen=True, kw_only=True):
    """The last record under a key that cannot be read. `event`: what its value is, for people; None if that is broken,
    too.
    """

    key: bytes
    offset: int
    reason: str
    event: str | None


class PartitionSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with such records. `owner`: of the last owner, who may be serving it; None when nobody can be."""

    partition: int
    keys: tuple[UnreadableKey, ...]
    owner: str | None


async def survey(log: EventLog) -> list[PartitionSurvey]:
    """The partitions in which there is something to repair. Reads all of the log, and disturbs nobody.

    Raises LogError, LogTooNew.
    """
    found = []
    for partition in range(log.partitions):
        keys: dict[bytes, UnreadableKey] = {}
        last: AnyPartitionEvent | None = None
        async for chunk in log.read(partition):
            for record in chunk:
                if not record.stranger:
                    last = _take(record, keys) or last
        if keys:
            owner = last.owner if isinstance(last, CoordinatorReady | CoordinatorPaused) else None
            found.append(PartitionSurvey(partition=partition, keys=tuple(keys.values()), owner=owner))
    return found


async def bury(log: EventLog, surveyed: PartitionSurvey, *, who: str, wall_ms: int) -> None:
    """Write the tombstones, and who did it. Claims the partition. Raises LogError."""
    writer = await log.claim(surveyed.partition)
    stopped = CoordinatorStopped(partition=surveyed.partition, owner_epoch=writer.epoch, owner=who, stopped_ms=wall_ms)
    tombstones = tuple(Record(each.key, None) for each in surveyed.keys)
    (verdict,) = await writer.append([(*tombstones, *records_of([stopped]))])
    if isinstance(verdict, AppendRefused):
        raise LogUnavailable(
            f"the tombstones for partition {surveyed.partition} take {verdict.size_bytes} bytes, the limit is"
            f" {verdict.limit_bytes}"
        )


def _take(record: StoredRecord, keys: dict[bytes, UnreadableKey]) -> AnyPartitionEvent | None:
    """Note the record if its key cannot be read; what it says of the partition's owner, if it does."""
    try:
        entity_of(record)
    except UndecodableKey as broken:
        keys.pop(record.key, None)
        if record.value is not None:
            event = _decoded(record.value)
            keys[record.key] = UnreadableKey(
                key=record.key, offset=record.offset, reason=broken.reason, event=_named(event)
            )
        return None
    event = None if record.value is None else _decoded(record.value)
    if isinstance(event, CoordinatorElected) and event.format_level > FORMAT_LEVEL:
        raise LogTooNew(
            f"the log has format level {event.format_level}, this version of Muster knows {FORMAT_LEVEL}; use a newer"
            " Muster"
        )
    return event if isinstance(event, PartitionEvent) else None


def _decoded(value: bytes) -> AnyRecordedEvent | None:
    try:
        return decode(value)
    except BrokenRecord:
        return None


def _named(event: AnyRecordedEvent | None) -> str | None:
    if event is None:
        return None
    name = type(event).__name__
    return name if isinstance(event, PartitionEvent) else f"{name} of group {event.group_id}, seq {event.seq}"


def owners_of(found: Sequence[PartitionSurvey]) -> dict[int, str]:
    """By partition, who may be serving it."""
    return {each.partition: each.owner for each in found if each.owner is not None}
