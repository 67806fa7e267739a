"""Offsets that are stored upstream: nothing of them is stored here, whatever happens to groups."""

import asyncio

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.upstream import UpstreamOffsetStore
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate

OFFSET = OffsetToCommit(
    topic="orders", partition=0, offset=5, leader_epoch=-1, metadata="", commit_ms=1, expire_ms=None
)


def test_changes_are_taken_and_come_to_nothing() -> None:
    """Each gets a result, so that the waiting requests continue."""
    store: OffsetStore = UpstreamOffsetStore()
    changes = [
        OffsetsChange(group_id=GROUP, committed=(OFFSET,)),
        OffsetsChange(group_id=GROUP, deleted=(("orders", 0),)),
        OffsetsChange(group_id=GroupId("other"), all_deleted=True),
    ]

    async def story() -> None:
        await store.open()
        await store.claim(0)
        assert await store.write(changes) == [None, None, None]
        assert (store.committed(GROUP), store.group_ids()) == ({}, frozenset())
        await store.close()

    asyncio.run(story())


def test_groups_live_and_go_without_any_offset_here() -> None:
    """A takeover finds no offsets without a group, and a deletion has none to delete."""

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage, offsets=UpstreamOffsetStore()).start()
        joined = await first.stable_group("a")
        await first.runtime.stop()
        second = await SimulatedProcess(storage, offsets=UpstreamOffsetStore()).start()
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
        assert second.runtime.committed_offsets(GROUP) == {}
        await second.leave(joined["a"].member_id)
        assert (await second.delete()).error is ErrorCode.none
        await second.runtime.stop()

    simulate(story())
