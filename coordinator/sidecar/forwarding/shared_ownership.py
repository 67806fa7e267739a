"""The runtime as one of several sidecars: handles shadows and moves when partitions are taken over or given up.

Does not know how the partitions are shared.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.tasks import BackgroundTasks
from muster.coordinator.upstream.shadows import Shadows
from muster.events.ids import GroupId
from muster.events.log.base import EventLog
from muster.events.partitioner import partition_for


class SharedOwnership:
    """The runtime of one of several sidecars. `remove_strays` removes shadows that former owners left behind.

    `failed` is called with its error.
    """

    def __init__(
        self,
        runtime: Runtime,
        shadows: Shadows,
        moves: Moves,
        remove_strays: Callable[[], Coroutine[Any, Any, None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self._runtime = runtime
        self._shadows = shadows
        self._moves = moves
        self._remove_strays = remove_strays
        self._tasks = BackgroundTasks(failed)

    async def close(self) -> None:
        """Stop removing shadows."""
        await self._tasks.close()

    def claims(self) -> Mapping[int, int]:
        return self._runtime.claims()

    async def assign(self, numbers: frozenset[int]) -> None:
        """Take over partitions, then remove shadows that their former owners left behind.

        The removal runs in the background: a broker that hangs must not delay other processes' takeovers.
        """
        if numbers <= self._runtime.claims().keys():
            return
        self._moves.expect_shadows()
        with self._shadows.retakes_held():
            await self._runtime.assign(numbers)
        self._moves.begin()
        self._tasks.start(self._remove_strays(), "strays-of-former-owners")

    async def release(self, numbers: frozenset[int]) -> None:
        await self._runtime.release(numbers)


def release_callback(shadows: Shadows, moves: Moves, event_log: EventLog) -> Callable[[int], None]:
    """Return the callback for a partition that another process now owns: it leaves the groups' shadows to that process.

    Partitions of one turn of the event loop are handled together, since each time all groups are checked.
    """
    theirs: set[int] = set()

    def drop() -> None:
        numbers = frozenset(theirs)
        theirs.clear()

        def is_theirs(group_id: GroupId) -> bool:
            return partition_for(group_id, event_log.partitions) in numbers

        moves.drop_groups(is_theirs)
        shadows.drop_groups(is_theirs)

    def given_up(number: int) -> None:
        if not theirs:
            asyncio.get_running_loop().call_soon(drop)
        theirs.add(number)

    return given_up
