"""That the event log is away: why, since when, and which partitions wait for it.

What belongs here: waiting for the log, and what /readyz and the log lines say meanwhile. What it must not know: how a
log is opened, or a partition taken over.

It says so when the first partition has to wait, then once a minute however often it is tried, and when the last one is
served again.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from muster.coordinator.occasions import Occasions
from muster.events.log.base import LogDenied, LogUnavailable

log = structlog.get_logger(__name__)

RETRY_PAUSE_MAX_S: Final = 1.0
"""The log has limits of its own for each attempt; when it is back, it is served again soon after."""
AS_A_WHOLE: Final = -1
"""Stands for a partition while the log is being opened."""


class LogOutage:
    """See the module. `location` names the log."""

    def __init__(self, location: str, monotonic_ms: Callable[[], int]) -> None:
        self._location = location
        self._monotonic_ms = monotonic_ms
        self._waiting: set[int] = set()
        self._reason = ""
        self._since_ms = 0
        self._occasions = Occasions(monotonic_ms)

    async def waited_for(
        self, attempt: Callable[[], Awaitable[None]], partition: int = AS_A_WHOLE, *, was_served: bool = False
    ) -> None:
        """Attempt what needs the log until it is there. Raises what is not LogUnavailable.

        A right that we lack is waited for only where we had it before; else LogDenied is raised, too.
        """

        began_ms = self._monotonic_ms()

        async def attempted() -> None:
            nonlocal began_ms
            began_ms = self._monotonic_ms()
            await attempt()

        def is_waited_for(error: BaseException) -> bool:
            return isinstance(error, LogUnavailable) and (was_served or not isinstance(error, LogDenied))

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, LogUnavailable):
                self.failed(partition, error, began_ms=began_ms)

        await AsyncRetrying(
            retry=retry_if_exception(is_waited_for),
            wait=wait_random_exponential(multiplier=0.1, max=RETRY_PAUSE_MAX_S),
            before_sleep=report,
        )(attempted)
        self.is_back(partition)

    @property
    def reason(self) -> str | None:
        """Why partitions are not served, for people; None when none waits. May be asked from another thread."""
        if not self._waiting:
            return None
        seconds = (self._monotonic_ms() - self._since_ms) // 1000
        return f"the event log {self._location} has been unavailable for {seconds} s, trying again: {self._reason}"

    def failed(self, partition: int, error: Exception, *, began_ms: int) -> None:
        """A partition has to wait, or waits still. `began_ms`: when that was begun which has failed now."""
        now_ms = self._monotonic_ms()
        self._since_ms = min(self._since_ms, began_ms) if self._waiting else began_ms
        self._waiting.add(partition)
        self._reason = str(error)
        if self._occasions.tell(self._location) is not None:
            log.warning(
                "event log unavailable, trying again",
                log=self._location,
                seconds=(now_ms - self._since_ms) // 1000,
                error=self._reason,
            )

    def is_back(self, partition: int) -> None:
        """A partition is served, whether it had to wait or not."""
        if partition not in self._waiting:
            return
        self._waiting.discard(partition)
        if not self._waiting:
            self._occasions.over(self._location)
            seconds = (self._monotonic_ms() - self._since_ms) // 1000
            log.info("event log available again", log=self._location, seconds=seconds)
