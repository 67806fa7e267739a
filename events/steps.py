"""Steps: work on many entries, as a generator that can pause between any two of them.

`coordinator/load/slices.py` schedules them. Each yield is the number of entries processed since the last one, which
distinguishes small work from large without a clock; or WAIT. The generator returns the result.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
R = TypeVar("R")

Steps = Generator[int, None, R]

ENTRIES_AT_ONCE = 64
"""How many entries are processed at once: at most about 2 ms of work, for groups to be described."""

ID_LENGTH_PER_ENTRY = 512
"""This many characters of an id count as one more entry: its partition is a hash over all of them."""

WAIT = -1
"""Yielded instead of entries by work that has to wait until other work has freed room."""

ENTRIES_PER_STEP = 32
"""Entries between two yields: at most about 100 µs of work."""


def entries_of(named: str) -> int:
    """Return the number of entries that a group, or another thing with a name, counts as."""
    return 1 + len(named) // ID_LENGTH_PER_ENTRY


def finished(steps: Steps[R]) -> R:
    """Run all steps at once; for work that is known to be short and does not wait."""
    while True:
        try:
            progress = next(steps)
            assert progress != WAIT, "nobody else goes on meanwhile"
        except StopIteration as end:
            result: R = end.value
            return result


def collected(items: Iterable[T | None]) -> Steps[list[T]]:
    """Collect the items that are not None."""
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
    """A collection of the results of `make` for many things; each result is made only during iteration."""

    def __init__(self, make: Callable[[T], R], things: Collection[T]) -> None:
        self._make = make
        self._things = things

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[R]:
        return map(self._make, self._things)

    def __contains__(self, made: object) -> bool:
        return any(each == made for each in self)

    def __eq__(self, other: object) -> bool:
        """Compare as a list, for tests."""
        return isinstance(other, Collection) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's


class TooManyEntries(ValueError):
    """A message announces more entries than are allowed."""

    def __init__(self, entries: int, entries_max: int) -> None:
        super().__init__(f"it has {entries} entries or more, {entries_max} are allowed")


class Allowance(msgspec.Struct):
    """The entries that one message may have in all its arrays together."""

    entries_max: int
    entries: int = 0

    def take(self, entries: int) -> None:
        """Count the announced entries of an array, before any is read. Raises TooManyEntries."""
        self.entries += entries
        if self.entries > self.entries_max:
            raise TooManyEntries(self.entries, self.entries_max)
