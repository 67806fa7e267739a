"""Base of layers in front of the runtime's groups: delegates every command, and runs background tasks.

What belongs here: delegation, and tasks that end with the layer. What it must not know: what a layer is for.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat
from muster.coordinator.service import CommittedOffset, Groups, HeartbeatTicket, ListedGroup, ReplyTo
from muster.coordinator.tasks import on_failure
from muster.events.ids import GroupId


class DelegatingGroups(Groups):
    """Delegates everything. `give_up` is called with a bug of ours in a background task."""

    def __init__(self, groups: Groups, *, give_up: Callable[[Exception], None]) -> None:
        self._groups = groups
        self._give_up = give_up
        self._beside: set[asyncio.Task[None]] = set()

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        self._groups.submit(command, reply)

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        return self._groups.heartbeat_ticket(command)

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        return self._groups.list_groups()

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        return self._groups.committed_offsets(group_id)

    async def close(self) -> None:
        """Cancel the background tasks; requests that wait for them are not answered."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _go_on(self, steps: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a background task, until it ends or the layer is closed."""
        task = asyncio.get_running_loop().create_task(steps, name=name)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        task.add_done_callback(on_failure(self._give_up))
        return task
