"""Step 1 of a takeover: claim the partition, and write the fence record, after which no former owner can append.

Input: the number of the partition. Result: `PartitionClaim`.
"""

import msgspec

from muster.coordinator.offsets.deleted_topics import refuse_if_event_topic_deleted
from muster.coordinator.runtime.ownership.fencing import fence
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.log.base import LogWriter


class PartitionClaim(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A partition that no other process can append to. `fenced_ms`: since when, by the leases' clock."""

    writer: LogWriter
    lease: AnswerLease | None
    """The answer lease, which starts at an append. None if no other process can take the log over."""
    fenced_ms: int
    offsets_were_owned: bool | None
    """True if the offsets had an owner before; None: the store does not know."""


async def claim_partition(owner: Owner, number: int) -> PartitionClaim:
    """Claim the partition. Raises LogError; LogMismatch if its event topic was deleted but its offsets exist."""
    lease = None if owner.answer_lease_ms is None else AnswerLease(owner.answer_lease_ms, owner.boot_ms)
    offsets_were_owned = await owner.offsets.begin_claim(number)
    writer = await owner.event_log.claim(number)
    refuse_if_event_topic_deleted(owner.event_log, owner.offsets, writer, offsets_were_owned=offsets_were_owned)
    await fence(owner, writer)
    return PartitionClaim(writer=writer, lease=lease, fenced_ms=owner.boot_ms(), offsets_were_owned=offsets_were_owned)
