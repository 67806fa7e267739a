"""Base of layers in front of the runtime's groups that run background tasks.

What belongs here: tasks that end with the layer. What it must not know: what a layer is for.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from muster.coordinator.service import DelegatingGroups, Groups
from muster.coordinator.tasks import on_failure


class GroupsLayer(DelegatingGroups):
    """Delegates everything. `give_up` is called with a bug of ours in a background task."""

    def __init__(self, groups: Groups, *, give_up: Callable[[Exception], None]) -> None:
        super().__init__(groups)
        self._give_up = give_up
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel the background tasks; requests that wait for them are not answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, steps: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a background task, until it ends or the layer is closed."""
        task = asyncio.get_running_loop().create_task(steps, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(on_failure(self._give_up))
        return task
