"""Commits that wait while their group's shadow is out, and commits that a shadow waits for before it leaves."""

import asyncio
import gc

import pytest

from muster.coordinator.sidecar.groups import in_flight_commits
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.events.ids import GroupId
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import WithheldResponses, scripted_broker
from tests.waiting import until

ORDERS, CLICKS = GroupId("orders"), GroupId("clicks")
HEARTBEAT = 12


def connection() -> asyncio.Future[None]:
    """A connection to a broker, until it is lost."""
    return asyncio.get_running_loop().create_future()


async def _holding(commits: InFlightCommits, entered: asyncio.Event, leave: asyncio.Event) -> None:
    async with commits.paused(ORDERS):
        entered.set()
        await leave.wait()


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_block_begins_when_the_groups_commits_are_answered() -> None:
    """Those of other groups are not awaited; the response is passed on unchanged."""
    commits, entered, leave = InFlightCommits(), asyncio.Event(), asyncio.Event()
    answered = commits.track(ORDERS, connection())
    others = commits.track(CLICKS, connection())
    holding = asyncio.create_task(_holding(commits, entered, leave))
    await _turns()
    assert not entered.is_set()
    assert commits.is_paused(ORDERS)
    assert not commits.is_paused(CLICKS)
    assert answered(b"answer") == b"answer"
    await _turns()
    assert entered.is_set()
    leave.set()
    await holding
    assert others(b"answer") == b"answer"


async def test_commits_wait_until_the_last_block_ends() -> None:
    """Two blocks at once: the commit continues after both."""
    commits = InFlightCommits()
    leaves = [asyncio.Event(), asyncio.Event()]
    blocks = [asyncio.create_task(_holding(commits, asyncio.Event(), leave)) for leave in leaves]
    await _turns()
    waiting = asyncio.create_task(commits.wait_resumed(ORDERS))
    for leave, block in zip(leaves, blocks, strict=True):
        await _turns()
        assert not waiting.done()
        leave.set()
        await block
    await waiting
    assert not commits.is_paused(ORDERS)


async def test_a_commit_waits_no_longer_than_its_limit() -> None:
    """Even if a block never ends."""
    commits, entered, leave = InFlightCommits(resume_timeout_s=0.01), asyncio.Event(), asyncio.Event()
    holding = asyncio.create_task(_holding(commits, entered, leave))
    await entered.wait()
    async with asyncio.timeout(20) as limit:
        with pytest.raises(TimeoutError):
            await commits.wait_resumed(ORDERS)
    assert not limit.expired()
    leave.set()
    await holding


async def test_a_block_waits_no_longer_than_its_limit_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may never answer one."""
    monkeypatch.setattr(in_flight_commits, "COMMIT_TIMEOUT_S", 0.01)
    commits, entered, leave = InFlightCommits(), asyncio.Event(), asyncio.Event()
    broker_lost = connection()
    unanswered = commits.track(ORDERS, broker_lost)
    holding = asyncio.create_task(_holding(commits, entered, leave))
    async with asyncio.timeout(20):
        await entered.wait()
    assert unanswered(b"late") == b"late"
    leave.set()
    await holding


async def test_a_commit_is_over_when_the_brokers_connection_is_lost() -> None:
    """Even while it is awaited: it will get no response."""
    commits, entered, leave = InFlightCommits(), asyncio.Event(), asyncio.Event()
    lost_before, lost_meanwhile = connection(), connection()
    for place in (lost_before, lost_meanwhile):
        commits.track(ORDERS, place)
    lost_before.set_result(None)
    holding = asyncio.create_task(_holding(commits, entered, leave))
    await _turns()
    assert not entered.is_set()
    lost_meanwhile.set_result(None)
    await _turns()
    assert entered.is_set()
    leave.set()
    await holding


async def test_finished_commits_take_no_memory() -> None:
    """Neither here nor at the connection, which may last for weeks."""
    commits, place = InFlightCommits(), connection()
    answered = commits.track(ORDERS, place)
    assert len(commits._commits) == 1
    answered(b"answer")
    del answered
    gc.collect()
    assert not commits._commits


async def test_a_commit_relayed_to_the_broker_is_in_flight_after_the_client_is_gone() -> None:
    """Its bytes may not have arrived yet: the broker's connection stays until it has responded."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, HEARTBEAT)
        client = await relay.connect(1)
        client.send(with_length(frame("Heartbeat", 3, group_id="theirs", generation_id=1, member_id="m")))
        await until(lambda: held.asked)
        (side,) = relay.listening.connections
        client.close()
        await until(lambda: not relay.listening.connections)
        assert side.is_open()
        assert not side.broker_lost.done()
        held.asked[0].answer(bytes(6))
        await until(side.broker_lost.done)


async def test_a_broker_that_hangs_up_is_lost() -> None:
    """Waiting requests get an error."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        client.send(with_length(frame("Heartbeat", 3, group_id="theirs", generation_id=1, member_id="m")))
        held = WithheldResponses(broker, HEARTBEAT)
        await until(lambda: held.asked)
        (side,) = relay.listening.connections
        assert not side.broker_lost.done()
        broker.connections[0].hang_up()
        await until(side.broker_lost.done)
        assert await client.rest() == b""
