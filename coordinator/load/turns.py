"""Turns: how all connections of a process share one turn of the event loop.

What belongs here: whose turn it is, and for how long. What it must not know: what a connection does with it.

A loop gives every socket that is ready its callback in one turn, so a limit for each connection is none for all of
them. Here they have `SLICE_MS` together (twice that at most: see `begin`). Who comes later, or has more to do than its
share, waits in one queue, first come first served, and everybody that comes meanwhile waits behind: so nobody is served
twice while another waits. A round of the queue is `REQUESTS_IN_ROUND` requests over all, or one of each if that is
more. Where nobody waits, as nearly always, it costs a look at the clock.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from muster.coordinator.load.slices import SLICE_S

REQUESTS_AT_ONCE = 64
"""Of one connection that nobody waits behind, not counting those that the fast path answers."""

REQUESTS_IN_ROUND = 1_024
"""Of all that wait: some 50 ms of work. Fewer would be a write for each request where not so many wait."""


class Waits(Protocol):
    """A connection, as far as it takes turns."""

    def take_turn(self) -> None:
        """Work off `Turns.share` requests, and wait again if there are more."""


class Turns:
    """One for a process. `clock`: seconds, of which only differences count."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Waits, None] = OrderedDict()
        self._is_due = False
        self._until = clock()
        self._has_turned = True  # the loop, since the slice began that ends at `_until`
        self.share = REQUESTS_AT_ONCE
        """How many requests whoever has its turn may take now."""

    def is_waiting(self, connection: Waits) -> bool:
        return connection in self._waiting

    def begin(self, connection: Waits) -> bool:
        """Whether it may begin now; if not it waits for its turn.

        A slice is measured from the first that begins when the one before is over, and not anew in each turn of the
        loop: that would take a callback in each.
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
    def is_over(self) -> bool:
        """Whether others should have their turns."""
        return self._clock() >= self._until

    def wait(self, connection: Waits) -> None:
        """Have a turn later, behind those that wait already."""
        self._waiting[connection] = None
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def after_those_who_wait(self, callback: Callable[[], None]) -> None:
        """Call back when all who wait now have had a turn: now, where nobody waits."""
        if self._waiting:
            self.wait(_Then(callback))
        else:
            callback()

    def forget(self, connection: Waits) -> None:
        """It is gone."""
        self._waiting.pop(connection, None)

    def _turned(self) -> None:
        self._has_turned = True

    def _turn(self) -> None:
        """One slice for those who wait; one of them at least has its turn, however late it is."""
        self._until = self._clock() + SLICE_S
        try:
            while self._waiting:
                self.share = min(REQUESTS_AT_ONCE, max(1, REQUESTS_IN_ROUND // len(self._waiting)))
                connection, _ = self._waiting.popitem(last=False)
                connection.take_turn()
                if self.is_over:
                    break
        finally:  # whatever becomes of one, the others have their turns too
            self.share = REQUESTS_AT_ONCE
            self._is_due = bool(self._waiting)
            if self._is_due:
                asyncio.get_running_loop().call_soon(self._turn)


class _Then:
    """It waits like a connection, and has nothing to do but to call."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def take_turn(self) -> None:
        self._callback()
