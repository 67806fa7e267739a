"""Reads a partition in small pieces, from its beginning or from where an earlier reading stopped.

Verifies that the log is still the one read before, and reads up to an owner's fence record. The meaning of records is
in events/loading.py and coordinator/offsets/offsets_reading.py.
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
    """One reading of a partition, which can be continued after the end of the first one.

    Between two calls it can be abandoned or passed on; so can a `fold` that was not exhausted: another call of `fold`
    does the rest.
    """

    @property
    def last(self) -> LastRead | None:
        """The last record read, including foreign ones."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset from which reading continues."""
        ...

    @property
    def records_at_once(self) -> int:
        """How many of the next records take about 1 ms of work."""
        ...

    @property
    def is_folded(self) -> bool:
        """Return whether all that was read is complete: `fold` has finished once."""
        ...

    @property
    def is_being_folded(self) -> bool:
        """Return whether a `fold` has begun but not finished; nothing can be read until it has."""
        ...

    def read(self, chunk: Sequence[StoredRecord]) -> None:
        """Apply the next records, in offset order. Raises EventsError; once folded, MustReadAnew too."""
        ...

    def nothing_before(self, offset: int) -> None:
        """Note that there is no record left before this offset: compaction has removed the last ones."""
        ...

    def fold(self) -> Iterator[None]:
        """Complete what was read, in small steps. Raises BrokenRecord."""
        ...


R = TypeVar("R", bound=PartitionReading)


class Standby(msgspec.Struct, Generic[R], kw_only=True, eq=False):
    """The part of a partition that was read. `at_end_ms`: when it was last known to be complete, by `boot_ms`."""

    loading: R
    at_end_ms: int
    boot_ms: Callable[[], int]
    deletions_kept_ms: int
    """How long the log keeps deletions: if it was not read for longer, it may have missed one."""
    is_of_wall_clock: bool = False
    """True if `at_end_ms` was derived from the wall clock, which may have been set since."""
    is_spent: bool = False
    """True if it cannot be used again, because a takeover found it unusable or has changed it."""

    @property
    def is_too_old(self) -> bool:
        """Return whether it has not been read for longer than deletions are kept."""
        return self.boot_ms() - self.at_end_ms >= self.deletions_kept_ms


async def read_on(
    event_log: EventLog | FollowedLog, number: int, loading: PartitionReading, *, end: int | None = None
) -> None:
    """Read the new records of the partition, up to `end` (default: the end at the call).

    Raises LogError; MustReadAnew if the log is not the one that was read before, or as `PartitionReading.read`.
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
    """Read the partition up to the fence record that this writer has just written; with a standby only the rest.

    A standby that turns out to be unusable is marked as spent. Raises EventsError, and LogError, also if the reading
    ended before that record.
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
    """Read what a standby has not read yet. Raises MustReadAnew if that is impossible, EventsError and LogError."""
    loading, fenced = standby.loading, writer.next_offset
    before = loading.last if loading.is_folded else None  # otherwise the last one is from long ago
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
        standby.is_spent = True  # it would continue after records that it has not read
        raise
    # Compare the log's own timestamps only if the other clock may have been set: there may be no recent records.
    since_ms = 0 if before is None or loading.last is None else loading.last.timestamp_ms - before.timestamp_ms
    if standby.is_too_old or (standby.is_of_wall_clock and since_ms >= standby.deletions_kept_ms):
        raise MustReadAnew("it was not read for longer than the log keeps deletions")


def _check_is_all(loading: PartitionReading, writer: LogWriter) -> None:
    """Check that the last record read is the writer's fence record, or a later one. Raises LogUnavailable.

    If the log does not report its end, this cannot be checked.
    """
    fenced = writer.next_offset
    if fenced is not None and (loading.last is None or loading.last.offset < fenced - 1):
        raise LogUnavailable(
            f"partition {writer.partition}: the reading ended before the record that this process had written when it"
            " claimed the partition"
        )
