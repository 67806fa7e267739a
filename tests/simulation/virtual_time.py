"""An event loop whose time is virtual: waiting for a timer takes no time, it moves the clock.

Nothing in it may wait for a socket, a thread or a process.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.PollSelector):
    """Never waits: the timeout is added to the loop's time instead. It takes every descriptor, unlike select()."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and there is no timer: a deadlock")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`advance` moves the clock without letting anything run, like a machine that was paused."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def advance(self, seconds: float) -> None:
        self._virtual.now_s += seconds


class VirtualClock:
    """A coordinator's clocks on the loop's time; the wall clock begins at a fixed time."""

    WALL_START_MS = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.WALL_START_MS + self.monotonic_ms()


def simulate(main: Coroutine[Any, Any, T], loop_factory: Callable[[], VirtualTimeLoop] = VirtualTimeLoop) -> T:
    """Run to the end in virtual time; an unhandled exception is raised."""
    failures: list[BaseException] = []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failures.append(context.get("exception") or AssertionError(context["message"]))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.get_loop().set_exception_handler(note)
        result = runner.run(main)
    if failures:
        raise failures[0]
    return result
