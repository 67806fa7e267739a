"""The deadlines of a partition: one heap, one timer.

There is no timer per member. A group has one entry in the heap, for its earliest deadline; a heartbeat moves a deadline
in place, which is noticed when the entry is due. Stale entries, e.g. of deleted groups, are removed once they are the
majority: they may not be due for half an hour, and their group ids can have 32 kB. `due` is called with the group of an
entry that is due, after all requests that had arrived by then were processed (`when_caught_up`), so that no member
expires while its heartbeat waits behind other requests. If the timer is so late that the machine must have been
suspended or stalled, `paused` is called instead, and nothing is due until `begin` is called again.
"""

import asyncio
import heapq
import math
from collections.abc import Callable

from muster.coordinator.clock import Clock
from muster.coordinator.load.current_work import OtherWork, working_on
from muster.coordinator.load.slices import SLICE_MS
from muster.events.ids import GroupId

PAUSE_MS = 1_000
"""A timer that fires later than this means that the machine stalled, so no session expires because of it."""

GRACE_S = 0.005
"""Delay before deadlines are decided, in which requests that have already arrived are read."""

STALE_MIN = 64
"""Stale entries are kept while there are fewer than this."""


class Deadlines:
    """A heap with the earliest deadline of each group, and the timer for the first of them."""

    def __init__(
        self,
        clock: Clock,
        *,
        due: Callable[[GroupId], None],
        paused: Callable[[int], None],
        when_caught_up: Callable[[Callable[[], None]], None],
    ) -> None:
        self._clock = clock
        self._when_caught_up = when_caught_up
        self._is_closed = False
        self._due = due
        self._paused = paused
        self._heap: list[tuple[float, GroupId]] = []
        self._scheduled: dict[GroupId, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = -math.inf  # nothing sets a timer until `begin`

    def begin(self) -> None:
        """Start the timer; also called again after `paused`."""
        self._timer_due_ms = math.inf
        if self._heap:
            self._set_timer(self._heap[0][0])

    def schedule(self, group_id: GroupId, deadline_ms: float) -> None:
        """Schedule a check of the group's deadlines, unless an earlier one is scheduled."""
        if deadline_ms == math.inf or deadline_ms >= self._scheduled.get(group_id, math.inf):
            return
        self._scheduled[group_id] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, group_id))
        self._throw_out_stale()
        if deadline_ms < self._timer_due_ms:
            self._set_timer(deadline_ms)

    def forget(self, group_id: GroupId) -> None:
        if self._scheduled.pop(group_id, None) is not None:
            self._throw_out_stale()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = -math.inf  # nothing sets a timer from here on
        self._heap.clear()

    def _throw_out_stale(self) -> None:
        """Keep only one entry per group, once most entries are stale."""
        if len(self._heap) > 2 * len(self._scheduled) + STALE_MIN:
            self._heap = [(deadline_ms, group_id) for group_id, deadline_ms in self._scheduled.items()]
            heapq.heapify(self._heap)

    def _set_timer(self, due_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A deadline that is already overdue when it is scheduled does not mean that the machine stalled.
        now_ms = self._clock.monotonic_ms()
        self._timer_due_ms = max(due_ms, now_ms)
        delay_s = (self._timer_due_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fired)

    def _fired(self) -> None:
        late_ms = self._clock.monotonic_ms() - self._timer_due_ms
        self._timer_due_ms = -math.inf
        if late_ms > PAUSE_MS:
            self._timer = None
            self._paused(int(late_ms))
            return
        due_ms = self._clock.monotonic_ms() + GRACE_S * 1_000
        self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._grace_is_over, due_ms)

    def _grace_is_over(self, due_ms: float) -> None:
        late_ms = self._clock.monotonic_ms() - due_ms
        if late_ms > PAUSE_MS:
            self._timer = None
            self._paused(int(late_ms))
        else:
            self._when_caught_up(self._run)

    def _run(self) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        try:
            # For one slice; then other work has its turn.
            while self._heap and self._heap[0][0] <= now_ms and self._clock.monotonic_ms() < now_ms + SLICE_MS:
                deadline_ms, group_id = heapq.heappop(self._heap)
                if self._scheduled.get(group_id) == deadline_ms:
                    del self._scheduled[group_id]
                    with working_on(OtherWork(work=f"a deadline of group {group_id}")):
                        self._due(group_id)
        finally:  # also when one group fails: the others have deadlines too
            self._timer, self._timer_due_ms = None, math.inf
            if self._heap:
                self._set_timer(self._heap[0][0])
