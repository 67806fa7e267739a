"""Reading around what is damaged, for those who only look: the records that can still be read.

What belongs here: which offsets are asked for after a failure. A page of the file holds some tens of records, and one
that is damaged takes these along, or all below it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from muster.events.log.base import LogDamaged
from muster.events.records import StoredRecord

UNKNOWN_END = 2**62
"""Of a partition whose last record cannot be read: beyond every offset."""

_LARGEST = 4_096
_SKIPPED_ONE_BY_ONE = 256

ReadRange = Callable[[int, int], Awaitable[Sequence[StoredRecord]]]
"""The first records at offsets from the one up to the other (exclusive), none if there are none. Raises LogDamaged."""


async def read_around(read_range: ReadRange, start: int, end: int) -> AsyncIterator[Sequence[StoredRecord]]:
    """Chunks of what can be read, in order; no record is asked for twice more often than the range can be halved."""
    size, skipped, step = end, 0, 1
    while start < end:
        until = min(start + size, end)
        try:
            chunk = await read_range(start, until)
        except LogDamaged:
            if size > 1:
                size = min(size // 8, _LARGEST) or 1
                continue
            start += step
            skipped += 1
            step = step * 2 if skipped > _SKIPPED_ONE_BY_ONE else 1
            continue
        size, skipped, step = size * 8, 0, 1
        if chunk:
            yield chunk
            start = chunk[-1].offset + 1
        else:
            start = until
