"""Connections to brokers: only for clients that have sent a request, in turns, a limited number for each broker."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

import pytest
from structlog.testing import capture_logs

from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.load.turns import Turns
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.sidecar.relay import broker_side, listeners
from muster.coordinator.sidecar.relay.connect_queue import CONNECTS_AT_ONCE, TLS_CONNECTS_AT_ONCE, ConnectQueue
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import ScriptedBroker, request, scripted_broker
from tests.simulation.virtual_time import simulate
from tests.waiting import until

NOBODYS = 9_999
IN_A_SLICE = 5


class Crowd:
    """Connection attempts that have started, each of which takes a part of a slice."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.turns = Turns(lambda: self._now_s)
        self.begun: list[Connect] = []

    def begin(self, connect: "Connect") -> None:
        self._now_s += SLICE_S / IN_A_SLICE
        self.begun.append(connect)


class Connect:
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    def take_turn(self) -> None:
        self._crowd.begin(self)


async def test_connects_begin_in_slices_whichever_brokers_they_are_to() -> None:
    crowd = Crowd()
    queues = [ConnectQueue(crowd.turns) for _ in range(4)]
    connects = [Connect(crowd) for _ in range(40)]
    for n, connect in enumerate(connects):
        queues[n % 4].wait(connect)
    for turn in range(1, 9):
        assert len(crowd.begun) == IN_A_SLICE * turn
        await asyncio.sleep(0)
    assert crowd.begun == connects


@pytest.mark.parametrize("at_once", [CONNECTS_AT_ONCE, TLS_CONNECTS_AT_ONCE])
async def test_concurrent_connects_to_a_broker_are_limited_and_served_in_order(at_once: int) -> None:
    crowd = Crowd()
    queue, other = (ConnectQueue(crowd.turns, at_once=at_once) for _ in range(2))
    connects = [Connect(crowd) for _ in range(at_once + 4)]
    for connect in connects:
        queue.wait(connect)
    await until(lambda: len(crowd.begun) == at_once)
    queue.leave(connects[at_once])  # its client has disconnected
    elsewhere = Connect(crowd)
    other.wait(elsewhere)
    queue.leave(connects[7])
    queue.leave(connects[3])
    await until(lambda: len(crowd.begun) == at_once + 3)
    assert crowd.begun == [*connects[:at_once], elsewhere, *connects[at_once + 1 :][:2]]


async def test_a_client_that_leaves_the_queue_gives_its_place_back() -> None:
    crowd = Crowd()
    queue = ConnectQueue(crowd.turns)
    connects = [Connect(crowd) for _ in range(CONNECTS_AT_ONCE + 1)]
    for connect in connects:
        queue.wait(connect)
    gone = connects[IN_A_SLICE:CONNECTS_AT_ONCE]
    for connect in gone:
        queue.leave(connect)
    await asyncio.sleep(0)
    assert crowd.begun == [*connects[:IN_A_SLICE], connects[-1]]


