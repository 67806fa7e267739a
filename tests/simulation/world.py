"""A world of several processes in virtual time, from one seed: each has its own event loop and its own clocks.

Has time, the loops, and when what happens; knows nothing of what runs in them. Loops are only stepped here, one at a
time, so a schedule can be repeated from its seed. A paused process is not stepped: its timers are late and what is sent
to it waits. A killed process is never stepped again. Work takes no time; time passes when there is nothing left to do.
"""

import asyncio
import heapq
import itertools
import math
import socket
import warnings
from asyncio import events
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

WALL_START_MS = 1_700_000_000_000
_CALLBACKS_WITHOUT_TIME_MAX = 1_000_000
_WAITS_AT_THE_END_MAX = 100


class Sockets(Protocol):
    """The network, as an event loop needs it."""

    async def connect(self, new_protocol: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]: ...

    def listen(self, new_protocol: Callable[[], Any], host: str, port: int) -> Any: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process. `suspended_s`: the time that its clock has missed, as in a suspended machine."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__()
        self._clock_resolution = 1e-6
        self._world = world
        self.name = name
        self.suspended_s = 0.0
        self.wall_offset_ms = 0
        self.clock = LoopClock(self, world)
        self.is_paused = False
        self.is_dead = False
        self.sockets: Sockets
        """The network, once the process is attached to it."""
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self._world.now_s - self.suspended_s

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[Any, Any]:
        return await self.sockets.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def _process_events(self, _events: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def step(self) -> None:
        """Run all that is ready, and what becomes ready by it at once; as BaseEventLoop does, without its select."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        due_s = self.time() + self._clock_resolution
        while timers and timers[0]._when < due_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            else:
                ready.append(timer)
        events._set_running_loop(self)
        try:
            for _ in range(_CALLBACKS_WITHOUT_TIME_MAX):
                if not ready or self.is_dead or self.is_paused:
                    return
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)
        raise AssertionError("something goes round without end")

    def next_s(self) -> float | None:
        """The world's time at which there is something to do; None: never by itself."""
        if self.is_paused or self.is_dead:
            return None
        if self._ready:  # type: ignore[attr-defined]
            return self._world.now_s
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(timers)._scheduled = False
        if not timers:
            return None
        at_s: float = timers[0]._when + self.suspended_s
        # What is due a hair later, and is now by rounding, would be done, and be due again, without end.
        return max(at_s, math.nextafter(self._world.now_s, math.inf)) if timers[0]._when > self.time() else at_s

    def end(self) -> None:
        """Nothing of it runs any more: a process that was killed, or has ended."""
        if not self.is_dead:
            self.is_dead = True
            self._world.forget(self)

    def bury(self) -> None:
        """Close what was running, when nothing can notice it any more."""
        self.is_dead = True
        events._set_running_loop(self)
        self.set_exception_handler(lambda *_: None)
        try:
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        finally:
            events._set_running_loop(None)
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception") or AssertionError(context["message"])
        if not self.is_dead:
            self._world.failures.append(failure)


def _close(steps: Any) -> None:
    """Close a coroutine, however often it waits again for its parts to end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what it would have waited for is never begun
        for _ in range(_WAITS_AT_THE_END_MAX):
            try:
                steps.close()
            except RuntimeError:
                continue
            return


class LoopClock:
    """The clocks of a process: monotonic, and a wall clock that can be set."""

    def __init__(self, loop: SimulatedLoop, world: "World") -> None:
        self._loop = loop
        self._world = world

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def boot_ms(self) -> int:
        return round(self._world.now_s * 1000)

    def wall_ms(self) -> int:
        return WALL_START_MS + round(self._world.now_s * 1000) + self._loop.wall_offset_ms


class World:
    """See the module. `failures` has the uncaught exceptions."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 1_000.0
        self.failures: list[BaseException] = []
        self._loops: list[SimulatedLoop] = []
        self._dead: list[SimulatedLoop] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def new_loop(self, name: str) -> SimulatedLoop:
        loop = SimulatedLoop(self, name)
        self._loops.append(loop)
        return loop

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something later, in no process."""
        heapq.heappush(self._agenda, (self.now_s + delay_s, next(self._order), action))

    def run_until(self, end_s: float) -> None:
        """Run the world. Raises the first uncaught exception."""
        while not self.failures:
            next_s, loop = self._next()
            if next_s > end_s:
                self.now_s = end_s
                return
            self.now_s = max(self.now_s, next_s)
            if loop is None:
                heapq.heappop(self._agenda)[2]()
            else:
                loop.step()
        raise self.failures[0]

    def _next(self) -> tuple[float, SimulatedLoop | None]:
        """The next turn: its time, and the loop that has it (None: the agenda)."""
        earliest_s, whose = float("inf"), None
        for loop in self._loops:
            at_s = loop.next_s()
            if at_s == self.now_s:
                return at_s, loop
            if at_s is not None and at_s < earliest_s:
                earliest_s, whose = at_s, loop
        if self._agenda and self._agenda[0][0] < max(earliest_s, self.now_s):
            return self._agenda[0][0], None
        return earliest_s, whose

    def forget(self, loop: SimulatedLoop) -> None:
        """Stop stepping the loop."""
        self._loops = [each for each in self._loops if each is not loop]
        self._dead.append(loop)

    def close(self) -> None:
        """Bury all loops."""
        for loop in (*self._loops, *self._dead):
            loop.bury()
