"""Turns: only few runs send requests at a time, and those with running timers go first."""

import asyncio
from collections import deque
from typing import Final

AT_A_TIME: Final = 4


class Turns:
    """`AT_A_TIME` turns. Urgent runs go first, then in order of arrival."""

    def __init__(self) -> None:
        self._free = AT_A_TIME
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def take(self, *, urgent: bool = False) -> None:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
            return
        waiting = self._urgent if urgent else self._others
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        await turn

    def give(self) -> None:
        """Give a turn back, to the next in the queue."""
        for waiting in (self._urgent, self._others):
            while waiting:
                turn = waiting.popleft()
                if not turn.cancelled():
                    turn.set_result(None)
                    return
        self._free += 1
