"""Reading a partition in pieces, so that nobody waits for long meanwhile: from its beginning, or on from where one is.

What belongs here: how much is worked on at once, and knowing the log again. What it must not know: who reads.
"""

import asyncio
from typing import Final

from muster.events.loading import Loading, MustReadAnew
from muster.events.log.base import EventLog

COLLECTED_AT_ONCE: Final = 1_000
"""Records of a first reading, which are only kept: 0.5 ms of work."""
FOLLOWED_AT_ONCE: Final = 64
"""Records that are applied as they come: 1 ms of work."""


async def read_on(event_log: EventLog, number: int, loading: Loading, *, end: int | None = None) -> None:
    """Read what is new in the partition, up to `end` (default: the end at the call).

    Raises LogError; MustReadAnew when the log is not the one that was read before, or as `Loading.read`.
    """
    last = loading.last
    async for chunk in event_log.read(number, start=loading.next_offset if last is None else last.offset, end=end):
        first = 0
        if last is not None:
            if not last.is_at(chunk[0]):
                raise MustReadAnew(f"another record stands at offset {last.offset} than before: the log was cut there")
            first, last = int(chunk[0].offset == last.offset), None
        at_once = FOLLOWED_AT_ONCE if loading.is_folded else COLLECTED_AT_ONCE
        for begin in range(first, len(chunk), at_once):
            loading.read(chunk[begin : begin + at_once])
            await asyncio.sleep(0)
    if end is not None:
        loading.nothing_before(end)


async def folded(loading: Loading) -> None:
    """Fold what was read. Raises BrokenRecord."""
    for _ in loading.fold():
        await asyncio.sleep(0)
