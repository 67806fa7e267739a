"""The order in which a previous process's shadows rejoin: a few dozen at a time, since there may be thousands.

Groups with a commit that waits for the shadow take precedence. While partitions are being taken over, no shadow
rejoins: heartbeats and joins need no shadow, and the groups of the last partition would wait for the shadows of the
first one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Iterator
from typing import Final

RETAKES_MAX: Final = 64
"""Limit of concurrent joins after a restart, so that a new group does not wait for thousands of them."""
HELD_S: Final = 1.0
"""The longest pause for a takeover of partitions, since one of them may be waiting for a broker."""


class Retakes:
    """A bounded queue of groups whose shadows have to rejoin upstream; groups with a waiting commit go first."""

    def __init__(self) -> None:
        self._left = RETAKES_MAX
        self._is_held = False
        self._urgent: dict[Hashable, asyncio.Future[None]] = {}
        self._others: dict[Hashable, asyncio.Future[None]] = {}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let no shadow rejoin during the block, for HELD_S at most."""
        self._is_held = True
        over = asyncio.get_running_loop().call_later(HELD_S, self._go_on)
        try:
            yield
        finally:
            over.cancel()
            self._go_on()

    @contextlib.asynccontextmanager
    async def turn(self, shadow: Hashable, *, is_urgent: bool) -> AsyncIterator[None]:
        """Wait until the shadow may rejoin, which it does within the block."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._urgent if is_urgent else self._others
        waiting[shadow] = mine
        self._call_next()
        try:
            await mine
            yield
        finally:
            if self._urgent.pop(shadow, None) is None and self._others.pop(shadow, None) is None:  # it was called
                self._left += 1
                self._call_next()

    def hurry(self, shadow: Hashable) -> None:
        """Move the shadow ahead of others, if it is waiting."""
        waiting = self._others.pop(shadow, None)
        if waiting is not None:
            self._urgent[shadow] = waiting

    def _go_on(self) -> None:
        self._is_held = False
        self._call_next()

    def _call_next(self) -> None:
        while self._left and not self._is_held and (waiting := self._urgent or self._others):
            called = waiting.pop(next(iter(waiting)))
            self._left -= 1
            if not called.done():  # if it was just cancelled, it gives its turn back itself
                called.set_result(None)
