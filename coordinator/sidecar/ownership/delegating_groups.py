"""Groups in front of other groups: what a layer does not answer itself, and what it does beside the requests.

What belongs here: handing on, and tasks that end with the layer. What it must not know: what a layer is for.
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
    """Hands everything on. `give_up` is told of a bug of ours in what goes on beside the requests."""

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
        """Whoever still waits is not answered."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _go_on(self, steps: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Have this done beside the requests, until it ends or the layer does."""
        task = asyncio.get_running_loop().create_task(steps, name=name)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        task.add_done_callback(on_failure(self._give_up))
        return task
