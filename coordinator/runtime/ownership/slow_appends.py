"""Slow appends: those not acknowledged for a long time, by partition, and what they wait for.

They are reported in /readyz and in log lines until they are acknowledged or fail.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition, WaitsFor
from muster.events.log.base import EventLog
from muster.ranges import partitions_text

log = structlog.get_logger(__name__)

SLOW_APPEND_S: Final = 10.0
"""An append is reported after this time; the log's own timeout is longer."""
CHECK_INTERVAL_S: Final = 1.0


class _Slow(msgspec.Struct):
    """Partitions whose appends wait for the same broker or file, and the longest wait."""

    partitions: list[int]
    waited_s: float


class SlowAppends:
    """Reports slow appends of the `owned` partitions."""

    def __init__(self, event_log: EventLog, owned: Callable[[], Mapping[int, OwnedPartition]]) -> None:
        self._log = event_log
        self._owned = owned
        self._reported: dict[int, float] = {}
        """The reported partitions and when their appends started, by the event loop's clock."""

    @property
    def reason(self) -> str | None:
        """Human-readable description of the slow appends; None if there are none. Thread-safe."""
        reasons = [
            f"an append to the event log {waits_for.log} has waited for {int(slow.waited_s)} s "
            f"({partitions_text(slow.partitions)}): {waits_for.whom} has not answered"
            for waits_for, slow in self._slow().items()
        ]
        return "; ".join(reasons) or None

    async def watch(self) -> None:
        """Log a line when an append is slow, and another when it is acknowledged after all; runs forever.

        An unresponsive disk and failed appends are reported elsewhere.
        """
        now_s = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            found = {} if self._log.trouble is not None else self._slow()
            for waits_for, slow in found.items():
                if not self._reported.keys() >= set(slow.partitions):
                    log.warning(
                        "append not acknowledged, waiting for it",
                        log=waits_for.log,
                        partitions=slow.partitions,
                        waits_for=waits_for.whom,
                        seconds=int(slow.waited_s),
                    )
            began = {number: now_s() - slow.waited_s for slow in found.values() for number in slow.partitions}
            answered = [number for number in self._reported if number not in began and number in self._owned()]
            if answered:
                seconds = int(now_s() - min(self._reported[number] for number in answered))
                log.info("appends are acknowledged again", partitions=answered, seconds=seconds)
            self._reported = began

    def _slow(self) -> dict[WaitsFor, _Slow]:
        """Group the slow appends by what they wait for. Thread-safe: the partitions are copied first."""
        found: dict[WaitsFor, _Slow] = {}
        for number, ownership in list(self._owned().items()):
            waits = ownership.waits
            if waits is not None and waits[1] >= SLOW_APPEND_S:
                waits_for, waited_s = waits
                slow = found.setdefault(waits_for, _Slow([], 0.0))
                slow.partitions.append(number)
                slow.waited_s = max(slow.waited_s, waited_s)
        return found
