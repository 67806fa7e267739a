"""Waiting: for a condition over what the children have said, with a generous limit, and saying for what.

What belongs here: the children that are running, and the one way to wait for them. What it must not know: who they are.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from demo.children import Child

WITHIN_S: Final = 90.0

Waiting = Callable[[str], AbstractContextManager[None]]
"""Shows what is waited for, while the block lasts."""


class NotAsTold(Exception):
    """The story did not go as told: what should have been, what was seen instead, and later also where."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected, seen)
        self.expected = expected
        self.seen = seen

    def __str__(self) -> str:
        return f"{self.expected}\nSeen instead: {self.seen}"


class Scene:
    """All children. Whoever learns something of one calls `note`."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._noted = asyncio.Event()
        self._children: list[Child] = []
        self.describe: Callable[[], str] = lambda: "nothing"

    def add(self, child: Child) -> None:
        """It is ended with the scene."""
        self._children.append(child)

    def note(self) -> None:
        """Something may be different now."""
        self._noted.set()

    async def until(self, what: str, holds: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
        """Wait until it holds. Raises NotAsTold with what is there instead."""
        with self._waiting(f"waiting until {what}"):
            try:
                async with asyncio.timeout(within_s):
                    while not holds():
                        self._noted.clear()
                        await self._noted.wait()
            except TimeoutError:
                raise NotAsTold(f"within {within_s:.0f} s it should be that {what}", self.describe()) from None

    async def close(self) -> None:
        """End every child that is still there."""
        await asyncio.gather(*(child.end() for child in self._children))
