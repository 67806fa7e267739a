"""Waits for a condition on the children's reports, with a generous limit, and shows what it waits for."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from demo.children import Child

WITHIN_S: Final = 90.0

Waiting = Callable[[str], AbstractContextManager[None]]
"""Shows what is awaited, while the block lasts."""


class NotAsTold(Exception):
    """A claim of the story did not hold: the expectation, the actual state, and later the step."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected, seen)
        self.expected = expected
        self.seen = seen

    def __str__(self) -> str:
        return f"{self.expected}\nSeen instead: {self.seen}"


class Scene:
    """All children. Call `note` after each news of one."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._noted = asyncio.Event()
        self._children: list[Child] = []
        self.describe: Callable[[], str] = lambda: "nothing"

    def add(self, child: Child) -> None:
        """It is ended with the scene."""
        self._children.append(child)

    def note(self) -> None:
        """Something may have changed."""
        self._noted.set()

    async def until(self, what: str, holds: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
        """Wait until the condition holds. Raises NotAsTold with the actual state."""
        with self._waiting(f"waiting until {what}"):
            try:
                async with asyncio.timeout(within_s):
                    while not holds():
                        self._noted.clear()
                        await self._noted.wait()
            except TimeoutError:
                raise NotAsTold(f"within {within_s:.0f} s it should be that {what}", self.describe()) from None

    async def close(self) -> None:
        """End every child that is still running."""
        await asyncio.gather(*(child.end() for child in self._children))
