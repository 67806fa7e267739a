"""The former owners of partitions: until when they may respond from memory, and whether to log a warning about one.

A former owner may respond until a lease after its last proof, which it sent before our fence record was in the log;
unless it stopped cleanly. If this process loses the partition briefly and takes it over again, the former owner is this
process itself, and the lease of the owner before it still counts.

An owner that did not write CoordinatorStopped has crashed, or is still running. In the second case it learns that it is
fenced only when its next append fails, so the new owner logs a warning. Names can be reused, e.g. by a pod: a former
owner may have the name of this process.
"""

import structlog

from muster.coordinator.log_throttle import LINE_INTERVAL_MS
from muster.events.events import AnyPartitionEvent, CoordinatorElected, CoordinatorStopped


class OldLeases:
    """The latest time, by the leases' clock, at which a former owner may still respond."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}
        self._served: dict[int, int] = {}

    def taken_over(self, number: int, last_event: AnyPartitionEvent | None, *, fenced_ms: int, lease_ms: int) -> None:
        """Note a takeover. `last_event`: the last before the claim; `fenced_ms`: when the fence record was written."""
        if last_event is None or isinstance(last_event, CoordinatorStopped):
            return
        if not self.is_ours(number, last_event):
            self._until_ms[number] = fenced_ms + lease_ms

    def is_ours(self, number: int, last_event: AnyPartitionEvent | None) -> bool:
        """Return whether the last owner was this process itself; compares epochs, because names can be reused."""
        return last_event is not None and last_event.owner_epoch == self._served.get(number)

    def served(self, number: int, epoch: int) -> None:
        """Note that this process serves the partition, under this epoch."""
        self._served[number] = epoch

    def has_served(self, number: int) -> bool:
        """Return whether this process has served the partition before."""
        return number in self._served

    def left_ms(self, number: int, now_ms: int) -> int:
        """How long a former owner may still respond."""
        return max(0, self._until_ms.get(number, now_ms) - now_ms)


log = structlog.get_logger(__name__)


class FormerOwners:
    """When this process last warned of each former owner: once for all partitions, and again after a minute."""

    def __init__(self) -> None:
        self._warned_ms: dict[str, int] = {}

    def warn_unless_stopped(self, last_event: AnyPartitionEvent | None, *, by: str, location: str, now_ms: int) -> None:
        """Warn of a former owner. `last_event`: the partition's last one before the claim; `by`: the new owner."""
        if last_event is None or isinstance(last_event, CoordinatorStopped):
            return
        if isinstance(last_event, CoordinatorElected) and last_event.owner == by:
            return  # a claim of our own that failed
        warned_ms = self._warned_ms.get(last_event.owner)
        if warned_ms is None or now_ms - warned_ms >= LINE_INTERVAL_MS:
            self._warned_ms[last_event.owner] = now_ms
            log.warning(
                "the previous owner of the event log did not shut down cleanly: if it still runs, it is fenced now",
                log=location,
                owner=last_event.owner,
            )
