"""Step 2 of a takeover: read the groups up to the fence record, from where a standby is, or from the beginning.

Input: the writer of the claim, and the standby if any. Result: `GroupsRead`.
"""

import msgspec

from muster.coordinator.partition_reading import Standby, read_to_fence
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.loading import Loading
from muster.events.log.base import LogUnavailable, LogWriter
from muster.events.projector import Projector


class GroupsRead(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The groups of a partition, and the number of events read for them in this takeover."""

    loading: Loading
    events_read: int

    @property
    def projector(self) -> Projector:
        """The groups, and the owners recorded in the log."""
        return self.loading.projector


async def read_groups(owner: Owner, writer: LogWriter, standby: Standby[Loading] | None) -> GroupsRead:
    """Read the groups. Raises EventsError, LogError: LogUnavailable if the fence record was not read (L6)."""
    before = 0 if standby is None else standby.loading.events_read
    loading = await read_to_fence(
        owner.event_log, writer, standby, lambda: Loading(owner.foreign_records.reading(writer.partition))
    )
    if standby is None or loading is not standby.loading:
        before = 0
    last = loading.projector.last_partition_event
    if last is None or last.owner_epoch < writer.epoch:
        raise LogUnavailable(
            f"partition {writer.partition}: the reading ended before the record that this process had written when it"
            " claimed the partition"
        )
    owner.foreign_records.report(loading.foreign_records, owner.event_log.location)
    return GroupsRead(loading=loading, events_read=loading.events_read - before)
