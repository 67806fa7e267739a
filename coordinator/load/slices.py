"""Slices: work on many entries shares the event loop with everything else.

What belongs here: the queue of long work, and the length of a slice. What it must not know: the work (events/steps.py).

The first ENTRIES_AT_ONCE entries are processed at once, so that a usual request is done within its own callback. Longer
work goes to the end of one queue for the whole process: in each turn of the loop the first of the queue has one slice,
and goes to the end again. So a turn has one slice, however many large requests there are. Work that waits for other
work to end (`steps.WAIT`) is out of the queue meanwhile. Coroutines with many entries do the same with a `Pace`.
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
"""The length of a slice; it ends with the first step after that."""


_UNKNOWN = OtherWork(work="work on many entries")


class _Work(msgspec.Struct, kw_only=True, eq=False):
    """`note`: the current work when it began."""

    steps: Steps[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    note: RequestWork | OtherWork
    has_waited: bool = False
    is_cancelled: bool = False


class Slices:
    """One for a process. Its loop is the one that runs when the first work does not end at once.

    `answer_memory` is for the answers that are written in these slices.
    """

    def __init__(self, answer_memory: AnswerMemory | None = None) -> None:
        self._queue: deque[_Work] = deque()
        self._parked: OrderedDict[_Work, None] = OrderedDict()
        """Work that waits until other work has ended, first come first served."""
        self._is_due = False
        self.answer_memory = answer_memory or answer_memory_of()

    @property
    def waiting(self) -> int:
        """The number of works that have not ended."""
        return len(self._queue) + len(self._parked)

    def run(
        self, steps: Steps[R], done: Callable[[R], None], failed: Callable[[Exception], None]
    ) -> Callable[[], None] | None:
        """Run the steps, and call `done` with the result. Returns None if that has happened, else a function to cancel.

        An error at once is raised here; later `failed` is called with it, and with an error of `done`.
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
        """Run the steps in slices from the start, as for work that is known to be long."""
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
        """Cancel the work; it is closed in its next turn, as it may be having one now."""
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
        """Make a `Pace` for a coroutine that goes through many entries."""
        return Pace(self)

    def _enqueue(self, work: _Work) -> None:
        self._queue.append(work)
        self._come_again()

    def _park(self, work: _Work) -> None:
        """Queue the work behind other waiting work; before it, if it has waited already."""
        self._parked[work] = None
        self._parked.move_to_end(work, last=not work.has_waited)
        work.has_waited = True

    def _unpark_first(self) -> None:
        if self._parked:
            self._unpark(next(iter(self._parked)))

    def _unpark(self, work: _Work) -> None:
        """Queue waiting work again; it checks whether it can go on."""
        del self._parked[work]
        self._enqueue(work)

    def _ended(self, work: _Work) -> None:
        """Close work that has ended, and let the one that has waited longest check for room."""
        work.steps.close()
        self._unpark_first()

    def _come_again(self) -> None:
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
        finally:  # whatever becomes of one work, the others have their turns too
            self._come_again()

    def _slice_or_fail(self, work: _Work) -> None:
        try:
            self._slice(work)
        except Exception as error:  # noqa: BLE001 -- whose work it is knows what its failing means
            self._ended(work)
            if not work.is_cancelled:
                work.failed(error)

    def _slice(self, work: _Work) -> None:
        until = time.perf_counter() + SLICE_S
        try:
            progress = next(work.steps)  # one at least, however late it is
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
    """Make the callbacks that settle a future, which may have been cancelled meanwhile."""

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
    """Waits for a turn in the queue between slices, for coroutines that go through many entries."""

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
