"""One line of the log about all partitions that were taken over side by side, and how long each phase took.

What belongs here: what is told of takeovers. What it must not know: how a partition is taken over.
"""

from collections.abc import Callable, Sequence

import structlog

from muster.coordinator.observability.metrics import TAKEOVER_PHASE_SECONDS, TAKEOVER_SECONDS, TakeoverPhase
from muster.events.events import CoordinatorReady

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PhaseTimer:
    """The phases of one takeover, each from the end of the one before."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._began_ms = self._since_ms = monotonic_ms()

    def end(self, phase: TakeoverPhase) -> None:
        """Note that a phase is over; with the last one the takeover is."""
        now_ms = self._monotonic_ms()
        TAKEOVER_PHASE_SECONDS.labels(phase.value).observe((now_ms - self._since_ms) / 1000)
        self._since_ms = now_ms
        if phase is TakeoverPhase.RESUME:
            TAKEOVER_SECONDS.observe((now_ms - self._began_ms) / 1000)


class ReadyLog:
    """The partitions that are served since the last line."""

    def __init__(self) -> None:
        self._ready: list[CoordinatorReady] = []
        self._offsets_read = 0

    def note(self, ready: CoordinatorReady, *, offsets_read: int) -> None:
        """A partition is served from now on; so many records of offsets were read for it."""
        self._ready.append(ready)
        self._offsets_read += offsets_read
        log.debug("partition ready", partition=ready.partition, epoch=ready.owner_epoch, took_ms=ready.took_ms)

    def write(self) -> None:
        """Write the line, if there is something to say."""
        ready, self._ready = self._ready, []
        offsets_read, self._offsets_read = self._offsets_read, 0
        if ready:
            log.info(
                "partitions ready",
                partitions=sorted(each.partition for each in ready),
                took_ms=max(each.took_ms for each in ready),  # they were read side by side
                events=sum(each.events_read for each in ready),
                offsets=offsets_read,
                groups=sum(each.groups for each in ready),
                members=sum(each.members for each in ready),
                **_former_owners(ready),
            )


def _former_owners(ready: Sequence[CoordinatorReady]) -> dict[str, dict[str, str]]:
    """Why former owners owned the partitions no more, by their names, where that is known.

    It may differ by partition: one that ends has let some go, and lost the others.
    """
    causes: dict[str, set[str]] = {}
    for each in ready:
        if each.owner_before and (end := each.owner_before_end):
            causes.setdefault(each.owner_before, set()).add(end.cause.value)
    told = {name: " and ".join(sorted(each)) for name, each in causes.items()}
    return {"former_owners": told} if told else {}
