"""Step 3 of a takeover: claim the committed offsets, and handle those of groups that the events do not have.

Input: the claim, the groups, and the part of the offsets that was read before. Result: `OffsetsClaim`.
"""

import msgspec

from muster.coordinator.offsets.deleted_topics import refuse_if_offsets_topic_deleted
from muster.coordinator.offsets.offsets_reading import ClaimedOffsets, FollowedOffsets
from muster.coordinator.runtime.ownership.hot_standbys import ReadBefore
from muster.coordinator.runtime.ownership.takeover.claim_partition import PartitionClaim
from muster.coordinator.runtime.ownership.takeover.orphans import find_orphans, finish_deletions, recreate_groups
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.ids import GroupId
from muster.events.projector import Projector


class OffsetsClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The result of claiming the offsets.

    `groups_recreated`: how many groups had offsets but no events; `records_read`: how many offset records were read.
    """

    groups_recreated: int
    records_read: int


async def claim_offsets(
    owner: Owner, claim: PartitionClaim, projector: Projector, read_before: ReadBefore
) -> OffsetsClaim:
    """Claim the offsets, which this process owns from then on. Raises LogError; LogMismatch if their topic is gone.

    Recreated groups are added to `projector`.
    """
    number, offsets = claim.writer.partition, owner.offsets
    if not claim.offsets_were_owned and (projector.groups or projector.quarantined):
        await refuse_if_offsets_topic_deleted(owner.event_log, offsets, number)
    if isinstance(offsets, FollowedOffsets):
        claimed = await offsets.claim_by(number, read_before.offsets)
    else:
        claimed = ClaimedOffsets(groups=await offsets.claim(number), records_read=0)
    orphans = await find_orphans(claimed.groups, projector, number, owner.event_log.partitions, owner.slices)
    unknown = set[GroupId]() if offsets.own_log is None else orphans.difference(projector.deleted)
    if orphans:
        read_before.spend()  # its offsets are changed here, and it has not read what is written now
    await finish_deletions(offsets, number, orphans - unknown)
    if offsets.own_log is not None:
        settings, clock, events = owner.settings, owner.clock, owner.event_log
        await recreate_groups(
            unknown, projector, claim.writer, settings=settings, clock=clock, events=events, offsets=offsets.own_log
        )
    return OffsetsClaim(groups_recreated=len(unknown), records_read=claimed.records_read)
