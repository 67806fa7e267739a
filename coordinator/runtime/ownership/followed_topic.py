"""Hot standbys: this process follows partitions of other owners, so that a takeover only reads what is new.

Decides when a partition of a topic is read, when what was read is discarded, and when the log prepares a claim. Works
for any topic: events/loading.py turns records into groups, offsets/offsets_reading.py turns them into offsets.

Every second the end offsets of all these partitions are requested, in one request per broker, and partitions that have
grown are read further. The state of a partition is either here or with its owner (owned_partitions.py,
offsets/topic.py), never both: a takeover takes it from here, and after a release it is read again from the beginning.

    the log is unavailable                       what was read is kept; reading continues later
    it ends before what was read, or another     discarded: the new leader did not have all of it, or the topic was
    record is where the last one was             recreated
    it was not read for longer than deletions    discarded: a deletion may have been compacted away, its tombstone too
    are kept, e.g. on a suspended machine
    a record cannot be read                      discarded: later records decide if it counts

A partition without a standby is read from its beginning when it is taken over. So any failure here only costs time.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, Generic

import msgspec
import structlog

from muster.coordinator.observability.status import StandbyStatus
from muster.coordinator.partition_reading import R, Standby, folded, read_on
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.tasks import BackgroundTasks
from muster.events.loading import MustReadAnew
from muster.events.log.base import FollowedLog, LogError, LogUnavailable
from muster.events.records import EventsError

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CHECK_INTERVAL_S: Final = 1.0
CHECK_TIMEOUT_MS: Final = 2_000
PREPARE_INTERVAL_S: Final = 5.0
READ_AT_ONCE: Final = 4
"""Partitions that are read further concurrently, each with one fetch in memory. First readings run one at a time."""
RETRY_MS: Final = 5_000
RETRY_MAX_MS: Final = 600_000
"""Pause after a standby was discarded; it doubles up to the maximum."""
DELETIONS_KEPT_MS: Final = 60_000
"""Used if the brokers do not report how long deletions are kept."""


class _Followed(msgspec.Struct, Generic[R], kw_only=True, eq=False):
    """A partition that is followed. `behind`: its lag in offsets when the end was last known."""

    standby: Standby[R] | None = None
    reading: "asyncio.Task[None] | None" = None
    behind: int | None = None
    failures: int = 0
    rests: bool = False
    """True if reading is suspended while it is being saved."""
    not_before_ms: int = 0


class Standbys(Generic[R]):
    """The standbys of one topic. `new_reading` creates a reading of a partition, which starts at its first record.

    `is_ours`: whether this process owns a partition or is about to, so that it is not followed. `is_taking_over`:
    whether partitions are being taken over; first readings wait for that.
    """

    def __init__(
        self,
        owner: Owner,
        followed_log: FollowedLog,
        *,
        new_reading: Callable[[int], R],
        is_ours: Callable[[int], bool],
        is_taking_over: Callable[[], bool],
        load: Callable[[int], Awaitable[Standby[R] | None]] | None = None,
    ) -> None:
        """`load`: returns the saved state of a partition, if it is usable."""
        self._load = load
        self._owner = owner
        self._log = followed_log
        self._new_reading = new_reading
        self._is_ours = is_ours
        self._is_taking_over = is_taking_over
        self._followed: dict[int, _Followed[R]] = {}
        self._reading_first = asyncio.Lock()
        self._reading_on = asyncio.Semaphore(READ_AT_ONCE)
        self._tasks = BackgroundTasks(lambda _: None)  # each logs its own failures

    def status(self) -> list[StandbyStatus]:
        """The lag of each standby. Thread-safe."""
        now_ms = self._owner.boot_ms()
        return [
            StandbyStatus(
                partition=number,
                lag_records=each.behind,
                lag_ms=now_ms - each.standby.at_end_ms if each.standby and each.standby.loading.is_folded else None,
            )
            for number, each in sorted(dict(self._followed).items())
            if not self._is_ours(number)
        ]

    async def follow(self) -> None:
        """Follow the partitions of other owners, forever."""
        try:
            while True:
                await self._check_ends()
                await asyncio.sleep(CHECK_INTERVAL_S)
        finally:
            await self._tasks.close()

    async def prepare_claims(self) -> None:
        """Keep the log prepared for takeovers, forever: idle connections would be closed."""
        while True:
            for number in self._not_ours():
                await self._log.prepare_claim(number)
            await asyncio.sleep(PREPARE_INTERVAL_S)

    def _not_ours(self) -> list[int]:
        return [number for number in range(self._owner.event_log.partitions) if not self._is_ours(number)]

    async def take(self, number: int) -> Standby[R] | None:
        """Hand a standby to the partition's takeover; None: there is no usable one."""
        followed = self._followed.pop(number, None)
        if followed is None:
            return None
        if followed.reading is not None:
            followed.reading.cancel()
            await asyncio.wait([followed.reading])
        standby = followed.standby
        if standby is None or standby.is_too_old:
            return None
        return standby

    def put_back(self, number: int, standby: Standby[R]) -> None:
        """Take back the standby after a failed takeover, for the next attempt or to continue following."""
        if not standby.is_spent:
            self._followed[number] = _Followed(standby=standby)

    @asynccontextmanager
    async def resting(self, number: int) -> AsyncIterator[Standby[R] | None]:
        """Suspend reading of a standby while the block lasts, unless it is taken; None: there is no complete one."""
        followed = self._followed.get(number)
        if followed is None or followed.standby is None or not followed.standby.loading.is_folded:
            yield None
            return
        followed.rests = True
        try:
            if followed.reading is not None:
                await asyncio.wait([followed.reading])
            yield followed.standby if self._followed.get(number) is followed else None
        finally:
            followed.rests = False

    def is_still(self, number: int, standby: Standby[R]) -> bool:
        """Return whether this is still the partition's standby, neither taken nor discarded."""
        followed = self._followed.get(number)
        return followed is not None and followed.standby is standby

    # ---- following -----------------------------------------------------------------------------------

    async def _check_ends(self) -> None:
        """Request the end offsets, and read partitions with new records."""
        asked_ms = self._owner.boot_ms()
        async with aclosing(self._log.end_offsets(self._not_ours(), timeout_ms=CHECK_TIMEOUT_MS)) as answers:
            async for ends in answers:
                for number, end in ends.items():
                    if not self._is_ours(number):
                        self._on_end_offset(number, end, asked_ms)

    def _on_end_offset(self, number: int, end: int, asked_ms: int) -> None:
        followed = self._followed.setdefault(number, _Followed())
        standby = followed.standby
        followed.behind = end - (0 if standby is None else standby.loading.next_offset)
        if followed.rests or (followed.reading is not None and not followed.reading.done()):
            return
        if standby is not None and standby.is_too_old:
            self._discard(number, followed, "it was not read for longer than the log keeps deletions")
        elif standby is not None and followed.behind < 0:
            self._discard(number, followed, f"the log ends at offset {end}, before what was read")
        elif standby is not None and standby.loading.is_folded and not followed.behind:
            standby.at_end_ms, followed.failures = asked_ms, 0
        elif asked_ms >= followed.not_before_ms:
            followed.reading = self._tasks.start(self._read(number, followed, end, asked_ms), f"standby-{number}")

    def _discard(self, number: int, followed: _Followed[R], reason: str) -> None:
        pause_ms = min(RETRY_MS << min(followed.failures, 10), RETRY_MAX_MS)
        followed.standby = None
        followed.failures += 1
        followed.not_before_ms = self._owner.boot_ms() + pause_ms
        log.warning(
            "standby starts again from the beginning of its partition",
            log=self._log.location,
            partition=number,
            reason=reason,
            in_s=pause_ms // 1000,
        )

    async def _read(self, number: int, followed: _Followed[R], end: int, asked_ms: int) -> None:
        """Read a partition up to this end."""
        try:
            if followed.standby is None or not followed.standby.loading.is_folded:
                async with self._reading_first:
                    if not self._is_taking_over():
                        await self._read_first(number, followed, end, asked_ms)
            else:
                async with self._reading_on:
                    await self._read_on(number, followed, followed.standby, end, asked_ms)
        except LogUnavailable:
            pass  # this is retried soon, and owned partitions report the outage
        except (LogError, EventsError, MustReadAnew) as error:
            self._discard(number, followed, str(error))
        except Exception as bug:
            followed.failures = max(followed.failures, 10)
            self._discard(number, followed, repr(bug))
            log.error("standby failed: this is a bug in Muster, please report it", exc_info=bug)

    async def _read_first(self, number: int, followed: _Followed[R], end: int, asked_ms: int) -> None:
        if followed.standby is None and self._load is not None and not followed.failures:
            followed.standby = await self._load(number)
        if followed.standby is None:
            followed.standby = self._new_standby(number)
        loading = followed.standby.loading
        if not loading.is_being_folded:
            await read_on(self._log, number, loading, end=end)
        await folded(loading)
        followed.standby.at_end_ms, followed.behind = asked_ms, 0
        gc.freeze()  # as after a takeover: this stays in memory, so the collector need not traverse it each time

    async def _read_on(self, number: int, followed: _Followed[R], standby: Standby[R], end: int, asked_ms: int) -> None:
        await read_on(self._log, number, standby.loading, end=end)
        standby.at_end_ms, followed.behind = asked_ms, 0

    def _new_standby(self, number: int) -> Standby[R]:
        return Standby(
            loading=self._new_reading(number),
            at_end_ms=self._owner.boot_ms(),
            boot_ms=self._owner.boot_ms,
            deletions_kept_ms=deletions_kept_ms(self._log),
        )


def deletions_kept_ms(event_log: FollowedLog) -> int:
    """How long the log keeps deletions; a default if unknown."""
    kept_ms = event_log.deletions_kept_ms
    return DELETIONS_KEPT_MS if kept_ms is None else kept_ms
