"""A progress bar for reading that takes longer than a second, on a terminal alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Watch = Callable[[int, int], None]
"""Told how far a long work is: what is done, and what there is in all, in units of its own."""

PATIENCE_S = 1.0
"""The time before anything is shown."""


def unwatched(done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def watched(title: str) -> Iterator[Watch]:
    """A function to be told how far the reading is; what it shows goes to stderr and vanishes at the end."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield unwatched
        return
    begin = monotonic()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(title, total=None)

    def show(done: int, total: int) -> None:
        if monotonic() - begin >= PATIENCE_S:
            progress.start()
        progress.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        progress.stop()
