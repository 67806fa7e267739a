"""Concurrent ListGroups share a listing, and none gets one that was started before its request."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.peers.link.peer_messages import OwnedGroup
from muster.coordinator.sidecar.groups.owned_groups import SharedListing
from tests.waiting import until


class Listings:
    """Listings that wait until they are released."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[list[OwnedGroup] | ErrorCode]] = []

    async def make(self) -> list[OwnedGroup] | ErrorCode:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]


def listed(group_id: str) -> list[OwnedGroup]:
    return [OwnedGroup(group_id, "consumer", "Stable", is_owned=True, has_shadow=True, is_in=True)]


async def test_requests_during_a_query_share_the_next_one() -> None:
    listings = Listings()
    shared = SharedListing(listings.make)
    first = asyncio.create_task(shared.list_groups())
    await until(lambda: len(listings.begun) == 1)
    later = [asyncio.create_task(shared.list_groups()) for _ in range(200)]
    await until(lambda: shared._next is not None)
    await asyncio.sleep(0)  # all of them wait
    later.pop().cancel()  # its client has disconnected
    listings.begun[0].set_result(listed("before"))
    assert await first == listed("before")
    await until(lambda: len(listings.begun) == 2)
    last = asyncio.create_task(shared.list_groups())
    listings.begun[1].set_result(listed("after"))
    assert await asyncio.gather(*later) == [listed("after")] * 199
    await until(lambda: len(listings.begun) == 3)
    listings.begun[2].set_result(ErrorCode.coordinator_not_available)
    assert await last is ErrorCode.coordinator_not_available
    assert len(listings.begun) == 3
    assert shared._being_made is None, "nobody keeps it"


async def test_a_failed_query_is_reported_to_its_waiters_only() -> None:
    listings = Listings()
    shared = SharedListing(listings.make)
    first, second = asyncio.create_task(shared.list_groups()), asyncio.create_task(shared.list_groups())
    await until(lambda: len(listings.begun) == 1)
    later = asyncio.create_task(shared.list_groups())
    await until(lambda: shared._next is not None)
    listings.begun[0].set_exception(ValueError("for a test"))
    for each in (first, second):
        with pytest.raises(ValueError, match="for a test"):
            await each
    await until(lambda: len(listings.begun) == 2)
    listings.begun[1].set_result(listed("whole"))
    assert await later == listed("whole")
