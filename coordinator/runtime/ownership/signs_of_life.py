"""Signs of life: a record every five seconds, apart from the events, that tells the next owner when this one ended.

Writes this process's own signs and finds the last one of another owner. There is one per process, not per partition;
the log decides where it is kept. Signs must neither delay nor stop anything: each attempt has a timeout, and failures
are counted, and logged once, when no sign could be written for a minute: an outage of the log itself is logged before
that.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from muster.coordinator.clock import Clock
from muster.coordinator.observability.metrics import SIGNS_OF_LIFE_FAILED
from muster.events.log.base import EventLog, LogError, SignOfLife
from muster.events.records import SIGNS_OF_LIFE_FROM_LEVEL, EventsError

log = structlog.get_logger(__name__)

SIGN_INTERVAL_MS: Final = 5_000
SIGN_TIMEOUT_MS: Final = 4_000
READ_TIMEOUT_MS: Final = 1_000
"""How long a takeover waits for the signs; after a failure they are not read for READ_RETRY_INTERVAL_MS."""
READ_RETRY_INTERVAL_MS: Final = 60_000
REPORTED_AFTER_MS: Final = 60_000


class SignsOfLife:
    """Writes this process's signs of life. `owner`: its name; `serves`: whether it owns a partition now."""

    def __init__(self, event_log: EventLog, owner: str, clock: Clock, *, serves: Callable[[], bool]) -> None:
        self._log = event_log
        self._owner = owner
        self._clock = clock
        self._serves = serves
        self._left_ms: int | None = None
        self._found: Mapping[str, int] = {}
        """The signs of life that were last read, by owner: those of other owners, and of a previous process with this
        one's name.
        """
        self._found_ms: int | None = None
        self._reading = asyncio.Lock()
        self._not_read_before_ms = 0
        self._leaving: asyncio.Task[None] | None = None
        self._reading_ahead: asyncio.Task[None] | None = None
        self._fails_since_ms: int | None = None
        self._is_said = False

    def begin(self) -> None:
        """Write signs in the background from now on. The former owners' signs have been read by now."""
        if self._leaving is None and self._log.format_level >= SIGNS_OF_LIFE_FROM_LEVEL:
            self._leaving = asyncio.create_task(self._leave(), name="signs-of-life")
            self._leaving.add_done_callback(_report_bug)

    async def stop(self) -> None:
        tasks = [task for task in (self._leaving, self._reading_ahead) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def read_ahead(self) -> None:
        """Start reading the signs of other owners, which the takeovers that start now will need."""
        if self._reading_ahead is None or self._reading_ahead.done():
            self._reading_ahead = asyncio.create_task(self._read_unless_new(), name="read-signs-of-life")
            self._reading_ahead.add_done_callback(_report_bug)

    async def last_of(self, owner: str) -> int | None:
        """Return the wall time (ms) of the owner's last sign; None if unknown. Never raises errors of the log."""
        if owner == self._owner and self._left_ms is not None:
            return self._left_ms
        await self._read_unless_new()
        return self._found.get(owner)

    async def _read_unless_new(self) -> None:
        async with self._reading:  # partitions that are taken over together read them once
            now_ms = self._clock.monotonic_ms()
            is_new = self._found_ms is not None and now_ms - self._found_ms < SIGN_INTERVAL_MS
            if not is_new and now_ms >= self._not_read_before_ms:
                self._found, self._found_ms = await self._read(), now_ms

    async def _read(self) -> Mapping[str, int]:
        if self._log.format_level < SIGNS_OF_LIFE_FROM_LEVEL:
            return {}
        try:
            async with asyncio.timeout(READ_TIMEOUT_MS / 1_000):
                return await self._log.last_signs_of_life(timeout_ms=READ_TIMEOUT_MS)
        except (LogError, EventsError, TimeoutError) as error:
            self._not_read_before_ms = self._clock.monotonic_ms() + READ_RETRY_INTERVAL_MS
            SIGNS_OF_LIFE_FAILED.inc()
            log.warning(
                "could not read when the previous owner was last alive",
                log=self._log.location,
                error=str(error) or "no answer in time",
            )
            return {}

    async def _leave(self) -> None:
        while True:
            if self._serves():
                await self._leave_one()
            await asyncio.sleep(SIGN_INTERVAL_MS / 1_000)

    async def _leave_one(self) -> None:
        sign = SignOfLife(owner=self._owner, wall_ms=self._clock.wall_ms())
        try:
            async with asyncio.timeout(SIGN_TIMEOUT_MS / 1_000):
                await self._log.leave_sign_of_life(sign, timeout_ms=SIGN_TIMEOUT_MS)
        except (LogError, TimeoutError) as error:
            self._failed(error)
        else:
            self._left_ms, self._fails_since_ms, self._is_said = sign.wall_ms, None, False

    def _failed(self, error: Exception) -> None:
        SIGNS_OF_LIFE_FAILED.inc()
        now_ms = self._clock.monotonic_ms()
        self._fails_since_ms = now_ms if self._fails_since_ms is None else self._fails_since_ms
        if not self._is_said and now_ms - self._fails_since_ms >= REPORTED_AFTER_MS:
            self._is_said = True
            log.warning(
                "could not record that this process is alive: if it crashes, the time of the crash may be unknown",
                log=self._log.location,
                error=str(error) or "no answer in time",
            )


def _report_bug(task: "asyncio.Task[None]") -> None:
    """Log an internal error; the groups are served all the same."""
    with contextlib.suppress(asyncio.CancelledError):
        bug = task.exception()
        if bug is not None:
            log.error(
                "stopped recording that this process is alive: this is a bug in Muster, please report it", exc_info=bug
            )
