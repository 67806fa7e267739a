"""Topics that clients request and that are not declared: each is counted, and logged with a way to fix it.

Some clients wait for such a topic and never join their group, so nothing else shows them. Ten topics have log lines of
their own, one a minute, for each of ten client hosts; all others share one.
"""

from collections.abc import Callable

import structlog

from muster.coordinator.log_throttle import NamesThrottle
from muster.coordinator.observability.metrics import TOPICS_NOT_DECLARED

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class MissingTopics:
    """Counts and logs requested topics that no `--topic` declares."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._throttle = NamesThrottle(monotonic_ms)

    def note(self, topic: str, client_id: str, client_host: str) -> None:
        """Count and report that a client asked for the topic."""
        TOPICS_NOT_DECLARED.inc()
        suppressed = self._throttle.due_of(client_host, "topic", topic)
        if suppressed is not None:
            log.warning(
                "client asks for a topic that is not declared",
                topic=topic,
                client_id=client_id,
                client_host=client_host,
                way_out=f"check the name, or start muster serve with --topic {topic}:PARTITIONS too",
                others_since=suppressed,
            )
