"""Records that were deleted from the log before they were archived: manifests list them, verify and readers report
them.

Compaction leaves the last record of each key; deletion leaves none, so the archive can never have what they contained.
Both leave offsets without records. The log shows the difference: only deletion moves a partition's start offset. That
is looked up after the offsets were found empty, since records may be deleted while the archiver reads.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from muster.events.log.base import CutLog, EventLog

DELETED_MAX: Final = 100
"""How many ranges of deleted records are listed for a partition; if there are more, the last ones are merged."""


class DeletedRecords(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The offsets of a partition, `start` to `end` (exclusive), that were deleted before they were archived."""

    partition: int
    start: Annotated[int, msgspec.Meta(ge=0)]
    end: Annotated[int, msgspec.Meta(ge=0)]


async def deleted_before(
    log: EventLog, partition: int, start: int, end: int, *, known: Sequence[DeletedRecords]
) -> DeletedRecords | None:
    """Return which of these offsets, at which no record was found, were deleted rather than compacted.

    None if none were, or if `known` already lists all of them.
    """
    if start >= end or not isinstance(log, CutLog):
        return None
    cut = min(await log.begin_offset(partition), end)
    if cut <= start or any(each.partition == partition and each.start <= start and cut <= each.end for each in known):
        return None
    return DeletedRecords(partition=partition, start=start, end=cut)


def with_deleted(known: Sequence[DeletedRecords], new: Sequence[DeletedRecords]) -> tuple[DeletedRecords, ...]:
    """Merge adjacent ranges; if a partition has too many to list, also merge its last ones."""
    if not new:
        return tuple(known)
    joined: list[DeletedRecords] = []
    count = 0
    for each in sorted((*known, *new)):
        last = joined[-1] if joined and joined[-1].partition == each.partition else None
        count = 0 if last is None else count
        if last is not None and (each.start <= last.end or count >= DELETED_MAX):
            joined[-1] = msgspec.structs.replace(last, end=max(last.end, each.end))
        else:
            joined.append(each)
            count += 1
    return tuple(joined)


def deletion_text(of: str, deleted: Sequence[DeletedRecords]) -> str:
    """Describe what was deleted from the log `of` before it was archived."""
    named = ", ".join(f"partition {each.partition} offsets {each.start} to {each.end - 1}" for each in deleted[:3])
    more = f" and {len(deleted) - 3} more ranges" if len(deleted) > 3 else ""
    return (
        f"records of {of} were deleted before they were archived ({named}{more}): its cleanup.policy had `delete`, or"
        " somebody deleted them. What they told is lost, and groups may seem to begin later than they did"
    )
