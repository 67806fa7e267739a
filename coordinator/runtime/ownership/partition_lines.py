"""Log lines about many partitions at once: taken over concurrently, lost together, stopped together.

Collects the partitions for a line and decides when it is written.
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
"""Delay of the log line about lost partitions, which lists all that are lost within that time."""


class ReadyLog:
    """The partitions that became served since the last line."""

    def __init__(self) -> None:
        self._ready: list[CoordinatorReady] = []
        self._offsets_read = 0

    def note(self, ready: CoordinatorReady, *, offsets_read: int) -> None:
        """Note that a partition is served now, after reading this many offset records."""
        self._ready.append(ready)
        self._offsets_read += offsets_read
        log.debug("partition ready", partition=ready.partition, epoch=ready.owner_epoch, took_ms=ready.took_ms)

    def write(self) -> None:
        """Write the line if there is anything to report."""
        ready, self._ready = self._ready, []
        offsets_read, self._offsets_read = self._offsets_read, 0
        if ready:
            log.info(
                "partitions ready",
                partitions=sorted(each.partition for each in ready),
                took_ms=max(each.took_ms for each in ready),  # they were read concurrently
                events=sum(each.events_read for each in ready),
                offsets=offsets_read,
                groups=sum(each.groups for each in ready),
                members=sum(each.members for each in ready),
                **_former_owners(ready),
            )


class LostLog:
    """The partitions that were lost within a second and are being taken over again."""

    def __init__(self) -> None:
        self._lost: dict[int, str] = {}

    def note(self, number: int, error: Exception) -> None:
        """Note a lost partition; the line is written soon."""
        if not self._lost:
            asyncio.get_running_loop().call_later(LOST_REPORT_DELAY_S, self._write)
        self._lost[number] = str(error)

    def _write(self) -> None:
        lost, self._lost = self._lost, {}
        log.warning("partitions lost, claiming them again", partitions=sorted(lost), error=next(iter(lost.values())))


class StopLog:
    """The partitions that were stopped together and have no CoordinatorStopped."""

    def __init__(self) -> None:
        self.failed: dict[int, str] = {}
        """The errors of partitions in which it could not be written."""
        self.cut_short = 0
        """The number of partitions in which writing it took too long."""

    def write(self) -> None:
        """Write the lines if there is anything to report."""
        if self.failed:
            error = next(iter(self.failed.values()))
            log.warning("could not write CoordinatorStopped", partitions=sorted(self.failed), error=error)
        if self.cut_short:
            log.warning("stopped before CoordinatorStopped was written", partitions=self.cut_short)


def log_unreadable(owner: Owner, number: int, broken: BrokenRecord) -> str:
    """Log that a partition is not served because of an unreadable record. Returns the log line's content as a
    sentence.
    """
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
    """How the ownership of the former owners ended, by owner name, where known.

    It can differ by partition: a process that exits may have released some partitions and lost others.
    """
    causes: dict[str, set[str]] = {}
    for each in ready:
        if each.owner_before and (end := each.owner_before_end):
            causes.setdefault(each.owner_before, set()).add(end.cause.value)
    told = {name: " and ".join(sorted(each)) for name, each in causes.items()}
    return {"former_owners": told} if told else {}
