"""Tasks that go on beside the requests, and that nobody awaits: what becomes of them when they fail."""

import asyncio
from collections.abc import Callable


def on_failure(tell: Callable[[Exception], None]) -> Callable[[asyncio.Task[None]], None]:
    """What a task that nobody awaits ends with is told: a bug of ours must not go by unheard."""

    def done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            tell(error)

    return done
