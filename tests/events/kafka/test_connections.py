"""Connections to brokers: when one counts as lost, and what is remembered about an address."""

import asyncio
import socket
from contextlib import suppress
from functools import partial

import pytest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import AnswerLost, LinkError, TryAgain
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import NOT_SECURED
from tests.coordinator.upstream.fake_broker import fake_broker, heartbeat
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.faults.process import seconds, story
from tests.waiting import until

METADATA, HEARTBEAT = 3, 12


def question(group_id: str) -> Exchange[HeartbeatResponse]:
    """A request that changes nothing: the group is empty."""
    return Exchange(heartbeat(group_id), HeartbeatResponse)


def unexplained(address: BrokerAddress, error: Exception) -> LinkError:
    """Whatever fails may be tried again."""
    return TryAgain(f"{address}: {error}")


async def test_an_address_with_waiters_is_not_forgotten() -> None:
    """A connection that is opened there has to be found when all are closed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = BrokerAddress("127.0.0.1", silent.getsockname()[1])
        connections = Connections(NOT_SECURED, connect_timeout_ms=100, explain=unexplained)
        pending = asyncio.create_task(connections.ask(place, question("g"), lane=0, timeout_ms=100))
        await until(lambda: place in connections._known)
        connections.forget_others(())
        assert place in connections._known
        with pytest.raises(TryAgain):
            await pending
        connections.forget_others(())
        assert place not in connections._known
        await connections.close()


@pytest.mark.parametrize("ended_by", ["us", "the broker"])
@story
async def test_a_connection_counts_as_lost_when_the_broker_ends_it(ended_by: str) -> None:
    """A connection that we close ourselves says nothing about the cluster."""
    broker, lost = SimulatedBroker(1), list[None]()
    connections = Connections(
        NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained, lost=lambda: lost.append(None)
    )
    (place,) = read_servers(broker.address)
    await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    if ended_by == "us":
        connections.hang_up(place, lambda lane: lane == 0)
    else:
        broker.leave()
    await asyncio.sleep(1)
    assert len(lost) == (ended_by == "the broker")
    await connections.close()


@story
async def test_an_unused_connection_is_not_a_lost_one() -> None:
    """It breaks while its broker's cluster is looked up."""
    broker, lost = SimulatedBroker(1), list[None]()
    connections = Connections(
        NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained, lost=lambda: lost.append(None)
    )
    (place,) = read_servers(broker.address)
    connections.cluster_id = "another"
    pending = asyncio.create_task(connections.ask(place, question("g"), lane=0, timeout_ms=60_000))
    broker.silent_at = METADATA
    await asyncio.sleep(0.5)
    assert broker.connections == 1
    broker.leave()
    with pytest.raises(TryAgain) as raised:
        await pending
    assert not isinstance(raised.value, AnswerLost)
    assert not lost
    await connections.close()


async def test_a_connection_from_before_the_cluster_was_known_is_checked_when_it_is() -> None:
    """One of several addresses may lead to another cluster, and be connected to first. Its cluster is looked up
    once.
    """
    async with fake_broker() as broker:
        connections = Connections(NOT_SECURED, connect_timeout_ms=10_000, explain=unexplained)
        (place,) = read_servers(broker.address)

        async def ask() -> None:
            await connections.ask(place, question("g"), lane=0, timeout_ms=10_000)

        await ask()
        connections.cluster_id, broker.asked = broker.cluster_id, []
        await ask()
        await ask()
        assert broker.asked == [METADATA, HEARTBEAT, HEARTBEAT]
        assert broker.connections == 1
        await connections.close()


async def test_a_connection_from_before_the_cluster_was_known_may_be_to_another_one() -> None:
    async with fake_broker() as broker:
        connections = Connections(NOT_SECURED, connect_timeout_ms=10_000, explain=unexplained)
        (place,) = read_servers(broker.address)
        await connections.ask(place, question("g"), lane=0, timeout_ms=10_000)
        connections.cluster_id, broker.asked = "ours", []
        with pytest.raises(TryAgain, match="a broker of cluster fake, and cluster ours was expected"):
            await connections.ask(place, question("g"), lane=0, timeout_ms=10_000)
        assert broker.asked == [METADATA]
        await connections.close()


