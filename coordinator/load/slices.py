"""Slices: work on many entries shares the event loop with everything else.

This module contains the queue of long work and the length of a slice; `events/steps.py` defines the form of such work.

The first ENTRIES_AT_ONCE entries are processed immediately, so that an ordinary request is done within its own
callback. Longer work is appended to one queue for the whole process: in each turn of the loop the first one in the
queue gets one slice, and goes back to the end. So each turn has one slice, no matter how many large requests there are.
Work that waits for other work to end (`steps.WAIT`) leaves the queue until then. Coroutines with many entries do the
same with a `Pace`.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from muster.coordinator.load.answer_memory import AnswerMemory, answer_memory_of
from muster.coordinator.load.current_work import CURRENT_WORK, OtherWork, RequestWork, working_on
from muster.events.steps import ENTRIES_AT_ONCE, ENTRIES_PER_STEP, WAIT, Steps

R = TypeVar("R")

SLICE_MS = 5
SLICE_S = SLICE_MS / 1_000
"""The length of a slice, which ends at the first step after this time."""


_UNKNOWN = OtherWork(work="work on many entries")


class _Work(msgspec.Struct, kw_only=True, eq=False):
    """`note`: the request or other work that it belongs to, for the watchdog."""

    steps: Steps[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    note: RequestWork | OtherWork
    has_waited: bool = False
    is_cancelled: bool = False


class Slices:
    """One per process. Its loop is the one that is running when work first takes more than one slice.

    `answer_memory` is for the responses that are written in these slices.
    """

    def __init__(self, answer_memory: AnswerMemory | None = None) -> None:
        self._queue: deque[_Work] = deque()
        self._parked: OrderedDict[_Work, None] = OrderedDict()
        """Work that waits until other work has ended, first come first served."""
        self._is_due = False
        self.answer_memory = answer_memory or answer_memory_of()

    @property
    def waiting(self) -> int:
        """The number of unfinished work items."""
        return len(self._queue) + len(self._parked)

    def run(
        self, steps: Steps[R], done: Callable[[R], None], failed: Callable[[Exception], None]
    ) -> Callable[[], None] | None:
        """Run the steps, and call `done` with the result. Return None if that has already happened, else a function
        that cancels the work.

        An immediate error is raised here; a later one, or an error of `done`, is passed to `failed`.
        """
        entries = 0
        try:
            while entries < ENTRIES_AT_ONCE:
                progress = next(steps)
                if progress == WAIT:
                    return self._start(steps, done, failed, self._park)
                entries += progress
        except StopIteration as end:
            done(end.value)
            return None
        return self.later(steps, done, failed)

    def later(
        self, steps: Steps[R], done: Callable[[R], None], failed: Callable[[Exception], None]
    ) -> Callable[[], None]:
        """Run the steps in slices from the start, for work that is known to be long."""
        return self._start(steps, done, failed, self._enqueue)

    def _start(
        self,
        steps: Steps[R],
        done: Callable[[R], None],
        failed: Callable[[Exception], None],
        goes_on: Callable[[_Work], None],
    ) -> Callable[[], None]:
        work = _Work(steps=steps, done=done, failed=failed, note=CURRENT_WORK.note or _UNKNOWN)
        goes_on(work)
        return partial(self._cancel, work)

    def _cancel(self, work: _Work) -> None:
        """Cancel the work; it is closed in its next turn, since it may be running now."""
        work.is_cancelled = True
        if work in self._parked:
            self._unpark(work)

    async def result(self, steps: Steps[R]) -> R:
        """Await the result of the steps; cancelled with the caller. Raises what the steps raise."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        cancel = self.run(steps, *_settling(future))
        try:
            return await future
        finally:
            if cancel is not None:
                cancel()

    async def turn(self) -> None:
        """Wait for a turn in the queue."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancel = self.later(_nothing(), *_settling(future))
        try:
            await future
        finally:
            cancel()

    def pace(self) -> "Pace":
        """Create a `Pace` for a coroutine that processes many entries."""
        return Pace(self)

    def _enqueue(self, work: _Work) -> None:
        self._queue.append(work)
        self._schedule()

    def _park(self, work: _Work) -> None:
        """Queue the work behind other waiting work; in front of it if it has waited before."""
        self._parked[work] = None
        self._parked.move_to_end(work, last=not work.has_waited)
        work.has_waited = True

    def _unpark_first(self) -> None:
        if self._parked:
            self._unpark(next(iter(self._parked)))

    def _unpark(self, work: _Work) -> None:
        """Queue waiting work again; it checks whether it can continue."""
        del self._parked[work]
        self._enqueue(work)

    def _ended(self, work: _Work) -> None:
        """Close work that has ended, and let the one that has waited longest check for room."""
        work.steps.close()
        self._unpark_first()

    def _schedule(self) -> None:
        if self._queue and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Run one slice of the first work in the queue that is not cancelled."""
        self._is_due = False
        try:
            while self._queue:
                work = self._queue.popleft()
                if work.is_cancelled:
                    self._ended(work)
                    continue
                with working_on(work.note):
                    self._slice_or_fail(work)
                break
        finally:  # whatever happens to one work item, the others get their turns
            self._schedule()

    def _slice_or_fail(self, work: _Work) -> None:
        try:
            self._slice(work)
        except Exception as error:  # noqa: BLE001 -- the work's owner knows what its failure means
            self._ended(work)
            if not work.is_cancelled:
                work.failed(error)

    def _slice(self, work: _Work) -> None:
        until = time.perf_counter() + SLICE_S
        try:
            progress = next(work.steps)  # at least one, however late it is
            if progress != WAIT and work.has_waited:
                self._unpark_first()  # there may be room for more than one
            while progress != WAIT and time.perf_counter() < until:
                progress = next(work.steps)
        except StopIteration as end:
            self._ended(work)
            if not work.is_cancelled:
                work.done(end.value)
            return
        if progress == WAIT and not work.is_cancelled:
            self._park(work)
        else:
            self._queue.append(work)


def _settling(future: "asyncio.Future[R]") -> tuple[Callable[[R], None], Callable[[Exception], None]]:
    """Return the callbacks that settle a future, which may have been cancelled in the meantime."""

    def done(result: R) -> None:
        if not future.done():
            future.set_result(result)

    def failed(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    return done, failed


def _nothing() -> Steps[None]:
    yield from ()


class Yielder:
    """Yields to the loop between slices, for work that must not wait for a turn in the queue."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def maybe_yield(self) -> None:
        """Yield to the loop if the slice is over."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


class Pace:
    """Waits for a turn in the queue between slices, for coroutines that process many entries."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._entries = 0
        self._until: float | None = None  # the first slice is measured in entries

    async def worked(self, entries: int = 1) -> None:
        """Count processed entries, and wait for a turn if the slice is over."""
        self._entries += entries
        if self._entries < (ENTRIES_AT_ONCE if self._until is None else ENTRIES_PER_STEP):
            return
        self._entries = 0
        if self._until is None or time.perf_counter() >= self._until:
            await self._slices.turn()
            self._until = time.perf_counter() + SLICE_S

    async def result(self, steps: Steps[R]) -> R:
        """Run steps that do not wait, and return their result."""
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            await self.worked(progress)
