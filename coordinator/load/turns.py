"""Turns: all connections of a process share a slice of each turn of the event loop.

Keeps the queue of connections and limits the length of a turn; does not know what a connection does.

The loop calls every ready socket in one turn, so a limit per connection does not limit all of them together. Here they
share `SLICE_MS` (twice that at most: see `begin`). A connection that arrives later, or has more requests than its
share, waits in a single first-in, first-out queue, so that no connection is served twice while another waits. A round
of the queue is `REQUESTS_IN_ROUND` requests in total, or one of each connection if that is more. Usually there is no
queue; then the only cost is reading the clock.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from muster.coordinator.load.slices import SLICE_S

REQUESTS_AT_ONCE = 64
"""How many requests one connection may process if no other one waits, not counting those that the fast path answers."""

REQUESTS_IN_ROUND = 1_024
"""How many requests all waiting connections may process together in one round: about 50 ms of work. Fewer would mean a
write for each request.
"""


CROWD = 64
"""If more connections than this are queued, only a few new ones are accepted per turn, so that the queued ones are
served first.
"""


class Waits(Protocol):
    """A connection that takes turns."""

    def take_turn(self) -> None:
        """Process `Turns.share` requests, and wait again if there are more."""


class Turns:
    """One per process. `clock`: seconds, of which only differences count."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Waits, None] = OrderedDict()
        self._is_due = False
        self._until = clock()
        self._has_turned = True  # true if the loop has run once since the slice began that ends at `_until`
        self.share = REQUESTS_AT_ONCE
        """The requests that a connection may process in its turn."""

    def is_waiting(self, connection: Waits) -> bool:
        return connection in self._waiting

    def begin(self, connection: Waits) -> bool:
        """Return whether the connection may begin now; if not, it is queued.

        A slice begins with the first connection after the previous slice ended. Starting one with each turn of the loop
        would need a callback in each.
        """
        if not self._waiting:
            if not self.is_over:
                return True
            if self._has_turned:
                self._has_turned = False
                self._until = self._clock() + SLICE_S
                asyncio.get_running_loop().call_soon(self._turned)
                return True
        self.wait(connection)
        return False

    @property
    def is_crowded(self) -> bool:
        """True if so many connections wait that few more should be accepted now."""
        return len(self._waiting) > CROWD

    @property
    def is_over(self) -> bool:
        """True if the slice is over."""
        return self._clock() >= self._until

    def wait(self, connection: Waits) -> None:
        """Queue the connection."""
        self._waiting[connection] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def after_pending(self, callback: Callable[[], None]) -> None:
        """Call back when all connections that wait now have had a turn; immediately if none waits."""
        if self._waiting:
            self.wait(_Then(callback))
        else:
            callback()

    def forget(self, connection: Waits) -> None:
        """Remove a closed connection from the queue."""
        self._waiting.pop(connection, None)

    def _turned(self) -> None:
        self._has_turned = True

    def _turn(self) -> None:
        """Run one slice of the queue; at least one connection has its turn."""
        self._until = self._clock() + SLICE_S
        try:
            while self._waiting:
                self.share = min(REQUESTS_AT_ONCE, max(1, REQUESTS_IN_ROUND // len(self._waiting)))
                connection, _ = self._waiting.popitem(last=False)
                connection.take_turn()
                if self.is_over:
                    break
        finally:  # even if one fails, the others get their turns
            self.share = REQUESTS_AT_ONCE
            self._is_due = bool(self._waiting)
            if self._is_due:
                asyncio.get_running_loop().call_soon(self._turn)


class _Then:
    """A callback that waits in the queue like a connection."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def take_turn(self) -> None:
        self._callback()
