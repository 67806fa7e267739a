"""A proxy of the drill's own, which cuts and delays: between a process and its log's brokers, or before a process.

While it is cut, nothing passes in either direction, and nobody is told: bytes wait, as they do in a network that is
down, and go on when it is not. New connections are taken and hear nothing. A delayed answer leaves so much later than
it came; answers do not wait for each other.

Answers that name brokers are rewritten, so that whoever is behind the proxy reaches every broker through it: by the
sidecar's own rules (coordinator/sidecar/messages/rewriting.py).
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Final

from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.drills.errors import ServiceFailed
from muster.events.kafka.addresses import BrokerAddress
from muster.events.steps import finished

HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_START: Final = struct.Struct(">hhi")
"""API key, API version and correlation id, with which a request begins."""
_FRAMES_UNDER_WAY: Final = 1_000

_Frames = asyncio.Queue[tuple[float, bytes]]
_Asked = dict[int, tuple[int, int]]
"""The API and its version of each request that has no answer yet, by correlation id."""


class Weather:
    """How the network is for all proxies that share it: open or cut, and how slow."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._open = asyncio.Event()
        self._open.set()

    def cut(self) -> None:
        """Let nothing pass."""
        self._open.clear()

    def heal(self) -> None:
        """Let everything pass again, what has waited first."""
        self._open.set()

    async def passable(self) -> None:
        """Wait until it is not cut."""
        await self._open.wait()


class Proxy:
    """See the module. Close it in the end."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._ports: dict[BrokerAddress, int] = {}
        self._servers: list[asyncio.Task[asyncio.Server]] = []
        self._relays: set[asyncio.Task[None]] = set()
        self._rewriter: AnswerRewriter | None = None

    def before(self, address: BrokerAddress) -> str:
        """Relay to an address; returns the one to use instead. Raises ServiceFailed."""
        return f"{HOST}:{self._port_before(address)}"

    def before_brokers(self, bootstrap: tuple[BrokerAddress, ...]) -> str:
        """Relay to these brokers, and to each that they name; returns the addresses to use instead."""
        self._rewriter = AnswerRewriter(self._address_of, {})
        return ",".join(self.before(broker) for broker in bootstrap)

    async def close(self) -> None:
        """Close all connections and stop listening."""
        for server in await asyncio.gather(*self._servers):
            server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _address_of(self, _node_id: int, host: str, port: int) -> tuple[str, int]:
        return HOST, self._port_before(BrokerAddress(host, port))

    def _port_before(self, address: BrokerAddress) -> int:
        """The port that relays to an address; it takes connections from now on."""
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
        relay = asyncio.current_task()
        assert relay is not None
        self._relays.add(relay)
        writers = [down_writer]
        try:
            await self._weather.passable()
            up_reader, up_writer = await asyncio.open_connection(address.host, address.port)
            writers.append(up_writer)
            await self._relay((down_reader, down_writer), (up_reader, up_writer))
            await self._weather.passable()  # that a connection has ended is not heard over a network that is cut
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._relays.discard(relay)
            for writer in writers:
                writer.close()

    async def _relay(
        self,
        down: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        up: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Relay until one end closes."""
        asked: _Asked = {}
        requests: _Frames = asyncio.Queue(_FRAMES_UNDER_WAY)
        answers: _Frames = asyncio.Queue(_FRAMES_UNDER_WAY)
        parts = [
            asyncio.create_task(each)
            for each in (
                self._take(down[0], requests, lambda frame: _noted(frame, asked), is_delayed=False),
                self._give(requests, up[1]),
                self._take(up[0], answers, lambda frame: self._rewritten(frame, asked), is_delayed=True),
                self._give(answers, down[1]),
            )
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            for ended in await asyncio.gather(*parts, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, OSError | EOFError):
                    raise ended

    async def _take(
        self, reader: asyncio.StreamReader, frames: _Frames, read: Callable[[bytes], bytes], *, is_delayed: bool
    ) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
            frame = read(await reader.readexactly(size))
            await frames.put((now_s() + (self._weather.delay_s if is_delayed else 0.0), frame))

    async def _give(self, frames: _Frames, writer: asyncio.StreamWriter) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            due_s, frame = await frames.get()
            if (left_s := due_s - now_s()) > 0:
                await asyncio.sleep(left_s)
            await self._weather.passable()
            writer.writelines((_SIZE.pack(len(frame)), frame))
            await writer.drain()

    def _rewritten(self, frame: bytes, asked: _Asked) -> bytes:
        (correlation_id,) = _SIZE.unpack_from(frame)
        request = asked.pop(correlation_id, None)
        rewrite = None if self._rewriter is None or request is None else self._rewriter.of(*request)
        return frame if rewrite is None else frame[: _SIZE.size] + finished(rewrite(frame[_SIZE.size :]))


def _noted(frame: bytes, asked: _Asked) -> bytes:
    api_key, api_version, correlation_id = _START.unpack_from(frame)
    asked[correlation_id] = (api_key, api_version)
    return frame
