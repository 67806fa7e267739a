"""Step 6 of a takeover: serve the groups, with new sessions, and watch for foreign records.

Input: the claim, the groups, the damages of quarantined ones. Result: the `OwnedPartition`.
"""

import asyncio
from collections.abc import Collection, Mapping

import structlog

from muster.coordinator.foreign_records import ForeignRecordsWatch, gap_between
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.takeover.claim_partition import PartitionClaim
from muster.coordinator.runtime.ownership.takeover.read_groups import GroupsRead
from muster.coordinator.runtime.partition.outbox import OnLost, Outbox
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.partition import Partition
from muster.coordinator.runtime.partition.quarantine import way_out
from muster.events.damage import Damage, DamageSurvey
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.events.projector import Projector
from muster.events.records import UndecodableKey

log = structlog.get_logger(__name__)


async def survey_damages(owner: Owner, number: int, projector: Projector) -> dict[GroupId, Damage]:
    """Find the damage of quarantined groups; reads the log again if there are any. Raises LogError."""
    if not projector.quarantined:
        return {}
    survey = DamageSurvey(projector)
    async for chunk in owner.event_log.read(number):
        survey.read(chunk)
    for broken in projector.quarantined.values():
        log.error(
            "group quarantined: a record of it cannot be read",
            group_id=broken.group_id,
            log=owner.event_log.location,
            partition=broken.partition,
            offset=broken.offset,
            reason=broken.reason,
            way_out=way_out(broken.group_id, owner.bootstrap),
        )
    return survey.damages()


async def resume_groups(
    owner: Owner,
    claim: PartitionClaim,
    read: GroupsRead,
    damages: Mapping[GroupId, Damage],
    lost: OnLost,
    *,
    groups_recreated: int,
) -> OwnedPartition:
    """Serve the groups that are not quarantined. `lost` is called when this process loses the partition."""
    writer, projector, number = claim.writer, read.projector, claim.writer.partition
    outbox = Outbox(writer, owner.offsets, lost, claim.lease)
    partition = Partition(
        owner,
        number,
        outbox=outbox,
        epoch=writer.epoch,
        incarnation_max=projector.incarnation_max,
        quarantined=damages,
        lost=lost,
        lease=claim.lease,
        read_only=owner.old_leases.left_ms(number, owner.boot_ms()) > 0,
    )
    groups = [group for group_id, group in projector.groups.items() if group_id not in projector.quarantined]
    try:
        await partition.add_loaded_groups(groups)
    except asyncio.CancelledError:
        await outbox.close()
        raise
    partition.rewrite(read.loading.overwritten)
    foreign_records = _watch(owner, partition, outbox, lost)
    if gap := gap_between(projector.next_offset, writer.next_offset, groups_recreated + 1):  # since the reading ended
        foreign_records.notice(gap)
    return OwnedPartition(
        owner, partition, outbox, writer, foreign_records=foreign_records, lease=claim.lease, lost=lost
    )


def _watch(owner: Owner, partition: Partition, outbox: Outbox, lost: OnLost) -> ForeignRecordsWatch:
    async def rewrite(keys: Collection[bytes]) -> None:
        partition.rewrite(filter(None, map(_entity, keys)))

    watch = ForeignRecordsWatch(owner.event_log, partition.number, owner.foreign_records, rewrite=rewrite, failed=lost)
    outbox.on_foreign_records = watch.notice
    return watch


def _entity(key: bytes) -> RecordKey | None:
    """Decode the key of a group's entity; None for any other key."""
    try:
        entity = decode_key(key)
    except UndecodableKey:
        return None
    return None if entity.kind is EntityKind.PARTITION else entity
