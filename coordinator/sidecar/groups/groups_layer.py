"""Base of layers in front of the runtime's groups that run background tasks, which end with the layer."""

from collections.abc import Callable

from muster.coordinator.service import DelegatingGroups, Groups
from muster.coordinator.tasks import BackgroundTasks


class GroupsLayer(DelegatingGroups):
    """Delegates everything. `give_up` is called on an internal error in a background task."""

    def __init__(self, groups: Groups, *, give_up: Callable[[Exception], None]) -> None:
        super().__init__(groups)
        self._tasks = BackgroundTasks(give_up)

    async def close(self) -> None:
        """Cancel the background tasks; requests that wait for them are not answered."""
        await self._tasks.close()
