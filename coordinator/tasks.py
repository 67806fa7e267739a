"""Background tasks that nobody awaits."""

import asyncio
from collections.abc import Callable


def on_failure(report: Callable[[Exception], None]) -> Callable[[asyncio.Task[None]], None]:
    """Make a done callback that passes the error of a failed task on, so that no bug goes unnoticed."""

    def done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            report(error)

    return done
