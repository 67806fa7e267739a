"""Appends that have not been answered for long: of which partitions, and who has not answered.

What belongs here: what /readyz and the log say of them until they are answered, or given up by the event log.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from muster.coordinator.runtime.ownership import Ownership, WaitsFor
from muster.events.log.base import EventLog

log = structlog.get_logger(__name__)

SLOW_AFTER_S: Final = 10.0
"""An append that has waited for so long is told; the log gives it up later."""
LOOK_EVERY_S: Final = 1.0


class _Slow(msgspec.Struct):
    """Partitions that wait for one and the same, and the longest wait."""

    partitions: list[int]
    waited_s: float


class SlowAppends:
    """See the module. `owned`: the partitions of this process."""

    def __init__(self, event_log: EventLog, owned: Callable[[], Mapping[int, Ownership]]) -> None:
        self._log = event_log
        self._owned = owned
        self._told: dict[int, float] = {}
        """By partition when its append was begun, on the loop's clock."""

    @property
    def reason(self) -> str | None:
        """For people; None where there is none. May be asked in another thread."""
        reasons = [
            f"an append to the event log {waits_for.log} has waited for {int(slow.waited_s)} s (partition "
            f"{', '.join(map(str, slow.partitions))}): {waits_for.whom} has not answered"
            for waits_for, slow in self._slow().items()
        ]
        return "; ".join(reasons) or None

    async def keep_telling(self) -> None:
        """A line for each partition that begins to wait so long, and one when its append was answered after all.

        Of a disk that does not answer others tell, and of what is given up who gives it up.
        """
        now_s = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            found = {} if self._log.trouble is not None else self._slow()
            for waits_for, slow in found.items():
                if not self._told.keys() >= set(slow.partitions):
                    log.warning(
                        "an append is not answered, waiting for it",
                        log=waits_for.log,
                        partitions=slow.partitions,
                        waits_for=waits_for.whom,
                        seconds=int(slow.waited_s),
                    )
            began = {number: now_s() - slow.waited_s for slow in found.values() for number in slow.partitions}
            answered = [number for number in self._told if number not in began and number in self._owned()]
            if answered:
                seconds = int(now_s() - min(self._told[number] for number in answered))
                log.info("appends are answered again", partitions=answered, seconds=seconds)
            self._told = began

    def _slow(self) -> dict[WaitsFor, _Slow]:
        """The partitions are copied before they are gone through, since any thread may ask."""
        found: dict[WaitsFor, _Slow] = {}
        for number, ownership in list(self._owned().items()):
            waits = ownership.waits
            if waits is not None and waits[1] >= SLOW_AFTER_S:
                waits_for, waited_s = waits
                slow = found.setdefault(waits_for, _Slow([], 0.0))
                slow.partitions.append(number)
                slow.waited_s = max(slow.waited_s, waited_s)
        return found
