"""The proxy of a drill: it relays, cuts, heals, delays, and makes brokers reachable through it."""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muster.drills.service.process import HOST
from muster.drills.service.proxy import Proxy, Weather
from muster.events.kafka.addresses import BrokerAddress, read_address
from tests.coordinator.kio_client import frame, parse, with_length
from tests.waiting import until

SIZE = struct.Struct(">i")
BROKER = BrokerAddress("broker.example", 9092)


class Backend:
    """Receives frames, and answers each with the given response, or with its own correlation id."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.answer = b""
        self._server: asyncio.Server
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> BrokerAddress:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return BrokerAddress(HOST, self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(4))
                taken = await reader.readexactly(size)
                self.taken.append(taken)
                answer = taken[4:8] + self.answer
                writer.write(SIZE.pack(len(answer)) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.close()

    async def close(self) -> None:
        self.hang_up()
        self._server.close()


class Client:
    """One connection; `heard` has the responses so far, without their correlation ids."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.is_over = False

    async def connect(self, address: str) -> "Client":
        at = read_address(address)
        reader, self._writer = await asyncio.open_connection(at.host, at.port)
        self._reading = asyncio.create_task(self._read(reader))
        return self

    def send(self, name: str = "ListGroups", version: int = 0, *, correlation_id: int = 7, **body: Any) -> None:
        self._writer.write(with_length(frame(name, version, correlation_id=correlation_id, **body)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(4))
                self.heard.append((await reader.readexactly(size))[4:])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_over = True

    async def close(self) -> None:
        self._writer.close()
        await self._reading


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = Backend()
    yield backend
    await backend.close()


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
async def proxy(weather: Weather) -> AsyncIterator[Proxy]:
    proxy = Proxy(weather)
    yield proxy
    await proxy.close()


async def test_frames_pass_both_ways(backend: Backend, proxy: Proxy) -> None:
    """Unchanged."""
    client = await Client().connect(proxy.before(await backend.start()))
    backend.answer = b"an answer"
    client.send()
    await until(lambda: client.heard == [b"an answer"])
    assert backend.taken == [frame("ListGroups", 0, correlation_id=7)]
    await client.close()


async def test_while_it_is_cut_nothing_passes_and_afterwards_all_does(
    backend: Backend, proxy: Proxy, weather: Weather
) -> None:
    """Both on an existing connection and on one made meanwhile; no connection is closed."""
    address = proxy.before(await backend.start())
    old = await Client().connect(address)
    old.send()
    await until(lambda: len(old.heard) == 1)
    weather.cut()
    old.send()
    new = await Client().connect(address)
    new.send()
    with pytest.raises(TimeoutError):
        await until(lambda: len(backend.taken) > 1 or old.heard[1:] or new.heard or new.is_over, within_s=0.2)
    weather.heal()
    await until(lambda: (len(old.heard), len(new.heard)) == (2, 1))
    for client in (old, new):
        await client.close()


async def test_the_end_of_a_connection_is_not_noticed_while_it_is_cut(
    backend: Backend, proxy: Proxy, weather: Weather
) -> None:
    """Only when the network is healed."""
    client = await Client().connect(proxy.before(await backend.start()))
    client.send()
    await until(lambda: len(client.heard) == 1)
    weather.cut()
    backend.hang_up()
    with pytest.raises(TimeoutError):
        await until(lambda: client.is_over, within_s=0.2)
    weather.heal()
    await until(lambda: client.is_over)


async def test_answers_come_later_and_do_not_wait_for_each_other(
    backend: Backend, proxy: Proxy, weather: Weather
) -> None:
    """Ten delayed responses are all there after little more than one delay."""
    client = await Client().connect(proxy.before(await backend.start()))
    weather.delay_s = 0.3
    now_s = asyncio.get_running_loop().time
    begin_s = now_s()
    for _ in range(10):
        client.send()
    await until(lambda: len(backend.taken) == 10)
    assert client.heard == []
    await until(lambda: len(client.heard) == 10)
    assert now_s() - begin_s >= 0.3
    weather.delay_s = 0.0
    await client.close()


async def test_requests_are_not_late(backend: Backend, proxy: Proxy, weather: Weather) -> None:
    """However late their responses are: an hour, so this test sees none."""
    client = await Client().connect(proxy.before(await backend.start()))
    weather.delay_s = 3_600
    client.send()
    await until(lambda: len(backend.taken) == 1)
    assert client.heard == []
    await client.close()


async def test_a_disconnect_is_passed_on_to_the_other_end(backend: Backend, proxy: Proxy) -> None:
    client = await Client().connect(proxy.before(await backend.start()))
    client.send()
    await until(lambda: len(client.heard) == 1)
    backend.hang_up()
    await until(lambda: client.is_over)


async def test_a_connection_to_a_closed_port_ends(proxy: Proxy) -> None:
    client = await Client().connect(proxy.before(BrokerAddress(HOST, 1)))
    await until(lambda: client.is_over)


async def test_brokers_that_an_answer_names_are_reached_through_it(backend: Backend, proxy: Proxy) -> None:
    """Each broker has its own port there, the same in every response."""
    (address,) = proxy.before_brokers((await backend.start(),)).split(",")
    client = await Client().connect(address)
    backend.answer = _coordinator(BROKER)
    for correlation_id in (8, 9):
        client.send("FindCoordinator", 3, correlation_id=correlation_id, key="orders", key_type=0)
    await until(lambda: len(client.heard) == 2)
    first, second = (parse("FindCoordinator", 3, heard) for heard in client.heard)
    assert (first.host, first.port) == (second.host, second.port)
    assert first.host == HOST
    assert first.port not in (BROKER.port, read_address(address).port)
    assert proxy.before(BROKER) == f"{first.host}:{first.port}"
    await client.close()


def _coordinator(broker: BrokerAddress) -> bytes:
    """A FindCoordinator v3 response, after the correlation id."""
    host = broker.host.encode()
    fields = struct.pack(">iH", 0, 0) + b"\x00" + struct.pack(">i", 1)  # throttle time, error, no message, node id
    return b"\x00" + fields + bytes((len(host) + 1,)) + host + struct.pack(">i", broker.port) + b"\x00"
