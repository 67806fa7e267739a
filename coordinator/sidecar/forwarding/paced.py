"""Tells 10,000 clients something at once: some in each turn of the loop, so that it holds up nobody else.

What belongs here: callbacks in turns of the loop, and requests that wait for a change. What it must not know: what they
are told.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

AT_ONCE: Final = 20
"""Each of them may have a request begin anew, which takes some 0.2 ms."""


class Paced:
    """Calls callbacks in their order, AT_ONCE in each turn of the loop."""

    def __init__(self) -> None:
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_due = False

    def call(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Call them soon, behind those that are waiting."""
        self._callbacks += callbacks
        self._come_again()

    def _come_again(self) -> None:
        if self._callbacks and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        try:
            for _ in range(min(AT_ONCE, len(self._callbacks))):
                self._callbacks.popleft()()
        finally:  # whatever becomes of one, the others have their turns too
            self._come_again()


class Changes:
    """Changes that requests wait for. `seen`: how many there were, to be taken before a request is tried."""

    def __init__(self, paced: Paced) -> None:
        self.seen = 0
        self._paced = paced
        self._waiting: dict[asyncio.Future[None], None] = {}

    def tell(self) -> None:
        """Have all go on that wait."""
        self.seen += 1
        waiting, self._waiting = self._waiting, {}
        self._paced.call(partial(_go_on, each) for each in waiting)

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until there is another change than those seen, or for so long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if seen != self.seen:
            self._paced.call([partial(_go_on, future)])
            await future
            return
        self._waiting[future] = None
        timer = loop.call_later(timeout_s, lambda: self._paced.call([partial(_go_on, future)]))
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)


def _go_on(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
