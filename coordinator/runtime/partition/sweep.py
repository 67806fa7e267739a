"""The sweep of a partition: checks every group for expired offsets at an interval (EX1, TM4).

Pauses between steps, so that it never blocks the event loop, however many groups and offsets there are. As in Kafka,
the interval starts at the end of the last sweep; the first sweep starts an interval after the takeover.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from muster.events.ids import GroupId

WORK_PER_STEP = 1_000
"""Offsets checked in one step, which takes about a millisecond."""

WORK_OF_A_GROUP = 50
"""Cost of a group besides its offsets, in offsets; most of it arises when the group expires."""

PAUSE_S = 0.01
"""Pause between two steps: leaves nine tenths of the loop to other work, and lets the log keep up."""


class Sweep:
    """Checks all groups for expired offsets. `check` checks one group and returns how many offsets it has."""

    def __init__(
        self,
        *,
        interval_ms: int,
        group_ids: Callable[[], Iterable[GroupId]],
        check: Callable[[GroupId], int],
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._group_ids = group_ids
        self._check = check
        self._left: Iterator[GroupId] = iter(())
        self._timer = self._call_later(self._interval_s, self._begin)

    def close(self) -> None:
        """Stop, even in the middle of a sweep."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._left = iter(tuple(self._group_ids()))
        self._step()

    def _step(self) -> None:
        self._timer = self._call_later(PAUSE_S, self._step)  # first, so that a group that fails does not end the sweep
        work = 0
        for group_id in self._left:
            work += WORK_OF_A_GROUP + self._check(group_id)
            if work >= WORK_PER_STEP:
                return
        self._timer.cancel()
        self._timer = self._call_later(self._interval_s, self._begin)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)
