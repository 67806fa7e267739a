"""Log lines about many partitions at once: taken over side by side, lost together, stopped together.

What belongs here: what is collected for a line, and when it is written. What it must not know: how a partition is
taken over or closed.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from muster.coordinator.not_served import way_out
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.events import CoordinatorReady
from muster.events.records import BrokenRecord

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LOST_REPORT_DELAY_S: Final = 1.0
"""The delay of the log line about lost partitions, which names all that are lost within it."""


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


class LostLog:
    """The partitions that were lost within a second, and are taken over again."""

    def __init__(self) -> None:
        self._lost: dict[int, str] = {}

    def note(self, number: int, error: Exception) -> None:
        """A partition is lost; the line is written soon."""
        if not self._lost:
            asyncio.get_running_loop().call_later(LOST_REPORT_DELAY_S, self._write)
        self._lost[number] = str(error)

    def _write(self) -> None:
        lost, self._lost = self._lost, {}
        log.warning("partitions lost, taking them over again", partitions=sorted(lost), error=next(iter(lost.values())))


class StopLog:
    """The partitions that are stopped together, and have no CoordinatorStopped."""

    def __init__(self) -> None:
        self.failed: dict[int, str] = {}
        """The errors of those in which it could not be written."""
        self.cut_short = 0
        """The number of those whose writing took too long."""

    def write(self) -> None:
        """Write the lines, if there is something to say."""
        if self.failed:
            error = next(iter(self.failed.values()))
            log.warning("could not write CoordinatorStopped", partitions=sorted(self.failed), error=error)
        if self.cut_short:
            log.warning("stopped before CoordinatorStopped was written", partitions=self.cut_short)


def log_unreadable(owner: Owner, number: int, broken: BrokenRecord) -> str:
    """Log that a partition is not served for a record that cannot be read; returns that in a sentence, for people."""
    location = owner.event_log.location
    helps = way_out(broken, owner.log_url)
    log.error(
        "partition not served: a record in the event log cannot be read",
        log=location,
        partition=number,
        offset=broken.offset,
        reason=broken.reason,
        way_out=helps,
    )
    return f"partition {number} of {location} is not served: {broken}; what helps: {helps}"


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