async def test_half_a_request_costs_the_broker_no_connection() -> None:
    """The rest of it does, and so does the start of a streamed one."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        half, long, other = [await relay.connect(1) for _ in range(3)]
        frame = request(NOBODYS, 0, 2)
        half.send(frame[:-1])
        await until(lambda: relay.metrics.bytes_received == len(frame) - 1)
        assert await other.ask(request(NOBODYS, 0, 1)) == b""
        assert len(broker.connections) == 1
        half.send(frame[-1:])
        assert await half.answer() == (2, b"")
        long.send(request(NOBODYS, 0, 1, bytes(100_000))[:50_000])
        await until(lambda: len(broker.connections) == 3)


async def test_bytes_that_are_not_a_request_open_no_broker_connection() -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        with capture_logs() as logged:
            client.send(b"\x16\x03\x01\x02\x00\x01")
            assert await client.rest() == b""
        assert [(line["event"], "TLS" in line["cause"]) for line in logged] == [("connection closed", True)]
        assert not broker.connections


@contextmanager
def a_broker_that_hangs() -> Iterator[ScriptedBroker]:
    """Its machine accepts one connection more, and does not respond to others."""
    hangs = socket.socket()
    hangs.bind(("127.0.0.1", 0))
    hangs.listen(0)
    port = hangs.getsockname()[1]
    with hangs, socket.create_connection(("127.0.0.1", port)):  # it accepts no more than that
        yield cast("ScriptedBroker", _At(port))


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "CONNECTS_AT_ONCE", 1)
    monkeypatch.setattr(broker_side, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(LogThrottle, "due", lambda *_: 0)  # each logs it


HANGS: Final = "no answer within 0.5 s"
BEHIND: Final = "none of 1 connection attempts succeeded within 0.5 s"


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_hanging_broker_delays_no_connect_to_others_and_is_reported_to_all_its_clients() -> None:
    """Those that waited behind others for the connect time-out are reported with them."""
    with a_broker_that_hangs() as hanging:
        async with scripted_broker() as broker, relaying({1: broker, 2: hanging}) as relay:
            waiting = [await relay.connect(2) for _ in range(3)]
            with capture_logs() as logged:
                for client in waiting:
                    client.send(request(NOBODYS, 0, 1))
                await until(lambda: relay.metrics.bytes_received == 3 * len(request(NOBODYS, 0, 1)))
                assert await (await relay.connect(1)).ask(request(NOBODYS, 0, 1)) == b""
                for client in waiting:
                    assert await client.rest() == b""
            assert relay.relayed.brokers_not_reached == 3
            # The second one gets its turn when the first one's time is over, or has waited for as long itself.
            assert {line["error"] for line in logged} == {HANGS, BEHIND}


def test_a_queued_connect_fails_if_none_before_it_succeeds() -> None:
    """However many are ahead: a queue in which attempts succeed one by one is no broker that hangs."""

    async def story() -> None:
        queue = ConnectQueue(Turns(), at_once=0)
        turn = broker_side._Turn()
        queue.wait(turn)
        waiting = asyncio.create_task(broker_side._wait_for_turn(turn, queue))
        for _ in range(10):
            await asyncio.sleep(6)
            queue.connected += 1
            assert not waiting.done()
        with pytest.raises(TimeoutError, match=r"none of 0 connection attempts succeeded within 10 s"):
            await waiting

    simulate(story())


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_hanging_broker_does_not_keep_clients_from_other_brokers() -> None:
    """A client that has waited for it behind others tries the next broker; later ones start there."""
    with a_broker_that_hangs() as hanging:
        async with scripted_broker() as broker, relaying({1: broker, 2: hanging}) as relay:
            clients = [await relay.connect(None) for _ in range(12)]
            for client in clients:
                client.send(request(NOBODYS, 0, 1))
            answers = [await client.answer() for client in clients]
            assert answers == [(1, b"")] * 12
            before = relay.relayed.brokers_not_reached
            stuck = await relay.connect(2)
            stuck.send(request(NOBODYS, 0, 1))
            await until(lambda: relay.metrics.bytes_received == 13 * len(request(NOBODYS, 0, 1)))
            for _ in range(4):
                assert await (await relay.connect(None)).ask(request(NOBODYS, 0, 1)) == b""
            assert relay.relayed.brokers_not_reached == before
            stuck.vanish()


async def test_fewer_connects_with_tls_are_under_way() -> None:
    """Their handshakes take the time."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    silent = cast("ScriptedBroker", _At(server.sockets[0].getsockname()[1]))
    async with server, relaying({1: silent}, broker_context=ssl.create_default_context()) as relay:
        for _ in range(TLS_CONNECTS_AT_ONCE + 4):
            (await relay.connect(1)).send(request(NOBODYS, 0, 1))
        await until(lambda: relay.metrics.bytes_received == (TLS_CONNECTS_AT_ONCE + 4) * len(request(NOBODYS, 0, 1)))
        await until(lambda: len(accepted) == TLS_CONNECTS_AT_ONCE)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(accepted) == TLS_CONNECTS_AT_ONCE
        for writer in accepted:
            writer.close()


@pytest.mark.parametrize("context", [None, ssl.create_default_context()], ids=["plain", "tls"])
@pytest.mark.parametrize("resets", [True, False])
async def test_a_broker_that_disconnects_is_not_unreachable(context: ssl.SSLContext | None, *, resets: bool) -> None:
    """It may have given all connections for our address to others, and still serve those; a closed port means
    unreachable.
    """

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if resets:
            writer.transport.abort()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    broker = cast("ScriptedBroker", _At(server.sockets[0].getsockname()[1]))
    async with relaying({1: broker}, broker_context=context) as relay:
        async with server:
            client = await relay.connect(1)
            client.send(request(NOBODYS, 0, 1))
            assert await client.rest() == b""
            assert relay.asked_to_look == 0
        client = await relay.connect(1)
        client.send(request(NOBODYS, 0, 1))
        assert await client.rest() == b""
        assert relay.asked_to_look == 1


class _At:
    def __init__(self, port: int) -> None:
        self.port = port


@pytest.mark.parametrize("connected", [0, 1, 2])
async def test_a_queued_connect_has_a_whole_timeout_however_many_have_connected(connected: int) -> None:
    """It is refused only if no attempt has succeeded since it was queued."""
    queue = ConnectQueue(Crowd().turns)
    queue.connected, turn = connected, broker_side._Turn()
    waiting = asyncio.create_task(broker_side._wait_for_turn(turn, queue))
    await asyncio.sleep(0)
    turn.take_turn()
    await waiting
