"""Orphans: committed offsets without a group, which a takeover finds in the offsets topic.

Offsets are written after the events of their group, so a crash may have interrupted a deletion between the two: the
takeover finishes it. If the events have no trace of the group, not even its deletion, the group is recreated: Empty,
like that of a simple consumer (OC1), so that it is listed, expires and can be deleted. The two topics may have been
restored from backups of different times. A SQLite file has both events and offsets, so it has no orphans.
"""

from collections.abc import Iterable

import structlog

from muster.coordinator.clock import Clock
from muster.coordinator.group.loaded_groups import group_of_offsets
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.turn import Now
from muster.coordinator.load.slices import Slices
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.runtime.partition.outbox import partition_record_refused
from muster.events.avro.codec import records_of
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog, LogWriter
from muster.events.partitioner import partition_for
from muster.events.projector import Projector

log = structlog.get_logger(__name__)

MADE_AT_ONCE = 100
"""Groups recreated in one append; each takes about 50 µs."""


async def find_orphans(
    with_offsets: Iterable[GroupId], projector: Projector, number: int, partitions: int, slices: Slices
) -> set[GroupId]:
    """Return the groups of this partition that have offsets but no events."""
    orphans, pace = set[GroupId](), slices.pace()
    for group_id in with_offsets:
        if (
            group_id not in projector.groups
            and group_id not in projector.quarantined
            and partition_for(group_id, partitions) == number
        ):
            orphans.add(group_id)
        await pace.worked()
    return orphans


async def finish_deletions(offsets: OffsetStore, number: int, deleted: Iterable[GroupId]) -> None:
    """Remove the offsets of deleted groups. Raises LogError."""
    changes = [OffsetsChange(group_id=group_id, all_deleted=True) for group_id in deleted]
    if changes:
        log.info("removing offsets of deleted groups", partition=number, groups=len(changes))
        await offsets.write(changes)


async def recreate_groups(
    unknown: set[GroupId],
    projector: Projector,
    writer: LogWriter,
    *,
    settings: GroupSettings,
    clock: Clock,
    events: EventLog,
    offsets: EventLog,
) -> None:
    """Append and project an Empty group for each of `unknown`. Raises LogError."""
    if not unknown:
        return
    log.warning(
        "keeping committed offsets of groups that the event log does not know, as empty groups",
        log=events.location,
        offsets=offsets.location,
        partition=writer.partition,
        groups=len(unknown),
        first=min(unknown),
        way_out="nothing, if an older backup of the event topic was restored: the groups continue from these "
        "offsets; otherwise check that both topics belong together, and delete the groups that are not "
        "needed",
    )
    wall_ms = clock.wall_ms()
    now = Now(
        monotonic_ms=clock.monotonic_ms(),
        wall_ms=wall_ms,
        owner_epoch=writer.epoch,
        incarnation=max(wall_ms, projector.incarnation_max + 1),
    )
    groups = sorted(unknown)
    for first in range(0, len(groups), MADE_AT_ONCE):
        made = [group_of_offsets(each, now, settings) for each in groups[first : first + MADE_AT_ONCE]]
        for verdict in await writer.append([records_of([event], events.format_level) for event in made]):
            if isinstance(verdict, AppendRefused):
                raise partition_record_refused(writer, verdict)
        for event in made:
            projector.feed_event(event)
