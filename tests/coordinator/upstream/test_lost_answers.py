"""The connection breaks after the broker has executed a shadow's request, so the outcome is unknown."""

from collections.abc import AsyncIterator

import pytest

from muster.coordinator.upstream.shadow_driver import PARKED_JOINS_MAX
from tests.brokers.broker import Broker
from tests.coordinator.upstream.stage import NAME, Direct, Process, new_group, process
from tests.events.log.kafka_proxy import BrokerProxy
from tests.waiting import until

pytestmark = pytest.mark.broker

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14


@pytest.fixture
async def proxy(kafka_broker: Broker) -> AsyncIterator[BrokerProxy]:
    """A proxy between the process and the broker."""
    started = BrokerProxy(kafka_broker.bootstrap)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def behind(proxy: BrokerProxy) -> AsyncIterator[Process]:
    """A process that reaches its broker through the proxy, with frequent heartbeats."""
    async with process(proxy.address, heartbeat_interval_ms=200) as started:
        yield started


@pytest.mark.parametrize("lost", [(JOIN,), (SYNC,), (JOIN, SYNC)])
async def test_the_answers_to_a_bump_are_lost(
    proxy: BrokerProxy, behind: Process, direct: Direct, lost: tuple[int, ...]
) -> None:
    """It is bumped all the same; commits of the previous generation are refused, those of the new one accepted."""
    group_id = new_group()
    before = await behind.own(group_id)
    for api_key in lost:
        proxy.lose_answers(api_key, 1)
    bumped = await behind.bump_to(group_id, 2)
    assert bumped.generation_id > before.generation_id
    assert await direct.commit(group_id, before) in {22, 82}
    assert await direct.commit(group_id, bumped) == 0
    assert len(await direct.members(group_id)) == 1
    assert behind.lost == []


async def test_the_answer_to_the_first_join_is_lost(proxy: BrokerProxy, behind: Process, direct: Direct) -> None:
    """The next join replaces it: there is one member."""
    group_id = new_group()
    proxy.lose_answers(JOIN, 1)
    identity = await behind.own(group_id)
    assert await direct.members(group_id) == [(NAME.group_instance_id, identity.member_id)]
    assert await direct.commit(group_id, identity) == 0


async def test_a_shadow_whose_joins_were_never_answered_leaves(
    proxy: BrokerProxy, behind: Process, direct: Direct
) -> None:
    """It leaves by its instance id, since its member id is unknown."""
    group_id = new_group()
    proxy.lose_answers(JOIN, float("inf"))
    assert await behind.shadows.take(group_id) is None
    await until(lambda: proxy.requests.count(JOIN) == 5)  # by now the pauses are long, and no join is in flight:
    await until(lambda: len(behind.shadows._driver._parked._free) == PARKED_JOINS_MAX)
    behind.shadows.update_generation(group_id, generation_id=0, is_wanted=False)
    async with behind.shadows.withdrawn(group_id):
        assert await direct.members(group_id) == []


async def test_the_answer_to_a_leave_is_lost(proxy: BrokerProxy, behind: Process, direct: Direct) -> None:
    """It has left, and nothing remains."""
    group_id = new_group()
    await behind.own(group_id)
    proxy.lose_answers(LEAVE, 1)
    async with behind.shadows.withdrawn(group_id):
        assert await direct.members(group_id) == []
    assert proxy.requests.count(LEAVE) == 2


async def test_the_answers_to_heartbeats_are_lost(proxy: BrokerProxy, behind: Process, direct: Direct) -> None:
    """Nothing changes; they are sent again."""
    group_id = new_group()
    identity = await behind.own(group_id)
    proxy.lose_answers(HEARTBEAT, 3)
    await until(lambda: proxy.requests.count(HEARTBEAT) >= 5)
    assert behind.shadows.commit_identity(group_id, 1) == identity
    assert await direct.commit(group_id, identity) == 0
