"""Former owners that did not write CoordinatorStopped: they crashed, or still run and are deposed now.

What belongs here: the decision whether to warn. A deposed owner finds out only by its next append, so the new owner
warns. A name may come again, as a pod's does: it may be an owner's before this one, and this process's own.
"""

import structlog

from muster.coordinator.log_throttle import LINE_INTERVAL_MS
from muster.events.events import AnyPartitionEvent, CoordinatorElected, CoordinatorStopped

log = structlog.get_logger(__name__)


class FormerOwners:
    """When this process has warned of each former owner: once for all partitions, and again a minute later."""

    def __init__(self) -> None:
        self._warned_ms: dict[str, int] = {}

    def warn_unless_stopped(self, last_event: AnyPartitionEvent | None, *, by: str, location: str, now_ms: int) -> None:
        """Warn of a former owner. `last_event`: the partition's last before the claim; `by`: the new owner."""
        if last_event is None or isinstance(last_event, CoordinatorStopped):
            return
        if isinstance(last_event, CoordinatorElected) and last_event.owner == by:
            return  # a claim of our own that came to nothing
        warned_ms = self._warned_ms.get(last_event.owner)
        if warned_ms is None or now_ms - warned_ms >= LINE_INTERVAL_MS:
            self._warned_ms[last_event.owner] = now_ms
            log.warning(
                "the former owner of the event log did not shut down cleanly: if it still runs, it is fenced now",
                log=location,
                owner=last_event.owner,
            )
