"""Status of the partitions that this process owns. Built outside the event loop's thread, from copies."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from muster.coordinator.observability.group_metrics import GroupFigures, in_slices
from muster.coordinator.observability.status import (
    NAMED_MAX,
    OwnedStatus,
    OwnershipStatus,
    QuarantinedStatus,
    WaitingPartition,
)
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.owned_partitions import OwnedPartitions
from muster.coordinator.runtime.ownership.partition_state import Failed, NotReadable, Serving, TakingOver
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.quarantine import way_out

BEING_READ: Final = "it is being taken over"


def ownership_status(owner: Owner, partitions: OwnedPartitions, figures: GroupFigures) -> OwnershipStatus:
    """Return the owned partitions and groups. Thread-safe; the log must be open."""
    states = dict(sorted(partitions.states.copy().items()))
    owned = {number: state.ownership for number, state in states.items() if isinstance(state, Serving)}
    being_read = partitions.outage.reason or BEING_READ
    waiting = [
        WaitingPartition(partition=number, reason=being_read if isinstance(state, TakingOver) else state.reason)
        for number, state in states.items()
        if isinstance(state, TakingOver | NotReadable | Failed)
    ]
    groups: dict[str, dict[str, int]] = {}
    members: dict[str, int] = {}
    for (state, coordinator), count in sorted(figures.groups.items()):
        groups.setdefault(coordinator, {})[state] = count
    for (_, coordinator), count in figures.members.items():
        members[coordinator] = members.get(coordinator, 0) + count
    return OwnershipStatus(
        owner=owner.name,
        log_identity=owner.event_log.identity,
        log_partitions=owner.event_log.partitions,
        owned=[_owned(number, each) for number, each in owned.items()],
        standbys=[] if partitions.standbys is None else partitions.standbys.status(),
        waiting=waiting,
        quarantined=[*islice(_quarantined(owner, owned), NAMED_MAX)],
        quarantined_count=figures.quarantined,
        groups=groups,
        members=members,
        oldest_parked_ms=figures.oldest_parked_ms,
        oldest_parked_group=figures.oldest_parked_group,
    )


def _owned(number: int, ownership: OwnedPartition) -> OwnedStatus:
    partition = ownership.partition
    groups = partition.groups()
    joins, syncs, _ = partition.parked()
    waits = ownership.waits
    return OwnedStatus(
        partition=number,
        epoch=partition.epoch,
        lease_left_ms=None if ownership.kept is None else ownership.kept.lease.left_ms,
        read_only=partition.is_read_only,
        groups=len(groups),
        members=sum(len(group.members) for group in in_slices(groups)),
        parked=joins + syncs,
        append_waits_ms=0 if waits is None else int(waits[1] * 1000),
    )


def _quarantined(owner: Owner, owned: Mapping[int, OwnedPartition]) -> Iterator[QuarantinedStatus]:
    for number, ownership in owned.items():
        for damage in ownership.partition.damages():
            broken = damage.broken[0] if damage.broken else None
            yield QuarantinedStatus(
                group_id=damage.group_id,
                partition=number,
                reason="" if broken is None else f"offset {broken.offset}: {broken.reason}",
                way_out=way_out(damage.group_id, owner.bootstrap),
            )
