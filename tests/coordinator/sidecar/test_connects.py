"""Connects to brokers: only for whoever has sent a request, in turns, so many at a time for each broker."""

import asyncio
import socket
from typing import cast

import pytest
from structlog.testing import capture_logs

from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.load.turns import Turns
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.sidecar.relay import broker_side, listeners
from muster.coordinator.sidecar.relay.connect_queue import CONNECTS_AT_ONCE, TLS_CONNECTS_AT_ONCE, ConnectQueue
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import ScriptedBroker, request, scripted_broker
from tests.waiting import until

NOBODYS = 9_999
IN_A_SLICE = 5


class Crowd:
    """Connects that have begun, each of which took a part of a slice."""

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
async def test_so_many_are_under_way_to_a_broker_and_who_came_first_is_next(at_once: int) -> None:
    crowd = Crowd()
    queue, other = (ConnectQueue(crowd.turns, at_once=at_once) for _ in range(2))
    connects = [Connect(crowd) for _ in range(at_once + 4)]
    for connect in connects:
        queue.wait(connect)
    await until(lambda: len(crowd.begun) == at_once)
    queue.leave(connects[at_once])  # its client has gone
    elsewhere = Connect(crowd)
    other.wait(elsewhere)
    queue.leave(connects[7])
    queue.leave(connects[3])
    await until(lambda: len(crowd.begun) == at_once + 3)
    assert crowd.begun == [*connects[:at_once], elsewhere, *connects[at_once + 1 :][:2]]


async def test_who_goes_before_its_turn_gives_its_place_back() -> None:
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
    """Its rest does, and so does the beginning of one that is long."""
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


async def test_what_is_no_request_costs_the_broker_no_connection() -> None:
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        with capture_logs() as logged:
            client.send(b"\x16\x03\x01\x02\x00\x01")
            assert await client.rest() == b""
        assert [(line["event"], "TLS" in line["cause"]) for line in logged] == [("connection closed", True)]
        assert not broker.connections


async def test_a_broker_that_hangs_delays_nobody_elses_connect_and_is_told_to_all_of_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those who waited behind others for as long as a connect may take are told with them."""
    monkeypatch.setattr(listeners, "CONNECTS_AT_ONCE", 1)
    monkeypatch.setattr(broker_side, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(LogThrottle, "due", lambda *_: 0)  # each says it
    hangs = socket.socket()
    hangs.bind(("127.0.0.1", 0))
    hangs.listen(0)
    port = hangs.getsockname()[1]
    with hangs, socket.create_connection(("127.0.0.1", port)):  # and that is all that it takes
        hanging = cast("ScriptedBroker", _At(port))
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
            waited = "1 connects to it have taken"
            assert [line["error"][: len(waited)] for line in logged] == ["no answer within 0.5 s", waited, waited]


class _At:
    def __init__(self, port: int) -> None:
        self.port = port
