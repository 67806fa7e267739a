"""A log read into histories. The only part of the tool that touches a log, and it only ever reads.

Streams: whatever the log's size, what is kept is what the caller keeps. For one group only that group's partition is
read, and only the values whose key names the group are decoded.

A reader is lenient where an owner must not be: an event type that is not known here is skipped and counted, a value
that cannot be read becomes a `Broken` marker in its group's history. Tombstones are skipped, since the event before
each says all, but for those of `muster log repair`. So are records that no owner wrote (`events.strangers`). What is
not ours to read at all is an error: LogTooNew, and any LogError.
"""

from collections import defaultdict
from collections.abc import Callable

import msgspec

from muster.events.avro.codec import decode
from muster.events.events import CoordinatorElected, PartitionEvent
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.events.log.base import EventLog
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, BrokenRecord, LogTooNew, StoredRecord, UndecodableKey, UnknownEventType
from muster.events.strangers import Strangers
from muster.replay.history import (
    Broken,
    Coordinated,
    Happened,
    History,
    LogPosition,
    PassedOver,
    Prelude,
    Read,
    Told,
    Unreadable,
    with_gaps,
)

Take = Callable[[GroupId | None, Read], None]
"""Takes the next read; without a group it concerns all groups of its partition."""

Watch = Callable[[int, int], None]
"""Told how far the reading is: records done, records in all. Both count offsets, also those compacted away."""


def unwatched(done: int, total: int) -> None:
    """Do nothing: the default, without a progress display."""


async def read_log(
    log: EventLog,
    take: Take,
    *,
    group: GroupId | None = None,
    watch: Watch = unwatched,
    strangers: Strangers | None = None,
) -> None:
    """Give everything in the log to `take`, partition by partition; for one group, what concerns it.

    What no owner wrote is skipped, and counted in `strangers`. Raises LogTooNew, and what the log raises.
    """
    strangers = Strangers() if strangers is None else strangers
    partitions = range(log.partitions) if group is None else [partition_for(group, log.partitions)]
    ends = {partition: await log.end_offset(partition) for partition in partitions}
    total, done = sum(ends.values()), 0
    for partition, end in ends.items():
        async for chunk in log.read(partition, end=end):
            for record in strangers.without(chunk):
                found = read_record(record, group)
                if found is not None:
                    take(*found)
            watch(done + chunk[-1].offset + 1 if chunk else done, total)
        done += end


async def read_histories(
    log: EventLog,
    *,
    group: GroupId | None = None,
    watch: Watch = unwatched,
    strangers: Strangers | None = None,
) -> dict[GroupId, History]:
    """The history of each group of which anything can be read, or of the one group, if there is anything."""
    reads: dict[GroupId, list[Told]] = {}
    preludes: defaultdict[int, Prelude] = defaultdict(Prelude)
    homes: defaultdict[int, list[GroupId]] = defaultdict(list)

    def take(group_id: GroupId | None, read: Read) -> None:
        partition = read.position.partition
        if group_id is None:
            preludes[partition].note(read)
            if not isinstance(read, PassedOver):
                for home in homes[partition]:
                    reads[home].append(read)
            return
        assert not isinstance(read, PassedOver)  # it has no group
        if group_id not in reads:
            reads[group_id] = [*preludes[partition].reads]
            homes[partition].append(group_id)
        reads[group_id].append(read)

    await read_log(log, take, group=group, watch=watch, strangers=strangers)
    return {
        group_id: History(group_id=group_id, log=log.location, items=tuple(with_gaps(of_group)))
        for group_id, of_group in reads.items()
    }


def read_record(record: StoredRecord, wanted: GroupId | None = None) -> tuple[GroupId | None, Read] | None:
    """Decode a record: the group that it concerns (None: its whole partition), and its content.

    Gives None for what says nothing, or is not wanted. Raises LogTooNew.
    """
    position = LogPosition(partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)
    try:
        key = decode_key(record.key)
    except UndecodableKey as broken:
        if record.value is None:
            return None, PassedOver(position=position, key=record.key)
        return None, Broken(position=position, kind=Unreadable.UNDECODABLE_KEY, reason=broken.reason, key=record.key)
    of_partition = key.kind is EntityKind.PARTITION
    if of_partition and record.value is None:
        return None, PassedOver(position=position, key=record.key)
    if record.value is None or not (of_partition or wanted is None or key.group_id == wanted):
        return None
    told = _read_value(record.value, key, position)
    if of_partition and isinstance(told, Broken):
        told = msgspec.structs.replace(told, key=record.key)
    return None if of_partition else GroupId(key.group_id), told


def _read_value(value: bytes, key: RecordKey, position: LogPosition) -> Told:
    of_partition = key.kind is EntityKind.PARTITION
    try:
        event = decode(value)
    except UnknownEventType as unknown:
        kind = Unreadable.COORDINATOR if of_partition else Unreadable.UNKNOWN_TYPE
        return Broken(position=position, kind=kind, reason=unknown.reason)
    except BrokenRecord as broken:
        kind = Unreadable.COORDINATOR if of_partition else Unreadable.BROKEN
        return Broken(position=position, kind=kind, reason=broken.reason)
    if not isinstance(event, PartitionEvent):
        return Happened(position=position, event=event)
    if isinstance(event, CoordinatorElected) and event.format_level > FORMAT_LEVEL:
        raise LogTooNew(
            f"the event log has format level {event.format_level}, this version knows {FORMAT_LEVEL}: "
            f"it was written by Muster {event.version}; use a newer Muster"
        )
    return Coordinated(position=position, event=event)
