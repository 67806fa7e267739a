"""Background tasks. Their errors are reported, since nothing awaits the tasks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def on_failure(report: Callable[[Exception], None]) -> Callable[[asyncio.Task[None]], None]:
    """Create a done callback that passes on the error of a failed task, so that no bug goes unnoticed."""

    def done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            report(error)

    return done


class BackgroundTasks:
    """Tasks that end with their owner at the latest. `failed` is called with the error of each that fails."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self.running: dict[asyncio.Task[None], None] = {}
        self._failed = failed

    def start(self, steps: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run the coroutine in a task, until it ends or the tasks are closed."""
        task = asyncio.get_running_loop().create_task(steps, name=name)
        self.running[task] = None
        task.add_done_callback(self.running.pop)
        task.add_done_callback(on_failure(self._failed))
        return task

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        running = list(self.running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
