"""A watchdog of the event loop: measures its lag, and reports when it is blocked, and by what.

The work that blocks the loop is recorded in load/current_work.py.

    the loop     ticks every `TICK_S`; the delay of a tick is the metric
    the thread   checks every `LOOK_S`: measures how long the loop has not ticked and logs what blocks it. /healthz,
                 which also runs in a thread, reads the result

The loop of a process that was stopped (SIGSTOP, a suspended machine) does not hang. So time only counts while the
thread could run; if the thread itself could not run, the processor time of the process counts, since a call that holds
the GIL stops the thread as well. Nor does the loop hang if it is in no call of ours and used hardly any processor time:
then the machine had no CPU to spare for it.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec
import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.coordinator.load.current_work import CURRENT_WORK
from muster.coordinator.observability.metrics import LOOP_HOLDS, LOOP_LATE_SECONDS

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

TICK_S = 0.1
LOOK_S = 0.25
LOGGED_AFTER_S = 1.0
"""After this time a blocked loop is logged, with what blocks it."""
UNWELL_AFTER_S = 5.0
"""After this time a blocked loop makes /healthz fail."""

_FRAMES_LOGGED = 8
_AT_REST = frozenset({"Runner.run", "BaseEventLoop.run_forever", "BaseEventLoop._run_once", "EpollSelector.select"})
"""The innermost calls of a loop that waits for events, or for CPU time."""
_DID_NOT_RUN = "the process did not run: it or its machine was suspended, or got no CPU time"


class Instant(msgspec.Struct, frozen=True):
    """The time, and the processor time used by the process so far, in seconds."""

    at_s: float
    used_s: float


def seen(since: Instant, now: Instant, *, expected_s: float) -> float:
    """Return how long the process ran between two instants. `expected_s`: how long the caller meant to sleep in
    between.
    """
    passed_s = now.at_s - since.at_s
    return min(passed_s, max(2 * expected_s, now.used_s - since.used_s))


class LoopTicks:
    """Measures how long the loop has been blocked. Only the watchdog thread writes `held_s`; any thread may read it."""

    def __init__(self, now: Instant) -> None:
        self.held_s = 0.0
        self._ticked = self._last_check = self._counted_from = now

    def tick(self, now: Instant) -> float:
        """Note a tick of the loop; returns its delay in seconds."""
        before, self._ticked = self._ticked, now
        there_s = self.held_s + seen(before, now, expected_s=LOOK_S)
        return max(0.0, min(now.at_s - before.at_s, there_s) - TICK_S)

    def check(self, now: Instant) -> float:
        """Check the loop; returns how long the process was stopped since the last check, in seconds."""
        ticked = self._ticked
        if ticked is not self._counted_from:
            self._counted_from, self.held_s = ticked, 0.0
        since = self._last_check if self._last_check.at_s > ticked.at_s else ticked
        self.held_s += seen(since, now, expected_s=LOOK_S)
        gone_s = now.at_s - self._last_check.at_s - seen(self._last_check, now, expected_s=LOOK_S)
        self._last_check = now
        return gone_s

    @property
    def used_s(self) -> float:
        """Processor time used by the process between the last observed tick and the last check."""
        return self._last_check.used_s - self._counted_from.used_s


class LoopWatch(Collector):
    """Watches the running loop, from `start` until `close`."""

    def __init__(self, *, logged_after_s: float = LOGGED_AFTER_S, unwell_after_s: float = UNWELL_AFTER_S) -> None:
        self._logged_after_s = logged_after_s
        self._unwell_after_s = unwell_after_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._turns = LoopTicks(_now())
        self._ticking: asyncio.TimerHandle | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def start(self) -> None:
        self._ticking = self._loop.call_later(TICK_S, self._tick)
        self._thread.start()

    def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._closed.set()
        self._thread.join()

    @property
    def not_well(self) -> str | None:
        """Human-readable reason why the process is not healthy; None if it is. Thread-safe."""
        held_s = self._turns.held_s
        if held_s < self._unwell_after_s or self._is_at_rest():
            return None
        return f"the event loop has been blocked for {held_s:.1f} s: {_describe(self._work())}"

    def collect(self) -> Iterable[Metric]:
        """Yield the metric that is not `muster_loop_late_seconds`."""
        yield GaugeMetricFamily(
            "muster_loop_held_seconds",
            "How long the event loop has been blocked now; 0 if it runs",
            value=self._turns.held_s,
        )

    def _tick(self) -> None:
        LOOP_LATE_SECONDS.observe(self._turns.tick(_now()))
        self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _watch(self) -> None:
        """Watchdog thread: log when the event loop stalls, exceeds the limit, and recovers."""
        held_s, is_held = 0.0, False
        while not self._closed.wait(LOOK_S):
            gone_s = self._turns.check(_now())
            if gone_s > LOGGED_AFTER_S:
                log.warning(_DID_NOT_RUN, seconds=round(gone_s, 1))
            before_s, held_s = held_s, self._turns.held_s
            if before_s < self._logged_after_s <= held_s:
                is_held = not self._is_at_rest()
                if is_held:
                    LOOP_HOLDS.inc()
                    log.warning("event loop stalled", seconds=round(held_s, 1), **self._work(), at=self._stack())
                else:
                    log.warning(_DID_NOT_RUN, seconds=round(held_s, 1))
            if before_s < self._unwell_after_s <= held_s and is_held:
                log.error(
                    "event loop blocked beyond the limit", seconds=round(held_s, 1), **self._work(), at=self._stack()
                )
            if held_s < self._logged_after_s <= before_s and is_held:
                log.warning("event loop recovered", seconds=round(before_s, 1))

    def _is_at_rest(self) -> bool:
        """Return whether the loop is in no call of ours, and has used hardly any processor time since its last tick."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 -- the only way to get it
        innermost = None if frame is None else frame.f_code.co_qualname
        return innermost in _AT_REST and CURRENT_WORK.note is None and self._turns.used_s < self._turns.held_s / 2

    def _work(self) -> dict[str, object]:
        """Describe what the loop is doing: the recorded work, or the running task."""
        note = CURRENT_WORK.note
        work: dict[str, object] = {"work": "not noted"} if note is None else msgspec.structs.asdict(note)
        task = asyncio.current_task(self._loop)
        if note is None and task is not None:
            work["task"] = task.get_name()
        return work

    def _stack(self) -> list[str]:
        """The call stack of the loop's thread, innermost first."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 -- the only way to get it
        calls = islice(traceback.walk_stack(frame), _FRAMES_LOGGED) if frame is not None else ()
        return [f"{Path(f.f_code.co_filename).name}:{line} {f.f_code.co_qualname}" for f, line in calls]


def _describe(work: dict[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in work.items())


def _now() -> Instant:
    return Instant(time.monotonic(), time.process_time())
