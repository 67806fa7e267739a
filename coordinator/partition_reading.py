"""Reading a partition in pieces, so that nobody waits for long meanwhile: from its beginning, or on from where one is.

What belongs here: knowing the log again, and reading up to an owner's fence record. What it must not know: what records
mean (events/loading.py, coordinator/offsets/offsets_reading.py), and who reads.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from muster.events.loading import LastRead, MustReadAnew
from muster.events.log.base import EventLog, FollowedLog, LogUnavailable, LogWriter
from muster.events.records import EventsError, StoredRecord

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PartitionReading(Protocol):
    """One reading of a partition, which may go on behind the end of the first one.

    Between two calls it can be given up or passed on; so can a `fold` that was not gone through, whose rest another
    call does.
    """

    @property
    def last(self) -> LastRead | None:
        """The last record that was read, whoever wrote it."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset from which the reading goes on."""
        ...

    @property
    def records_at_once(self) -> int:
        """How many of the next records take some 1 ms of work."""
        ...

    @property
    def is_folded(self) -> bool:
        """Whether all that was read is complete: `fold` has ended once."""
        ...

    @property
    def is_being_folded(self) -> bool:
        """Whether a `fold` has begun and has not ended; nothing can be read before it has."""
        ...

    def read(self, chunk: Sequence[StoredRecord]) -> None:
        """Take in the next records, in offset order. Raises EventsError; once folded, MustReadAnew too."""
        ...

    def nothing_before(self, offset: int) -> None:
        """Note that there is no record left before this offset: compaction has removed the last ones."""
        ...

    def fold(self) -> Iterator[None]:
        """Complete what was read, a little at a time. Raises BrokenRecord."""
        ...


R = TypeVar("R", bound=PartitionReading)


class Standby(msgspec.Struct, Generic[R], kw_only=True, eq=False):
    """The part of a partition that was read. `at_end_ms`: when it was known last to be all, by the clock `boot_ms`."""

    loading: R
    at_end_ms: int
    boot_ms: Callable[[], int]
    deletions_kept_ms: int
    """How long the log keeps deletions: one that was not read for longer may have missed one."""
    is_of_wall_clock: bool = False
    """Whether `at_end_ms` was once told by the wall clock, which may have been set since."""
    is_spent: bool = False
    """Whether it cannot be used again: a takeover has found that, or has changed it."""

    @property
    def is_too_old(self) -> bool:
        """Whether it was not read for longer than deletions are kept."""
        return self.boot_ms() - self.at_end_ms >= self.deletions_kept_ms


async def read_on(
    event_log: EventLog | FollowedLog, number: int, loading: PartitionReading, *, end: int | None = None
) -> None:
    """Read what is new in the partition, up to `end` (default: the end at the call).

    Raises LogError; MustReadAnew when the log is not the one that was read before, or as `PartitionReading.read`.
    """
    last = loading.last
    async for chunk in event_log.read(number, start=loading.next_offset if last is None else last.offset, end=end):
        first = 0
        if last is not None:
            if not last.is_at(chunk[0]):
                raise MustReadAnew(f"another record stands at offset {last.offset} than before: the log was cut there")
            first, last = int(chunk[0].offset == last.offset), None
        at_once = loading.records_at_once
        for begin in range(first, len(chunk), at_once):
            loading.read(chunk[begin : begin + at_once])
            await asyncio.sleep(0)
    if end is not None:
        loading.nothing_before(end)


async def folded(loading: PartitionReading) -> None:
    """Fold what was read. Raises BrokenRecord."""
    for _ in loading.fold():
        await asyncio.sleep(0)


async def read_to_fence(
    event_log: EventLog, writer: LogWriter, standby: Standby[R] | None, new_reading: Callable[[], R]
) -> R:
    """Read the partition up to the fence record that this writer has just written: what a standby has not read, or all.

    A standby that cannot be used is spent then. Raises LogError, too if the reading ended before that record, and
    EventsError.
    """
    if standby is not None:
        try:
            await _read_rest(event_log, writer, standby)
        except (MustReadAnew, EventsError) as error:
            standby.is_spent = True
            log.info(
                "reading the whole partition: the standby cannot be used",
                log=event_log.location,
                partition=writer.partition,
                reason=str(error),
            )
        else:
            return standby.loading
    loading = new_reading()
    await read_on(event_log, writer.partition, loading, end=writer.next_offset)
    await folded(loading)
    _check_is_all(loading, writer)
    return loading


async def _read_rest(event_log: EventLog, writer: LogWriter, standby: Standby[R]) -> None:
    """Read what a standby has not read yet. Raises MustReadAnew if that cannot be done, EventsError and LogError."""
    loading, fenced = standby.loading, writer.next_offset
    before = loading.last if loading.is_folded else None  # else the last one is of long ago
    if fenced is None:
        raise MustReadAnew("the log does not tell where it ends")
    if loading.next_offset >= fenced:
        raise MustReadAnew(f"the log ends at offset {fenced}, before what was read")
    if loading.is_being_folded:
        await folded(loading)
    await read_on(event_log, writer.partition, loading, end=fenced)
    await folded(loading)
    try:
        _check_is_all(loading, writer)
    except LogUnavailable:
        standby.is_spent = True  # it would go on behind what it has not read
        raise
    # By the log's own clock only where the other may have been set: nothing may have been written for a long time.
    since_ms = 0 if before is None or loading.last is None else loading.last.timestamp_ms - before.timestamp_ms
    if standby.is_too_old or (standby.is_of_wall_clock and since_ms >= standby.deletions_kept_ms):
        raise MustReadAnew("it was not read for longer than the log keeps deletions")


def _check_is_all(loading: PartitionReading, writer: LogWriter) -> None:
    """Check that the last record that was read is the writer's fence record, or one behind it. Raises LogUnavailable.

    Where the log does not tell where it ends, nothing can be said.
    """
    fenced = writer.next_offset
    if fenced is not None and (loading.last is None or loading.last.offset < fenced - 1):
        raise LogUnavailable(
            f"partition {writer.partition}: the reading ended before the record that this process had written when it"
            " claimed the partition"
        )