@story
async def test_a_waiter_is_notified_at_once_when_its_connection_closes() -> None:
    """Only in that lane; connections being opened in others continue."""
    broker = SimulatedBroker(1)
    broker.is_hung = True
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=60_000, explain=unexplained)
    left, kept = (
        asyncio.create_task(connections.ask(place, question("g"), lane=lane, timeout_ms=60_000)) for lane in "ab"
    )
    await asyncio.sleep(1)
    connections.hang_up(place, lambda lane: lane == "a")
    with pytest.raises(TryAgain, match="closed before it was established"):
        await asyncio.wait_for(left, 1)
    assert not kept.done()
    await asyncio.wait_for(connections.close(), 1)
    with pytest.raises(TryAgain):
        await kept


@story
async def test_a_timeout_names_the_limit_that_ended() -> None:
    """A request that may take less than a connection ends the attempt to connect; or the wait for the answer."""
    broker = SimulatedBroker(1)
    broker.is_hung = True
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=60_000, explain=unexplained)
    with pytest.raises(TryAgain, match=r"did not answer within 0\.5 s"):
        await connections.ask(place, question("g"), lane=0, timeout_ms=500)
    broker.is_hung = False
    await asyncio.sleep(60)  # the address is tried again
    await connections.ask(place, question("g"), lane=1, timeout_ms=1_500)
    broker.is_hung = True
    with pytest.raises(AnswerLost, match=r"did not answer within 1\.5 s"):
        await connections.ask(place, question("g"), lane=1, timeout_ms=1_500)
    await connections.close()


@story
async def test_a_request_right_after_a_failure_gets_the_same_error_with_its_cause() -> None:
    """So that all callers report the same error."""
    (place,) = read_servers("broker:1")
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    reported = []
    for lane in range(2):
        with pytest.raises(TryAgain) as raised:
            await connections.ask(place, question("g"), lane=lane, timeout_ms=1_000)
        reported.append((str(raised.value), raised.value.__cause__))
    assert reported[0] == reported[1]
    assert isinstance(reported[0][1], ConnectionRefusedError)
    await connections.close()


@story
async def test_a_sender_is_notified_when_the_request_was_sent() -> None:
    """Not where it could not be sent."""
    broker = SimulatedBroker(1)
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    left: list[str] = []
    for address in (broker.address, "nobody:1"):
        (place,) = read_servers(address)
        with suppress(TryAgain):
            await connections.ask(place, question("g"), lane=0, timeout_ms=500, sent=partial(left.append, address))
    assert left == [broker.address]
    await connections.close()


@pytest.mark.parametrize("was_answered", [False, True])
@story
async def test_a_broker_that_hangs_up_may_want_something_unless_it_has_answered(was_answered: bool) -> None:
    """Then it has let us in, and may be restarting: what it may want would mislead."""
    broker, explained = SimulatedBroker(1), list[Exception]()

    def explain(address: BrokerAddress, error: Exception) -> LinkError:
        explained.append(error)
        return unexplained(address, error)

    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=explain)
    if was_answered:
        await connections.ask(place, question("g"), lane=0, timeout_ms=60_000)
    broker.silent_at = HEARTBEAT
    pending = asyncio.create_task(connections.ask(place, question("g"), lane=0, timeout_ms=60_000))
    await asyncio.sleep(0.5)
    broker.leave()
    with pytest.raises(TryAgain):
        await pending
    assert [type(error) for error in explained] == ([] if was_answered else [AnswerLost])
    await connections.close()


