"""Former owners that did not write CoordinatorStopped: they crashed, or still run and are deposed now.

What belongs here: the decision whether to warn. A deposed owner finds out only by its next append, so the new owner
warns.
"""

import structlog

from muster.events.events import AnyPartitionEvent, CoordinatorStopped

log = structlog.get_logger(__name__)


class FormerOwners:
    """The former owners that this process has warned of, each once for all partitions."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn_unless_stopped(self, last_event: AnyPartitionEvent | None, *, by: str, location: str) -> None:
        """Warn of a former owner. `last_event`: the partition's last before the claim; `by`: the new owner."""
        if last_event is None or isinstance(last_event, CoordinatorStopped):
            return
        if last_event.owner not in {by, *self._warned}:
            self._warned.add(last_event.owner)
            log.warning(
                "the former owner of the event log did not stop in good order: if it still runs, it is deposed now",
                log=location,
                owner=last_event.owner,
            )
