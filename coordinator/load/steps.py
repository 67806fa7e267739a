"""Steps: work on many entries that can be paused between any two of them.

What belongs here: what steps are, and how they are made of loops. Pure: who pauses them, and for how long, is known in
coordinator/load/slices.py.

A function that returns `Steps` is a generator. Each yield tells how many entries were worked on since the last one, so
that small work can be told from large without a clock, or that it has to WAIT; what it returns is the result.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
R = TypeVar("R")

Steps = Generator[int, None, R]

ENTRIES_AT_ONCE = 64
"""What has no more is done in one go: some 2 ms of work at most, where an entry is a group to be described."""

WAIT = -1
"""Yielded instead of entries: there is nothing to be done before other work has ended, and given back its room."""

ENTRIES_PER_STEP = 32
"""Entries between two yields: some 100 µs of work at most."""


def finished(steps: Steps[R]) -> R:
    """The result of steps that are all done at once: where it is known that there are few, and that none waits."""
    while True:
        try:
            told = next(steps)
            assert told != WAIT, "nobody else goes on meanwhile"
        except StopIteration as end:
            result: R = end.value
            return result


def collected(items: Iterable[T | None]) -> Steps[list[T]]:
    """All items that are not None; they are made here if `items` makes them on the way."""
    found: list[T] = []
    seen = 0
    for seen, item in enumerate(items, 1):
        if item is not None:
            found.append(item)
        if not seen % ENTRIES_PER_STEP:
            yield ENTRIES_PER_STEP
    yield seen % ENTRIES_PER_STEP
    return found


class Each(Collection[R], Generic[T, R]):
    """For each of many things what is told of it, made only when it is written."""

    def __init__(self, make: Callable[[T], R], things: Collection[T]) -> None:
        self._make = make
        self._things = things

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._things)

    def __contains__(self, told: object) -> bool:
        return any(each == told for each in self)

    def __eq__(self, other: object) -> bool:
        """As a list of what it makes, which is how tests look at it."""
        return isinstance(other, Collection) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's


class TooManyEntries(ValueError):
    """A message says that it has more entries than it may have."""

    def __init__(self, entries: int, entries_max: int) -> None:
        super().__init__(f"it has {entries} entries or more, {entries_max} are allowed")


class Allowance(msgspec.Struct):
    """How many entries one message may have, in all its arrays together."""

    entries_max: int
    entries: int = 0

    def take(self, entries: int) -> None:
        """An array says that it has so many, of which none has been read. Raises TooManyEntries."""
        self.entries += entries
        if self.entries > self.entries_max:
            raise TooManyEntries(self.entries, self.entries_max)
