"""Changes of owners: what a former owner must not do, what the next one must. L5, L7, L9."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from muster.events.events import CoordinatorReady
from muster.events.ids import GroupId
from muster.events.log.base import Deposed
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.coordinator.runtime.test_runtime import recorded
from tests.known_bugs.odd_logs import Interrupted, process_on
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until


def test_l5_an_owner_that_loses_a_partition_while_reading_does_not_serve_it() -> None:
    """A coordinator that had lost the leadership during its load called itself active all the same, and parked requests
    were never answered when it unloaded: the load must be aborted, no request be served by it, and pending ones be
    redirected.
    """

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        slow, log = process_on(storage, Interrupted)
        starting = asyncio.create_task(slow.start())
        await log.halfway.wait()
        quick = await SimulatedProcess(storage).start()
        left = await quick.leave(joined["b"].member_id)
        assert left.members[0].error is ErrorCode.none
        waiting = quick.join("a", joined["a"].member_id)
        assert (await waiting).generation_id == joined["a"].generation_id + 1
        log.go_on.set()
        with pytest.raises(Deposed):
            await starting
        assert not slow.runtime.ready
        assert (await slow.join("c")).error is ErrorCode.coordinator_load_in_progress
        ready = [event for event in recorded(storage, CoordinatorReady) if isinstance(event, CoordinatorReady)]
        assert [event.owner_epoch for event in ready] == [1, 3]
        parked = quick.join("d")
        await asyncio.sleep(0.01)
        await quick.runtime.stop()
        assert (await parked).error is ErrorCode.not_coordinator

    simulate(story())


def test_l7_groups_are_listed_once_and_loading_has_an_end() -> None:
    """While leaders changed, ListGroups reported a load that never ended, and one group twice: it must report one only
    while a partition is loaded, and then each group once, however often the partitions moved.
    """

    async def story() -> None:
        storage = MemoryStorage(partitions=4)
        process = await SimulatedProcess(storage).start()
        names = {GroupId(f"group-{number}") for number in range(12)}
        for name in sorted(names):
            await process.commit(1, group_id=name)
        seen = set()
        for _ in range(5):
            process.log.fail_next_append()
            lost = await process.join("a", group_id=min(names))
            assert lost.error is ErrorCode.not_coordinator
            seen.add(process.runtime.list_groups() is ErrorCode.coordinator_load_in_progress)
            await until(lambda: process.runtime.ready, "all partitions are served again")
            listed = process.runtime.list_groups()
            assert not isinstance(listed, ErrorCode)
            assert sorted(group.group_id for group in listed) == sorted(names)
        assert seen == {True}
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize("after_s", [0, 9])
def test_l9_after_a_takeover_each_session_has_exactly_its_full_timeout(after_s: int) -> None:
    """After a failover all members expired at once, or dead ones lived on: a live member must have its whole session
    from the takeover on, however old its last heartbeat is, and a dead one must be gone after that.
    """

    async def story() -> None:
        storage = MemoryStorage()
        first = await SimulatedProcess(storage).start()
        joined = await first.stable_group("a", "b")
        await asyncio.sleep(after_s)
        second = await SimulatedProcess(storage).start()
        await asyncio.sleep(9.9)
        assert (await second.describe()).state is GroupState.STABLE
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.none
        await asyncio.sleep(0.2)
        assert (await second.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id
        assert (await second.heartbeat(joined["a"])).error is ErrorCode.rebalance_in_progress
        third = await SimulatedProcess(storage).start()
        assert (await third.heartbeat(joined["b"])).error is ErrorCode.unknown_member_id, "the dead came back"
        await asyncio.sleep(10.1)
        assert (await third.describe()).members == ()
        await third.runtime.stop()

    simulate(story())
