"""Runs many callbacks, e.g. for 10,000 clients, a few in each turn of the event loop, so as not to delay other work.

Requests that wait for a change are woken up in this way too.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

AT_ONCE: Final = 20
"""Callbacks in one turn of the event loop. Each may restart a request, which takes about 0.2 ms."""


class Paced:
    """Calls callbacks in order, AT_ONCE in each turn of the event loop."""

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_due = False

    def call(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Call them soon, after those that are already waiting."""
        self._callbacks += callbacks
        self._schedule()

    def _schedule(self) -> None:
        if self._callbacks and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        try:
            for _ in range(min(AT_ONCE, len(self._callbacks))):
                self._callbacks.popleft()()
        finally:  # if one fails, the others still run
            self._schedule()


class Changes:
    """Changes that requests wait for. `seen`: the number of changes so far; read it before trying a request."""

    def __init__(self, paced: Paced) -> None:
        self.seen = 0
        self._paced = paced
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake up everything that waits."""
        self.seen += 1
        waiting, self._waiting = self._waiting, {}
        self._paced.call(partial(_resume, each) for each in waiting)

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Wait for a change after the first `seen` ones, or for the timeout."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if seen != self.seen:
            self._paced.call([partial(_resume, future)])
            await future
            return
        self._waiting[future] = None
        timer = loop.call_later(timeout_s, lambda: self._paced.call([partial(_resume, future)]))
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)


def _resume(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
