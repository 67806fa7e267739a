"""Shadows that are displaced by a process, an administrator or the broker."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from muster.coordinator.upstream.shadows import ShadowUnavailable
from tests.brokers.broker import Broker
from tests.brokers.restartable import RestartableBroker
from tests.coordinator.upstream.stage import Direct, Process, new_group, process, speaking_directly
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
async def watchful(kafka_broker: Broker) -> AsyncIterator[Process]:
    """A process with frequent heartbeats, so that it notices at once what was done to it."""
    async with process(kafka_broker.bootstrap, heartbeat_interval_ms=100) as started:
        yield started


async def test_the_second_process_takes_the_shadow_and_the_first_is_notified(
    watchful: Process, successor: Process, direct: Direct
) -> None:
    """It notices by its next heartbeat at the latest, and does not take the shadow back."""
    group_id = new_group()
    deposed = await watchful.own(group_id)
    retaken = await successor.bump_to(group_id, 1)
    await until(lambda: watchful.lost != [])
    assert watchful.lost == [
        (
            group_id,
            "another muster serve with this event log has taken over the group's shadow: FENCED_INSTANCE_ID (82)",
        )
    ]
    watchful.shadows.update_generation(group_id, generation_id=2, is_wanted=True)
    assert not watchful.shadows.owns(group_id)
    assert watchful.shadows.commit_identity(group_id, 1) is None
    assert await direct.commit(group_id, deposed) == 82
    assert await direct.commit(group_id, retaken) == 0


async def test_a_bump_of_the_deposed_process_is_refused(ours: Process, successor: Process) -> None:
    """Waiting callers get the error at once."""
    group_id = new_group()
    await ours.own(group_id)
    await successor.bump_to(group_id, 1)
    ours.shadows.update_generation(group_id, generation_id=2, is_wanted=True)
    with pytest.raises(ShadowUnavailable, match="another muster serve with this event log"):
        await ours.shadows.wait_bumped(group_id, 2)


async def test_a_successor_takes_what_a_former_process_held(ours: Process, successor: Process, direct: Direct) -> None:
    """Only our own shadow is in it, so the group is ours to take."""
    group_id = new_group()
    deposed = await ours.own(group_id)
    assert await successor.shadows.take(group_id) is None
    retaken = await successor.bump_to(group_id, 1)
    assert await direct.commit(group_id, deposed) == 82
    assert await direct.commit(group_id, retaken) == 0
    bumped = await successor.bump_to(group_id, 2)
    assert bumped.generation_id > retaken.generation_id


async def test_a_shadow_removed_by_an_administrator_rejoins(watchful: Process, direct: Direct) -> None:
    """It notices by its next heartbeat; the identity is another one."""
    group_id = new_group()
    removed = await watchful.own(group_id)
    assert await direct.remove_shadow(group_id) == 0
    await until(lambda: watchful.shadows.commit_identity(group_id, 1) not in {None, removed})
    again = watchful.shadows.commit_identity(group_id, 1)
    assert await direct.commit(group_id, removed) in {25, 82}
    assert await direct.commit(group_id, again) == 0
    assert watchful.lost == []


async def test_remaining_shadows_of_a_former_process_leave(ours: Process, successor: Process, direct: Direct) -> None:
    """Except in groups that are not ours, or that we have."""
    stray, held, others = new_group(), new_group(), new_group()
    for group_id in (stray, held, others):
        await ours.own(group_id)
    await successor.bump_to(held, 1)
    await successor.shadows.remove_stray_shadows(lambda group_id: group_id in {stray, held})
    async with successor.shadows.withdrawn(stray):
        assert await direct.members(stray) == []
    assert len(await direct.members(held)) == 1
    assert len(await direct.members(others)) == 1


async def test_parked_joins_block_no_others(slow: Process) -> None:
    """Upstream parks first joins for 3 s; bumps, and the taking of other groups, continue."""
    settled = new_group()
    await slow.own(settled)
    parked = [new_group() for _ in range(10)]
    for group_id in parked:
        assert await slow.shadows.take(group_id) is None
        slow.shadows.update_generation(group_id, generation_id=1, is_wanted=True)
    for generation_id in range(2, 6):
        await slow.bump_to(settled, generation_id)
    assert slow.shadows.commit_identity(parked[-1], 1) is None, "the last one is not back yet"
    for group_id in parked:
        await slow.shadows.wait_bumped(group_id, 1)


async def test_a_parked_shadow_leaves_at_once(slow: Process, slow_direct: Direct) -> None:
    """It does not wait for its join to be answered, and nothing of it remains."""
    group_id = new_group()
    began = time.monotonic()
    assert await slow.shadows.take(group_id) is None
    slow.shadows.update_generation(group_id, generation_id=0, is_wanted=False)
    async with slow.shadows.withdrawn(group_id):
        assert time.monotonic() - began < 3.0
        assert await slow_direct.members(group_id) == []


async def test_a_parked_shadow_is_wanted_again(slow: Process, slow_direct: Direct) -> None:
    """The latest request counts."""
    group_id = new_group()
    assert await slow.shadows.take(group_id) is None
    for generation_id in range(1, 8):
        slow.shadows.update_generation(group_id, generation_id=generation_id, is_wanted=generation_id % 2 == 1)
        await asyncio.sleep(0)
    await slow.shadows.wait_bumped(group_id, 7)
    assert await slow_direct.commit(group_id, slow.shadows.commit_identity(group_id, 7)) == 0


async def test_sessions_are_shorter_if_upstream_limits_them(slow: Process) -> None:
    """500 s is the maximum there; half an hour is requested first, then half of that and so on."""
    await asyncio.gather(*(slow.own(new_group()) for _ in range(5)))
    assert slow.shadows._driver.session_timeout_ms == 450_000
    assert slow.lost == []


async def test_the_broker_restarts(slow: Process, slow_broker: RestartableBroker) -> None:
    """Shadows stay; pending requests are completed when the broker is back, and old commits stay refused."""
    settled, requested, new = new_group(), new_group(), new_group()
    kept, before = await slow.own(settled), await slow.own(requested)
    assert await slow.shadows.take(new) is None
    slow.shadows.update_generation(new, generation_id=1, is_wanted=True)
    await asyncio.to_thread(slow_broker.kill)
    slow.shadows.update_generation(requested, generation_id=2, is_wanted=True)
    with pytest.raises(ShadowUnavailable, match="cannot determine whether"):
        await slow.shadows.take(new_group())
    await asyncio.to_thread(slow_broker.start)
    await slow.shadows.wait_bumped(requested, 2)
    await slow.shadows.wait_bumped(new, 1)
    async with speaking_directly(slow_broker.bootstrap) as direct:
        assert await direct.commit(requested, before) in {22, 25, 82}
        assert await direct.commit(requested, slow.shadows.commit_identity(requested, 2)) == 0
        assert await direct.commit(new, slow.shadows.commit_identity(new, 1)) == 0
        assert await direct.commit(settled, slow.shadows.commit_identity(settled, 1)) == 0
    assert slow.lost == []
    assert slow.shadows.commit_identity(settled, 1) == kept
