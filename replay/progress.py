"""A progress bar, shown only on a terminal and only if reading takes longer than a second."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Watch = Callable[[int, int], None]
"""Called with the progress of a long job: the amount done and the total, in any unit."""

PATIENCE_S = 1.0
"""The delay before the bar is shown."""


def unwatched(done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def watched(title: str) -> Iterator[Watch]:
    """Yield a function to call with the progress. The bar goes to stderr and disappears at the end."""
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
