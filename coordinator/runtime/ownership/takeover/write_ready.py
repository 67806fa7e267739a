"""Step 5 of a takeover: write CoordinatorReady, the event that records the new owner and the takeover's duration.

Input: the claim, the groups, the former owner. Result: the event, which is durable.
"""

from muster.coordinator.runtime.ownership.fencing import append_one
from muster.coordinator.runtime.ownership.takeover.claim_partition import PartitionClaim
from muster.coordinator.runtime.ownership.takeover.ownership_end import FormerOwner
from muster.coordinator.runtime.ownership.takeover.read_groups import GroupsRead
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.avro.codec import records_of
from muster.events.events import CoordinatorReady


async def write_ready(
    owner: Owner, claim: PartitionClaim, read: GroupsRead, former: FormerOwner, *, began_ms: int
) -> CoordinatorReady:
    """Write the event. Raises LogError. `began_ms`: start of the takeover, by the monotonic clock."""
    ready = _ready(owner, claim, read, former, began_ms)
    sent_ms = owner.boot_ms()
    await append_one(claim.writer, records_of([ready], owner.event_log.format_level))
    owner.old_leases.served(claim.writer.partition, claim.writer.epoch)
    if claim.lease is not None:
        claim.lease.proven(sent_ms)
    return ready


def _ready(
    owner: Owner, claim: PartitionClaim, read: GroupsRead, former: FormerOwner, began_ms: int
) -> CoordinatorReady:
    now_ms, projector = owner.clock.monotonic_ms(), read.projector
    return CoordinatorReady(
        partition=claim.writer.partition,
        owner_epoch=claim.writer.epoch,
        owner=owner.name,
        ready_ms=owner.clock.wall_ms(),
        took_ms=now_ms - began_ms,
        events_read=read.events_read,
        groups=len(projector.groups),
        members=sum(len(group.members) for group in projector.groups.values()),
        incarnation_max=projector.incarnation_max,
        uptime_ms=now_ms,
        owner_before=projector.served_by,
        owner_before_seen_ms=former.seen_ms,
        owner_before_end=former.end,
    )
