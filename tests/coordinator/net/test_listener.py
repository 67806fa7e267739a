"""Accepting clients, with either event loop: many within a few turns, and none that has disconnected."""

import asyncio
import socket
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import uvloop

from muster.coordinator.load.turns import Turns
from muster.coordinator.net import listener
from muster.coordinator.net.listener import PlainListener
from tests.waiting import until

CROWD = 3 * listener.ACCEPTED_AT_ONCE


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def on_that_loop(story: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(story)

    return on_that_loop


def connecting(port: int) -> socket.socket:
    """A client whose connect was started; the kernel completes it."""
    client = socket.socket()
    client.settimeout(0)
    client.connect_ex(("127.0.0.1", port))
    return client


def test_a_crowd_is_accepted_within_a_few_turns(run: Any) -> None:
    """A turn may be long: with one client in each, the last one would wait for seconds."""

    async def story() -> None:
        made: list[int] = []
        turns = 0

        class Client(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(turns)
                transport.abort()  # type: ignore[attr-defined]

        bound = socket.create_server(("127.0.0.1", 0), backlog=CROWD)
        clients = [connecting(bound.getsockname()[1]) for _ in range(CROWD)]
        accepting = PlainListener(bound, Client)
        while len(made) < CROWD:
            await asyncio.sleep(0)
            turns += 1
        accepting.close()
        for client in clients:
            client.close()
        # Either loop may poll sockets less often than it turns; no client waits behind all of the others.
        assert len(set(made)) <= CROWD // 8

    run(story())


def test_few_are_accepted_while_a_crowd_waits_for_its_turn(run: Any) -> None:
    """Otherwise a client that connects faster than it is served delays all others; at least one is always accepted."""

    async def story() -> None:
        made: list[int] = []
        waiting = Turns()

        class Client(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(1)
                if len(made) <= CROWD:
                    waiting.wait(Idle())

        class Idle:
            def take_turn(self) -> None:
                waiting.wait(self)

        bound = socket.create_server(("127.0.0.1", 0), backlog=3 * CROWD)
        clients = [connecting(bound.getsockname()[1]) for _ in range(2 * CROWD)]
        accepting = PlainListener(bound, Client, lambda: waiting.is_crowded)
        counts = [0]
        while len(made) < 2 * CROWD:
            await asyncio.sleep(0)
            counts.append(len(made))
        accepting.close()
        for client in clients:
            client.close()
        grown = [after - before for before, after in pairwise(counts) if before > 2 * listener.ACCEPTED_AT_ONCE]
        assert 0 < max(grown) <= 2 * listener.ACCEPTED_IN_CROWD

    run(story())


def test_a_disconnected_client_does_not_affect_others(run: Any) -> None:
    """It resets its connection before it is accepted."""

    async def story() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, failure: failures.append(failure))
        heard: list[bytes] = []

        class Client(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                heard.append(data)

        bound = socket.create_server(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        gone = connecting(port)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        gone.close()
        accepting = PlainListener(bound, Client)
        _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping")
        await until(lambda: heard == [b"ping"])
        writer.close()
        accepting.close()
        assert failures == []

    run(story())
