"""Reading around damage, when opened for reading: the records that can still be read.

What belongs here: the offsets to try after a failure. A page of the file has some tens of records, and a damaged one
takes these along, or all below it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from muster.events.log.base import LogDamaged
from muster.events.records import StoredRecord

_LARGEST = 4_096
_SKIPPED_ONE_BY_ONE = 256

ReadRange = Callable[[int, int], Awaitable[Sequence[StoredRecord]]]
"""Reads the first records between two offsets (the second exclusive), perhaps none. Raises LogDamaged."""


async def read_around(read_range: ReadRange, start: int, end: int) -> AsyncIterator[Sequence[StoredRecord]]:
    """Read chunks of the readable records, in order; a range that fails is halved and tried again."""
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
