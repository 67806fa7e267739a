"""The drill's proxy, in front of a process or of the brokers of its log: it cuts and delays connections.

While the network is cut, nothing passes in either direction; bytes and new connections wait, as they do in a network
that is down, and continue when it is healed. Each delayed response is forwarded that much later than it arrived, so
delays do not add up. Responses that list brokers are rewritten by the sidecar's own rules, so that every broker is
reached through the proxy.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Final

from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.drills.plan import ServiceFailed
from muster.drills.service.process import HOST
from muster.events.kafka.addresses import BrokerAddress
from muster.events.steps import finished

_CHUNK: Final = 1 << 16
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">hhi")
"""The start of a request: API key, API version and correlation id."""
_UNDER_WAY: Final = 1_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Asked = dict[int, tuple[int, int]]
"""The API key and version of each unanswered request, by correlation id."""


class Weather:
    """The state of the network for all relays that share this object: open or cut, and how slow."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def cut(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def heal(self) -> None:
        """Let everything pass again, starting with what has waited."""
        self._open.set()

    async def passable(self) -> None:
        """Wait while the network is cut."""
        await self._open.wait()


async def relay(down: Streams, up: Streams, weather: Weather, rewriter: AnswerRewriter | None) -> None:
    """Relay until one end closes, and forward all that it sent. Without a rewriter, any protocol can be relayed."""
    asked: _Asked = {}
    requests = _chunks(down[0]) if rewriter is None else _noted(_frames(down[0]), asked)
    answers = _chunks(up[0]) if rewriter is None else _rewritten(_frames(up[0]), asked, rewriter)
    parts = [
        asyncio.create_task(_pass(requests, up[1], weather, is_delayed=False)),
        asyncio.create_task(_pass(answers, down[1], weather, is_delayed=True)),
    ]
    try:
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in parts:
            part.cancel()
        for ended in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, OSError):
                raise ended
    await weather.passable()  # while the network is cut, the other end must not see that the connection has ended


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await reader.read(_CHUNK):
        yield chunk


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole messages, each preceded by its size."""
    while True:
        size = await reader.readexactly(_SIZE.size)
        yield size + await reader.readexactly(_SIZE.unpack(size)[0])


async def _noted(frames: AsyncIterator[bytes], asked: _Asked) -> AsyncIterator[bytes]:
    async for frame in frames:
        api_key, api_version, correlation_id = _START.unpack_from(frame, _SIZE.size)
        asked[correlation_id] = (api_key, api_version)
        yield frame


async def _rewritten(frames: AsyncIterator[bytes], asked: _Asked, rewriter: AnswerRewriter) -> AsyncIterator[bytes]:
    async for frame in frames:
        (correlation_id,) = _SIZE.unpack_from(frame, _SIZE.size)
        request = asked.pop(correlation_id, None)
        rewrite = None if request is None else rewriter.of(*request)
        if rewrite is None:
            yield frame
        else:
            body = finished(rewrite(frame[2 * _SIZE.size :]))
            yield _SIZE.pack(_SIZE.size + len(body)) + frame[_SIZE.size : 2 * _SIZE.size] + body


async def _pass(
    pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, weather: Weather, *, is_delayed: bool
) -> None:
    """Forward all pieces, each with its own delay: a late piece does not delay the following ones any further."""
    now_s = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(_UNDER_WAY)

    async def take() -> None:
        try:
            async for piece in pieces:
                await waiting.put((now_s() + (weather.delay_s if is_delayed else 0.0), piece))
        except (EOFError, OSError):
            pass
        except Exception:
            await waiting.put(None)
            raise
        await waiting.put(None)

    taking = asyncio.create_task(take())
    try:
        while (next_one := await waiting.get()) is not None:
            due_s, piece = next_one
            if (left_s := due_s - now_s()) > 0:
                await asyncio.sleep(left_s)
            await weather.passable()
            writer.write(piece)
            await writer.drain()
        await taking
    finally:
        taking.cancel()


class Proxy:
    """Listens in front of one or more brokers, or of a process. Must be closed."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._ports: dict[BrokerAddress, int] = {}
        self._servers: list[asyncio.Task[asyncio.Server]] = []
        self._relays: set[asyncio.Task[None]] = set()
        self._rewriter: AnswerRewriter | None = None

    def before(self, address: BrokerAddress) -> str:
        """Relay to an address; return the address to use instead. Raises ServiceFailed."""
        return f"{HOST}:{self._port_before(address)}"

    def before_brokers(self, bootstrap: tuple[BrokerAddress, ...]) -> str:
        """Relay to these brokers, and to all that their responses list; return the addresses to use instead."""
        self._rewriter = AnswerRewriter(self._address_of, {})
        return ",".join(self.before(broker) for broker in bootstrap)

    async def close(self) -> None:
        """Close all connections and stop listening."""
        for server in await asyncio.gather(*self._servers):
            server.close()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _address_of(self, _node_id: int, host: str, port: int) -> tuple[str, int]:
        return HOST, self._port_before(BrokerAddress(host, port))

    def _port_before(self, address: BrokerAddress) -> int:
        """Return the port that relays to an address; it accepts connections from now on."""
        if address not in self._ports:
            try:
                listening = socket.create_server((HOST, 0))
            except OSError as error:
                raise ServiceFailed(f"the drill's proxy cannot listen on {HOST}: {error.strerror}") from error

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(reader, writer, address)

            self._ports[address] = listening.getsockname()[1]
            self._servers.append(asyncio.create_task(asyncio.start_server(serve, sock=listening)))
        return self._ports[address]

    # ---- relaying -----------------------------------------------------------------------------------

    async def _serve(
        self, down_reader: asyncio.StreamReader, down_writer: asyncio.StreamWriter, address: BrokerAddress
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        writers = [down_writer]
        try:
            await self._weather.passable()
            up_reader, up_writer = await asyncio.open_connection(address.host, address.port)
            writers.append(up_writer)
            await relay((down_reader, down_writer), (up_reader, up_writer), self._weather, self._rewriter)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._relays.discard(task)
            for writer in writers:
                writer.close()
