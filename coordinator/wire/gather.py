"""Gathers the outcomes of a request that becomes many commands, one for each group, into one response.

Keep the outcomes themselves: their fields are built when they are written (`Each`).
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """Calls `done` with the results of all places, in order, once each place has one; immediately if there are no
    places.
    """

    def __init__(self, places: int, done: Callable[[Sequence[T]], None]) -> None:
        self._results: list[T | None] = [None] * places
        self._missing = places
        self._done = done
        if not places:
            done(())

    def put(self, place: int, result: T) -> None:
        """Set the result of one place; call this once for each."""
        self._results[place] = result
        self._missing -= 1
        if not self._missing:
            self._done([each for each in self._results if each is not None])
