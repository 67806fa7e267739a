"""Groups items that follow each other closely."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def runs(ordered: Iterable[T], goes_on: Callable[[list[T], T], bool]) -> Iterator[list[T]]:
    """Yield the runs in order. `goes_on`: returns whether the next item continues the current run."""
    run: list[T] = []
    for each in ordered:
        if run and not goes_on(run, each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run