async def test_a_server_that_disconnects_on_describe_cluster_may_require_credentials_unless_it_has_responded() -> None:
    """The connection is from before the cluster was known, so it has let us in."""
    explained = list[Exception]()

    def explain(address: BrokerAddress, error: Exception) -> LinkError:
        explained.append(error)
        return unexplained(address, error)

    async with fake_broker() as broker:
        connections = Connections(NOT_SECURED, connect_timeout_ms=10_000, explain=explain)
        (place,) = read_servers(broker.address)
        await connections.ask(place, question("g"), lane="open", timeout_ms=10_000)
        connections.cluster_id, broker.hangs_up_at = "fake", METADATA
        with pytest.raises(TryAgain, match=broker.address):
            await connections.ask(place, question("g"), lane="open", timeout_ms=10_000)
        assert explained == []
        await connections.close()


@story
async def test_concurrent_connects_to_a_broker_are_limited_to_sixteen() -> None:
    """Thousands of lanes may ask at once; the waiting ones are served when the broker responds."""
    broker = SimulatedBroker(1)
    broker.is_hung = True
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=60_000, explain=unexplained)
    requested = [
        asyncio.create_task(connections.ask(place, question("g"), lane=lane, timeout_ms=60_000)) for lane in range(40)
    ]
    await asyncio.sleep(1)
    assert broker.connections == 16
    broker.leave()
    broker.is_hung = False
    broker.come_back()
    await asyncio.gather(*requested, return_exceptions=True)
    await asyncio.sleep(1)
    for lane in range(40):
        await connections.ask(place, question("g"), lane=lane, timeout_ms=60_000)
    await connections.close()


@story
async def test_an_address_that_failed_is_tried_again_after_a_tenth_of_a_second() -> None:
    """Until then callers get the same error."""
    (place,) = read_servers("broker:1")
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    with pytest.raises(TryAgain):
        await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    SimulatedBroker(1)
    await asyncio.sleep(0.09)
    with pytest.raises(TryAgain):
        await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    await asyncio.sleep(0.02)
    await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    await connections.close()


@story
async def test_a_connection_that_cannot_be_flushed_holds_up_no_end() -> None:
    """An append of megabytes to a broker that does not read: its connection closes when the last byte is sent."""
    broker = SimulatedBroker(1)
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    (connection,) = connections._known[place].lanes.values()
    flushed, close = asyncio.get_running_loop().create_future(), connection.close
    connection.close = lambda: close() and flushed
    began = seconds()
    await connections.close()
    assert seconds() - began == pytest.approx(1)


@story
async def test_closing_waits_for_what_is_being_sent() -> None:
    """It may be our LeaveGroup; the wait lasts as long as a broker may take to read it."""
    broker = SimulatedBroker(1)
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    for lane in range(2):
        await connections.ask(place, question("g"), lane=lane, timeout_ms=1_000)
    loop = asyncio.get_running_loop()
    flushed: list[asyncio.Future[None]] = []
    for number, connection in enumerate(connections._known[place].lanes.values(), 1):
        flushed.append(loop.create_future())
        connection.close = lambda close=connection.close, last=flushed[-1]: close() and last
        loop.call_later(0.3 * number, flushed[-1].set_result, None)
    await connections.close()
    assert all(each.done() for each in flushed)


@story
async def test_a_connection_that_accepts_no_more_bytes_is_closed() -> None:
    """The request has not left, and may be sent on another one, which the next question finds."""
    broker = SimulatedBroker(1)
    (place,) = read_servers(broker.address)
    connections = Connections(NOT_SECURED, connect_timeout_ms=1_000, explain=unexplained)
    await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    requested = broker.asked.count(HEARTBEAT)
    broker.open[0].is_refusing_writes = True
    with pytest.raises(TryAgain) as raised:
        await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    assert not isinstance(raised.value, AnswerLost)
    assert broker.asked.count(HEARTBEAT) == requested
    await asyncio.sleep(1)
    await connections.ask(place, question("g"), lane=0, timeout_ms=1_000)
    assert (broker.asked.count(HEARTBEAT), broker.connections) == (requested + 1, 2)
    await connections.close()
