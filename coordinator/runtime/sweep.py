"""The sweep of a partition: every group is looked at for what has expired, again and again (EX1, TM4).

What belongs here: when a sweep begins, and that it takes the loop for a moment at a time, however many groups and
offsets there are. What it must not know: what expires. As in Kafka the next sweep is due an interval after the last
one has ended, and the first one an interval after the partition was taken over.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

from muster.events.ids import GroupId

WORK_PER_STEP = 1_000
"""How many offsets are looked at in one go, which takes about a millisecond."""

WORK_OF_A_GROUP = 50
"""What a group costs beside its offsets, in offsets; most of it when the group goes, and an event is made."""

PAUSE_S = 0.01
"""Between two steps. It leaves nine tenths of the loop to others, and lets the log keep up with what has expired."""


class Sweep:
    """See the module. `look_at` has one group looked at, and returns how many offsets it has."""

    def __init__(
        self,
        *,
        interval_ms: int,
        group_ids: Callable[[], Iterable[GroupId]],
        look_at: Callable[[GroupId], int],
    ) -> None:
        self._interval_s = interval_ms / 1000
        self._group_ids = group_ids
        self._look_at = look_at
        self._left: Iterator[GroupId] = iter(())
        self._timer = self._call_later(self._interval_s, self._begin)

    def close(self) -> None:
        """Sweep no more, whatever is left of a sweep that is under way."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._left = iter(tuple(self._group_ids()))
        self._step()

    def _step(self) -> None:
        self._timer = self._call_later(PAUSE_S, self._step)  # first of all: a group that fails ends no sweep
        work = 0
        for group_id in self._left:
            work += WORK_OF_A_GROUP + self._look_at(group_id)
            if work >= WORK_PER_STEP:
                return
        self._timer.cancel()
        self._timer = self._call_later(self._interval_s, self._begin)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)
