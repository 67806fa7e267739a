"""One request that becomes many commands: each group's outcome is waited for, then all are answered together.

What is kept of an outcome should be the outcome: what is written of it is made when it is written (`Each`).
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """Calls `done` with all results, in the order of their places, once each place has one; at once for no places."""

    def __init__(self, places: int, done: Callable[[Sequence[T]], None]) -> None:
        self._results: list[T | None] = [None] * places
        self._missing = places
        self._done = done
        if not places:
            done(())

    def put(self, place: int, result: T) -> None:
        """The result of one place, which is to be given once."""
        self._results[place] = result
        self._missing -= 1
        if not self._missing:
            self._done([each for each in self._results if each is not None])
