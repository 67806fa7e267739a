"""Starts a sidecar: waits for the upstream cluster, and reads all that serving needs before any listener is bound.

Knows nothing of groups.
"""

from collections.abc import Awaitable, Callable

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from muster.coordinator.assembly import CannotServe, Readiness
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.settings.settings import Settings
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.kafka.errors import TryAgain
from muster.events.kafka.link import is_muster
from muster.events.log.base import EventLog
from muster.events.log.kafka.log import KafkaEventLog

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class UpstreamCluster:
    """Waits for the upstream cluster at startup and reads what serving needs. `readiness` says why it waits."""

    def __init__(
        self, settings: Settings, link: UpstreamLink, readiness: Readiness, monotonic_ms: Callable[[], int]
    ) -> None:
        self._upstream = settings.upstream
        self._address = f"{settings.name_of('upstream')} {settings.upstream}"
        self._link = link
        self._readiness = readiness
        self._monotonic_ms = monotonic_ms

    async def find(self) -> None:
        """Wait for the cluster. Raises CannotServe if waiting cannot help."""
        try:
            await self._until_answered(self._link.open)
            await self._until_answered(self._refuse_muster)
        except UpstreamRefused as error:
            raise CannotServe(f"{self._address}: {error}") from error

    async def reserved(self, event_log: EventLog) -> ReservedNames:
        """Return the names that clients may not use: the log's, if it may be in this cluster."""
        reserved = ReservedNames(event_log.location if isinstance(event_log, KafkaEventLog) else None)
        if reserved.topics:
            self._link.on_topic_ids(reserved.topics, reserved.update_ids)
            await self._until_answered(self._link.refresh)
        return reserved

    async def settle(self, reserved: ReservedNames, event_log: EventLog) -> None:
        """Determine whether the open log is in this cluster. Compares cluster ids, not addresses."""
        if isinstance(event_log, KafkaEventLog):
            reserved.settle(is_here=(event_log.cluster_id or "") == self._link.cluster_id)
            await self._until_answered(self._link.refresh)  # the topic may be new

    async def _refuse_muster(self) -> None:
        if await is_muster(self._link):
            raise UpstreamRefused("a Muster runs there, not a broker; give the brokers of the Kafka cluster")

    async def _until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Retry `ask` until a broker answers."""
        throttle = LogThrottle(self._monotonic_ms)

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self._readiness.reason = lambda: f"{self._address}: {error}"
            suppressed = throttle.due(self._upstream)
            if suppressed is not None:
                log.warning(
                    "upstream unreachable, retrying",
                    upstream=self._upstream,
                    error=str(error),
                    others_since=suppressed,
                )

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(TryAgain),
            wait=wait_exponential_jitter(multiplier=0.2, max=5),
            before_sleep=report,
        )
        await attempts(ask)
        if past := throttle.end(self._upstream):
            log.info("upstream reachable", upstream=self._upstream, seconds=past.seconds, failures=past.times)
