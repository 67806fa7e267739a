"""Step 4 of a takeover: until when the former owner may respond, when it was last alive, why its ownership ended.

Input: the claim, and the owners recorded in the log. Result: `FormerOwner`. Nothing is guessed: unknown values are
None.
"""

from collections.abc import Awaitable, Callable

import msgspec

from muster.coordinator.runtime.ownership.takeover.claim_partition import PartitionClaim
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.events import AnyPartitionEvent, CoordinatorStopped
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.projector import Projector

LastSignOf = Callable[[str], Awaitable[int | None]]
"""Finds the wall time (ms) of an owner's last sign of life; None if unknown."""

EndOf = Callable[[int, str], OwnershipEnd | None]
"""Returns why this former owner of this partition lost it; None if unknown."""


class FormerOwner(msgspec.Struct, frozen=True, kw_only=True):
    """When the former owner was last alive (wall time, ms), and why its ownership ended; None: unknown, or no owner."""

    seen_ms: int | None
    end: OwnershipEnd | None


async def note_former_owner(
    owner: Owner, claim: PartitionClaim, projector: Projector, last_sign_of: LastSignOf, end_of: EndOf
) -> FormerOwner:
    """Find out about the former owner, and note the lease under which it may still respond."""
    number = claim.writer.partition
    seen_ms = None if projector.served_by is None else await last_sign_of(projector.served_by)
    if claim.lease is not None:
        lease_ms = claim.lease.lease_ms
        owner.old_leases.taken_over(number, projector.before_election, fenced_ms=claim.fenced_ms, lease_ms=lease_ms)
    return FormerOwner(seen_ms=seen_ms, end=end_of_former_owner(owner, number, projector, end_of))


def warn_unless_stopped(owner: Owner, number: int, last_event: AnyPartitionEvent | None) -> None:
    """Warn if the former owner did not shut down cleanly. `last_event`: the last one before our fence record."""
    if not owner.old_leases.is_ours(number, last_event):
        owner.former_owners.warn_unless_stopped(
            last_event, by=owner.name, location=owner.event_log.location, now_ms=owner.clock.monotonic_ms()
        )


def end_unknown(_number: int, _owner_before: str) -> OwnershipEnd | None:
    """Return None: the default where processes do not share the log."""
    return None


def end_of_former_owner(owner: Owner, number: int, projector: Projector, end_of: EndOf) -> OwnershipEnd | None:
    """Return why the last owner that was ready lost the partition; None: there is none, or the cause is unknown."""
    before, owner_before = projector.before_election, projector.served_by
    if before is None or owner_before is None:
        return None
    if isinstance(before, CoordinatorStopped) and before.owner == owner_before:
        return OwnershipEnd(cause=OwnershipEndCause.STOPPED)
    if owner_before == owner.name and owner.old_leases.has_served(number):  # else another process had this name
        return OwnershipEnd(cause=OwnershipEndCause.TAKEN_BACK) if before.owner == owner_before else None
    return end_of(number, owner_before)
