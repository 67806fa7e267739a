"""An outage of the event log: its reason, its duration, and the partitions that wait for it.

Retries until the log is available, and provides the text for /readyz and the log lines in the meantime: one when the
first partition has to wait, then one a minute, and one when the last partition is served again.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from muster.coordinator.log_throttle import LogThrottle
from muster.events.log.base import LogDenied, LogUnavailable

log = structlog.get_logger(__name__)

RETRY_PAUSE_MAX_S: Final = 1.0
"""Longest pause between two attempts; the log limits each attempt with its own timeout."""
AS_A_WHOLE: Final = -1
"""Takes the place of a partition number while the log is being opened."""


class LogOutage:
    """The current outage of the event log at `location`, if any."""

    def __init__(self, location: str, monotonic_ms: Callable[[], int]) -> None:
        self._location = location
        self._monotonic_ms = monotonic_ms
        self._waiting: set[int] = set()
        self._reason = ""
        self._since_ms = 0
        self._throttle = LogThrottle(monotonic_ms)

    async def retry_until_available(
        self, attempt: Callable[[], Awaitable[None]], partition: int = AS_A_WHOLE, *, was_served: bool = False
    ) -> None:
        """Retry `attempt` until the log is available. Raises any error but LogUnavailable.

        LogDenied is retried only if the partition `was_served` before, because Muster was authorized then.
        """

        began_ms = self._monotonic_ms()

        async def attempted() -> None:
            nonlocal began_ms
            began_ms = self._monotonic_ms()
            await attempt()

        def is_retried(error: BaseException) -> bool:
            return isinstance(error, LogUnavailable) and (was_served or not isinstance(error, LogDenied))

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, LogUnavailable):
                self.failed(partition, error, began_ms=began_ms)

        await AsyncRetrying(
            retry=retry_if_exception(is_retried),
            wait=wait_random_exponential(multiplier=0.1, max=RETRY_PAUSE_MAX_S),
            before_sleep=report,
        )(attempted)
        self.available_again(partition)

    @property
    def reason(self) -> str | None:
        """Human-readable reason why partitions wait; None if none does. Thread-safe."""
        if not self._waiting:
            return None
        seconds = (self._monotonic_ms() - self._since_ms) // 1000
        return f"the event log {self._location} has been unavailable for {seconds} s, retrying: {self._reason}"

    def failed(self, partition: int, error: Exception, *, began_ms: int) -> None:
        """Note that an attempt for the partition failed. `began_ms`: start of the attempt."""
        now_ms = self._monotonic_ms()
        self._since_ms = min(self._since_ms, began_ms) if self._waiting else began_ms
        self._waiting.add(partition)
        self._reason = str(error)
        if self._throttle.due(self._location) is not None:
            log.warning(
                "event log unavailable, retrying",
                log=self._location,
                seconds=(now_ms - self._since_ms) // 1000,
                error=self._reason,
            )

    def available_again(self, partition: int) -> None:
        """Note that the log is available again for this partition; does nothing if it was not waiting for the log."""
        if partition not in self._waiting:
            return
        self._waiting.discard(partition)
        if not self._waiting:
            self._throttle.end(self._location)
            seconds = (self._monotonic_ms() - self._since_ms) // 1000
            log.info("event log available again", log=self._location, seconds=seconds)
