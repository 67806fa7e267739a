"""The groups of this process for ListGroups: the log's view of each, and whether it has a shadow upstream.

Concurrent requests share one listing. Knows nothing of other processes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kio.schema.errors import ErrorCode

from muster.coordinator.peers.link.peer_messages import OwnedGroup
from muster.coordinator.service import ListedGroup, Service
from muster.coordinator.upstream.shadows import Shadows
from muster.events.ids import GroupId

ListOwned = Callable[[], Awaitable[list[OwnedGroup] | ErrorCode]]
"""Lists the groups of all processes of the event log, or returns Kafka's error for all."""


def own_groups(service: Service, shadows: Shadows) -> ListOwned:
    """Return a function that lists the groups of this process."""

    def owned(group_id: GroupId, listed: ListedGroup | None) -> OwnedGroup:
        return OwnedGroup(
            group_id=group_id,
            protocol_type=None if listed is None else listed.protocol_type,
            state=None if listed is None else listed.state.value,
            is_owned=shadows.owns(group_id),
            has_shadow=shadows.may_have_shadow(group_id),
            is_in=shadows.is_in(group_id),
        )

    async def list_own() -> list[OwnedGroup] | ErrorCode:
        known = service.groups.list_groups()
        if isinstance(known, ErrorCode):
            return known
        pace, groups, in_log = service.slices.pace(), [], set()
        for listed in known:
            in_log.add(listed.group_id)
            groups.append(owned(listed.group_id, listed))
            await pace.worked()
        for group_id in shadows.group_ids():
            if group_id not in in_log:
                groups.append(owned(group_id, None))
                await pace.worked()
        return groups

    return list_own


class SharedListing:
    """Lets concurrent callers share one listing.

    A caller never gets a listing that was already in progress when it called, which may lack its own last change.
    """

    def __init__(self, make: ListOwned) -> None:
        self._make = make
        self._being_made: asyncio.Task[list[OwnedGroup] | ErrorCode] | None = None
        self._next: asyncio.Task[list[OwnedGroup] | ErrorCode] | None = None

    async def list_groups(self) -> list[OwnedGroup] | ErrorCode:
        """List the groups, at the time of the call or later. Raises what the listing raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._made_after(self._being_made), name="list-groups")
        return await asyncio.shield(self._next)

    async def _made_after(
        self, before: "asyncio.Task[list[OwnedGroup] | ErrorCode] | None"
    ) -> list[OwnedGroup] | ErrorCode:
        if before is not None:
            await asyncio.wait([before])
        self._being_made, self._next = self._next, None
        try:
            return await self._make()
        finally:
            self._being_made = None
