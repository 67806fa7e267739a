"""Upgrades an event log to this version's format level.

Existing records stay unchanged: every version reads the levels before its own.

Each partition is claimed and gets two records, CoordinatorElected with the new level and CoordinatorStopped, so that
the history shows who upgraded it. From then on an older Muster is refused: in a file by the file's note, in a topic by
the marks of these records, and where it only reads by CoordinatorElected. An interrupted upgrade leaves a log of the
new level; the next owners write these records in the partitions that lack them.
"""

import msgspec

from muster.events.avro.codec import decode, records_of
from muster.events.events import AnyPartitionEvent, CoordinatorElected, CoordinatorStopped, PartitionEvent
from muster.events.keys import EntityKind
from muster.events.log.base import AppendRefused, EventLog, LogUnavailable
from muster.events.projector import entity_of
from muster.events.records import FORMAT_LEVEL, BrokenRecord, StoredRecord, UndecodableKey


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """A log before an upgrade. `owners`: the owners that may be serving, by partition."""

    format_level: int
    owners: dict[int, str]


async def look_at(log: EventLog) -> LogState:
    """Read the level and the owners of an open log. Reads the whole log, and disturbs no owner. Raises LogError."""
    owners = {}
    for partition in range(log.partitions):
        last: AnyPartitionEvent | None = None
        async for chunk in log.read(partition):
            for record in chunk:
                last = _partition_event(record) or last
        if last is not None and not isinstance(last, CoordinatorStopped):
            owners[partition] = last.owner
    return LogState(format_level=log.format_level, owners=owners)


def _partition_event(record: StoredRecord) -> AnyPartitionEvent | None:
    """Return the record's event if it is about the partition itself; None for all others and unreadable ones."""
    if record.is_foreign or record.value is None:
        return None
    try:
        event = decode(record.value) if entity_of(record).kind is EntityKind.PARTITION else None
    except (BrokenRecord, UndecodableKey):
        return None
    return event if isinstance(event, PartitionEvent) else None


async def raise_level(log: EventLog, *, who: str, version: str, wall_ms: int) -> None:
    """Raise the level of a log that is open for writing, and note it in each partition. Raises LogError."""
    await log.raise_format_level()
    for partition in range(log.partitions):
        writer = await log.claim(partition)
        elected = CoordinatorElected(
            partition=partition,
            owner_epoch=writer.epoch,
            owner=who,
            elected_ms=wall_ms,
            version=version,
            format_level=FORMAT_LEVEL,
            settings={},
        )
        stopped = CoordinatorStopped(partition=partition, owner_epoch=writer.epoch, owner=who, stopped_ms=wall_ms)
        (verdict,) = await writer.append([records_of([elected, stopped], FORMAT_LEVEL)])
        if isinstance(verdict, AppendRefused):
            raise LogUnavailable(f"partition {partition} takes no record of {verdict.size_bytes} bytes")
