"""Repairs an event log in which an owner's unreadable record stops its partition.

Finds such records, checks whether an owner may be serving the partition, and writes tombstones. Such records are:

    a record with an unreadable key  its group is unknown, so it cannot be ignored
    a record of the partition itself its owners and their times; it has no group's state
    a committed offset               in the offsets topic alongside the event topic; only this offset is lost

An unreadable value of a group is none of these: only that group is quarantined (`muster groups repair`). A batch that
is unreadable as a whole cannot be repaired by any client, as its keys are unknown.

A tombstone with the same key notes that an administrator has seen the record; from then on the record is skipped
(`events/loading.py`), until compaction removes both. To write the tombstone, the partition is claimed, which would
depose an owner that serves it. Such an owner can be detected: an owner that has read a partition writes
CoordinatorReady, and one that stops at such a record never does.
"""

from collections.abc import Sequence

import msgspec

from muster.coordinator.offsets.codec import unreadable_offset
from muster.events.avro.codec import decode, records_of
from muster.events.events import (
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    PartitionEvent,
)
from muster.events.keys import EntityKind
from muster.events.log.base import AppendRefused, EventLog, LogUnavailable, LogWriter
from muster.events.projector import entity_of
from muster.events.records import (
    FORMAT_LEVEL,
    BrokenRecord,
    LogTooNew,
    Record,
    StoredRecord,
    Transition,
    UndecodableKey,
)

UNKNOWN_OWNER = "an owner whose record cannot be read"


class LostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of a key, which is unreadable. `lost`: a description of the loss, for users."""

    key: bytes
    offset: int
    reason: str
    lost: str


class PartitionSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """A partition with such records. `owner`: the last owner if it may be serving the partition; else None."""

    partition: int
    records: tuple[LostRecord, ...]
    offsets: tuple[LostRecord, ...] = ()
    """The records in the offsets topic."""
    owner: str | None


async def survey(log: EventLog, offsets: EventLog | None = None) -> list[PartitionSurvey]:
    """Find the partitions that need a repair. Reads the whole log, and disturbs no owner.

    `offsets`: the offsets topic, if there is one. Raises LogError, LogTooNew, BrokenBatch.
    """
    found = []
    for partition in range(log.partitions):
        reading = _Reading()
        async for chunk in log.read(partition):
            for record in chunk:
                reading.take(record)
        of_offsets = {} if offsets is None else await _unreadable_offsets(offsets, partition)
        if reading.found or of_offsets:
            found.append(
                PartitionSurvey(
                    partition=partition,
                    records=tuple(reading.found.values()),
                    offsets=tuple(of_offsets.values()),
                    owner=reading.owner,
                )
            )
    return found


async def _unreadable_offsets(log: EventLog, partition: int) -> dict[bytes, LostRecord]:
    found: dict[bytes, LostRecord] = {}
    async for chunk in log.read(partition):
        for record in chunk:
            if record.is_foreign:
                continue
            found.pop(record.key, None)
            broken = None if record.value is None else unreadable_offset(record, log.location)
            if broken is not None:
                lost = "the offset that was committed there"
                found[record.key] = LostRecord(key=record.key, offset=record.offset, reason=broken.reason, lost=lost)
    return found


async def write_tombstones(
    log: EventLog, surveyed: PartitionSurvey, *, who: str, wall_ms: int, offsets: EventLog | None = None
) -> None:
    """Claim the partition and write the tombstones, with a record of the writer. Raises LogError."""
    writer = await log.claim(surveyed.partition)
    stopped = CoordinatorStopped(partition=surveyed.partition, owner_epoch=writer.epoch, owner=who, stopped_ms=wall_ms)
    await _append(writer, (*_tombstones(surveyed.records), *records_of([stopped], log.format_level)))
    if surveyed.offsets and offsets is not None:
        await _append(await offsets.claim(surveyed.partition), _tombstones(surveyed.offsets))


def _tombstones(records: Sequence[LostRecord]) -> Transition:
    return tuple(Record(each.key, None) for each in records)


async def _append(writer: LogWriter, transition: Transition) -> None:
    (verdict,) = await writer.append([transition])
    if isinstance(verdict, AppendRefused):
        raise LogUnavailable(
            f"the tombstones for partition {writer.partition} take {verdict.size_bytes} bytes, the limit is"
            f" {verdict.limit_bytes}"
        )


class _Reading:
    """Surveys one partition, record by record: the unreadable ones by key, and the owner that may serve it."""

    def __init__(self) -> None:
        self.found: dict[bytes, LostRecord] = {}
        self.owner: str | None = None

    def take(self, record: StoredRecord) -> None:
        """Read the next record."""
        if record.is_foreign:
            return
        if self.found:
            self.found.pop(record.key, None)
        try:
            is_of_group = entity_of(record).kind is not EntityKind.PARTITION
        except UndecodableKey as broken:
            if record.value is not None:
                event = _decoded(record.value)
                lost = "its value, which cannot be read either" if event is None else _named(event)
                self._note(record, broken.reason, lost)
            return
        if is_of_group or record.value is None:
            return
        try:
            event = decode(record.value)
        except BrokenRecord as broken:
            self._note(
                record, broken.reason, f"the record of {entity_of(record).entity_id!r} about the partition's owner"
            )
            self.owner = UNKNOWN_OWNER
            return
        if isinstance(event, CoordinatorElected) and event.format_level > FORMAT_LEVEL:
            raise LogTooNew(
                f"the log has format level {event.format_level}, this version of Muster knows {FORMAT_LEVEL}; use a"
                " newer Muster"
            )
        if isinstance(event, CoordinatorReady | CoordinatorPaused):
            self.owner = event.owner
        elif not isinstance(event, CoordinatorElected) or event.owner != self.owner:  # otherwise it renewed its claim
            self.owner = None

    def _note(self, record: StoredRecord, reason: str, lost: str) -> None:
        self.found[record.key] = LostRecord(key=record.key, offset=record.offset, reason=reason, lost=lost)


def _decoded(value: bytes) -> AnyRecordedEvent | None:
    try:
        return decode(value)
    except BrokenRecord:
        return None


def _named(event: AnyRecordedEvent) -> str:
    name = type(event).__name__
    return name if isinstance(event, PartitionEvent) else f"{name} of group {event.group_id}, seq {event.seq}"


def owners_of(found: Sequence[PartitionSurvey]) -> dict[int, str]:
    """Return the owners that may be serving, by partition."""
    return {each.partition: each.owner for each in found if each.owner is not None}
