"""Slices: how work on many entries shares the event loop with everybody else.

What belongs here: whose turn it is, and for how long. What it must not know: what is worked on (see load/steps.py).

The first ENTRIES_AT_ONCE entries are worked on at once, so that a usual request is done within its own callback. What
has more goes to the end of one queue for the whole process: in each turn of the loop the first in the queue has one
slice, and goes to its end again. So however many large requests there are, others wait for one slice in each turn.
What has to wait until other work has ended (`steps.WAIT`) is out of the queue meanwhile. A coroutine that goes through
many entries does the same with a `Pace`.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from muster.coordinator.load.current_work import NOW, OtherWork, RequestWork, noted
from muster.coordinator.load.room import Room, room_of
from muster.coordinator.load.steps import ENTRIES_AT_ONCE, ENTRIES_PER_STEP, WAIT, Steps

R = TypeVar("R")

SLICE_MS = 5
SLICE_S = SLICE_MS / 1_000
"""For how long anything goes on before others have their turn; then it ends with the step that it is in."""


_UNKNOWN = OtherWork(work="work on many entries")


class _Work(msgspec.Struct, kw_only=True, eq=False):
    """`note`: what was being worked on when it began."""

    steps: Steps[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    note: RequestWork | OtherWork
    has_waited: bool = False
    is_cancelled: bool = False


class Slices:
    """One for a process. Its loop is the one that runs when the first work does not end at once.

    `room` is for the answers that are written in these slices.
    """

    def __init__(self, room: Room | None = None) -> None:
        self._queue: deque[_Work] = deque()
        self._parked: OrderedDict[_Work, None] = OrderedDict()
        """What waits until other work has ended, first come first served."""
        self._is_due = False
        self.room = room or room_of()

    @property
    def waiting(self) -> int:
        """How much work has not ended."""
        return len(self._queue) + len(self._parked)

    def run(
        self, steps: Steps[R], done: Callable[[R], None], failed: Callable[[Exception], None]
    ) -> Callable[[], None] | None:
        """Have the steps done, and `done` told the result; None if that has happened, else what cancels them.

        What they raise at once is raised here; later, `failed` is told, of what `done` raises as well.
        """
        entries = 0
        try:
            while entries < ENTRIES_AT_ONCE:
                told = next(steps)
                if told == WAIT:
                    return self._start(steps, done, failed, self._park)
                entries += told
        except StopIteration as end:
            done(end.value)
            return None
        return self.later(steps, done, failed)

    def later(
        self, steps: Steps[R], done: Callable[[R], None], failed: Callable[[Exception], None]
    ) -> Callable[[], None]:
        """The same for what is known to be much: nothing is done at once."""
        return self._start(steps, done, failed, self._enqueue)

    def _start(
        self,
        steps: Steps[R],
        done: Callable[[R], None],
        failed: Callable[[Exception], None],
        goes_on: Callable[[_Work], None],
    ) -> Callable[[], None]:
        work = _Work(steps=steps, done=done, failed=failed, note=NOW.note or _UNKNOWN)
        goes_on(work)
        return partial(self._cancel, work)

    def _cancel(self, work: _Work) -> None:
        """What it holds is given back in its next turn, as it may be having one now."""
        work.is_cancelled = True
        if work in self._parked:
            self._unpark(work)

    async def result(self, steps: Steps[R]) -> R:
        """The same for a coroutine; cancelled with it. Raises what the steps raise."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        cancel = self.run(steps, *_told(future))
        try:
            return await future
        finally:
            if cancel is not None:
                cancel()

    async def turn(self) -> None:
        """Return when it is our turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancel = self.later(_nothing(), *_told(future))
        try:
            await future
        finally:
            cancel()

    def pace(self) -> "Pace":
        """For a coroutine that goes through many entries."""
        return Pace(self)

    def _enqueue(self, work: _Work) -> None:
        self._queue.append(work)
        self._come_again()

    def _park(self, work: _Work) -> None:
        """Behind the others that wait; before them, if it has waited already."""
        self._parked[work] = None
        self._parked.move_to_end(work, last=not work.has_waited)
        work.has_waited = True

    def _unpark_first(self) -> None:
        if self._parked:
            self._unpark(next(iter(self._parked)))

    def _unpark(self, work: _Work) -> None:
        """It sees for itself whether it can go on."""
        del self._parked[work]
        self._enqueue(work)

    def _ended(self, work: _Work) -> None:
        """It holds nothing any more, which may be room for whoever has waited longest."""
        work.steps.close()
        self._unpark_first()

    def _come_again(self) -> None:
        if self._queue and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """One slice for the first in the queue that is still wanted."""
        self._is_due = False
        try:
            while self._queue:
                work = self._queue.popleft()
                if work.is_cancelled:
                    self._ended(work)
                    continue
                with noted(work.note):
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
            told = next(work.steps)  # one at least, however late it is
            if told != WAIT and work.has_waited:
                self._unpark_first()  # there may be room for more than one
            while told != WAIT and time.perf_counter() < until:
                told = next(work.steps)
        except StopIteration as end:
            self._ended(work)
            if not work.is_cancelled:
                work.done(end.value)
            return
        if told == WAIT and not work.is_cancelled:
            self._park(work)
        else:
            self._queue.append(work)


def _told(future: "asyncio.Future[R]") -> tuple[Callable[[R], None], Callable[[Exception], None]]:
    """Who waits may have been cancelled, and not have had its turn yet to say so."""

    def done(result: R) -> None:
        if not future.done():
            future.set_result(result)

    def failed(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    return done, failed


def _nothing() -> Steps[None]:
    yield from ()


class Breaks:
    """`await breaks.taken()` now and then, in what has to go on soon and not only when its turn in the queue comes."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def taken(self) -> None:
        """Others have their turns, when it is time."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


class Pace:
    """`await pace.kept()` with each entry: others have their turns, when it is time."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._entries = 0
        self._until: float | None = None  # the first slice is measured in entries

    async def kept(self, entries: int = 1) -> None:
        """So many entries were worked on."""
        self._entries += entries
        if self._entries < (ENTRIES_AT_ONCE if self._until is None else ENTRIES_PER_STEP):
            return
        self._entries = 0
        if self._until is None or time.perf_counter() >= self._until:
            await self._slices.turn()
            self._until = time.perf_counter() + SLICE_S
