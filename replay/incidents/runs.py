"""Runs: things that follow each other closely enough to belong together."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def runs(ordered: Iterable[T], goes_on: Callable[[list[T], T], bool]) -> Iterator[list[T]]:
    """The runs, in order. `goes_on`: whether the next one belongs to the run before it."""
    run: list[T] = []
    for each in ordered:
        if run and not goes_on(run, each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run
