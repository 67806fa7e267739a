"""Foreign records in the event log and in the offsets topic: logged once, and what they overwrote is rewritten.

This is the owner's reaction. The log detects foreign records (`StoredRecord.is_foreign`);
`coordinator/group/rewriting.py` rewrites an entity, `coordinator/offsets/topic.py` an offset.

A takeover finds all of them as it reads (`events/loading.py`). A served partition is not read, but an append returns
its offset, so a gap before it means that another producer has appended. Then that range is read, and each key whose
last record in it is foreign is rewritten: within seconds, whereas compaction takes days. The records read and the keys
rewritten are limited per minute, in case a producer writes all the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog

from muster.coordinator.not_served import way_out
from muster.coordinator.observability.metrics import FOREIGN_RECORDS
from muster.coordinator.tasks import on_failure
from muster.events.log.base import EventLog, LogUnavailable
from muster.events.records import BrokenRecord, ForeignRecords

log = structlog.get_logger(__name__)

PAUSE_S = 60.0
RECORDS_MAX = 100_000
"""Records read between two pauses."""
KEYS_MAX = 5_000
"""Keys rewritten between two pauses."""


class ForeignRecordsSeen:
    """Counts the foreign records of one log, each once, and logs the first of each partition."""

    def __init__(self) -> None:
        self._counted_to: dict[int, int] = {}

    def reading(self, partition: int) -> ForeignRecords:
        """Create the counter for the records of a reading."""
        return ForeignRecords(counted_to=self._counted_to.get(partition, 0))

    def report(self, foreign_records: ForeignRecords, location: str) -> None:
        """Count what a reading has found, and log the first record of each partition."""
        for partition, offset in foreign_records.first.items():
            if partition not in self._counted_to:
                log.warning(
                    "skipping records in the topic that this cluster's Muster did not write",
                    log=location,
                    partition=partition,
                    offset=offset,
                    way_out="find out which client produces to the topic or mirrors into it: only Muster's own "
                    "principal needs the ACL Allow WRITE on it",
                )
            self._counted_to[partition] = foreign_records.next_offset
        FOREIGN_RECORDS.inc(foreign_records.records)


def gap_between(before: int | None, after: int | None, appended: int) -> range | None:
    """Return the offset range that contains foreign records, if it has more than the `appended` records.

    None if there are none, or if an offset is unknown.
    """
    if before is None or after is None or after - before <= appended:
        return None
    return range(before, after)


class ForeignRecordsWatch:
    """Watches one owned partition. `rewrite` is called with the keys whose last record is foreign."""

    def __init__(
        self,
        event_log: EventLog,
        partition: int,
        seen: ForeignRecordsSeen,
        *,
        rewrite: Callable[[Collection[bytes]], Awaitable[None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self._log = event_log
        self._partition = partition
        self._seen = seen
        self._rewrite = rewrite
        self._failed = failed
        self._unread: range | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_reading = False
        self._found_broken = False
        self._is_closed = False

    def notice(self, gap: range) -> None:
        """Schedule a scan of this offset range for foreign records."""
        if self._is_closed:
            return
        self._unread = range(gap.start if self._unread is None else min(self._unread.start, gap.start), gap.stop)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_gaps(), name=f"foreign-records-{self._partition}")
            self._reading.add_done_callback(on_failure(self._failed))

    @property
    def is_up_to_date(self) -> bool:
        """Return whether all foreign records noticed so far have been read, and were readable."""
        return self._unread is None and not self._is_reading and not self._found_broken

    async def close(self) -> None:
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_gaps(self) -> None:
        while self._unread is not None:
            gap, self._unread = self._unread, None
            self._is_reading = True
            try:
                await self._read_gap(gap)
            except LogUnavailable:
                self.notice(gap)
            except BrokenRecord as broken:
                # It stops the next takeover, unless it is repaired; the owned state is in memory and remains usable.
                self._found_broken = True
                log.error(
                    "unreadable record in the event log: after a restart its partition would not be served",
                    log=self._log.location,
                    error=str(broken),
                    way_out=way_out(broken),
                )
            finally:
                self._is_reading = False
            await asyncio.sleep(PAUSE_S)
        self._reading = None

    async def _read_gap(self, gap: range) -> None:
        foreign_records, overwritten, records = self._seen.reading(self._partition), set[bytes](), 0
        async for chunk in self._log.read(self._partition, start=gap.start):
            for record in chunk:
                if record.is_foreign:
                    foreign_records.note(record)
                    overwritten.add(record.key)
                else:
                    overwritten.discard(record.key)
            records += len(chunk)
            after = chunk[-1].offset + 1
            if after < gap.stop and (records >= RECORDS_MAX or len(overwritten) >= KEYS_MAX):
                self.notice(range(after, gap.stop))
                break
        self._seen.report(foreign_records, self._log.location)
        await self._rewrite(overwritten)
