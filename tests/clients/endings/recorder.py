"""A forwarder in front of the coordinator that records requests and how connections end.

It handles sockets, and knows nothing of the acts.

It sees what the coordinator would see, through the same calls: the end of the stream is a FIN, a reset is a reset, and
a peer that is cut off gives no sign. It forwards each end unchanged, so that the coordinator behind it sees the same.
It runs in its own thread; its records only grow.
"""

import asyncio
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum, unique
from typing import Final, cast

import msgspec

from tests.clients.endings.frames import Frames, SeenRequest, correlation_of, read_answer, read_request

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_LENGTH_BYTES: Final = 4


@unique
class Ended(StrEnum):
    """How the client's side of a connection ended."""

    FIN = "FIN"
    RST = "RST"


class SeenConnection(msgspec.Struct, kw_only=True):
    """One connection. Times are ms of the recorder's clock (`now_ms`)."""

    number: int
    opened_ms: float
    requests: list[SeenRequest] = []
    ended: Ended | None = None
    ended_ms: float | None = None
    server_ended_ms: float | None = None
    """When the coordinator closed it, if that came first."""

    @property
    def client_id(self) -> str:
        return next((each.client_id for each in list(self.requests) if each.client_id), "")

    def apis(self) -> set[str]:
        return {each.api for each in list(self.requests)}


def now_ms() -> float:
    return time.monotonic() * 1_000


class Recorder:
    """See the module."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._loop = asyncio.new_event_loop()
        self.connections: list[SeenConnection] = []
        self._open: set[asyncio.Transport] = set()

    def of(self, client_id: str) -> list[SeenConnection]:
        """The connections of this client so far, the oldest first."""
        return [each for each in list(self.connections) if each.client_id == client_id]

    @contextmanager
    def serving(self, listener: socket.socket) -> Iterator[None]:
        """Accept connections on this socket while the block lasts, then close it."""
        loop = self._loop
        server = loop.run_until_complete(loop.create_server(lambda: _FromClient(self), sock=listener))
        thread = threading.Thread(target=loop.run_forever, name="recorder")
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            server.close()
            loop.run_until_complete(self._end())
            loop.close()

    def noted(self) -> SeenConnection:
        """A connection that has just been accepted."""
        seen = SeenConnection(number=len(self.connections), opened_ms=now_ms())
        self.connections.append(seen)
        return seen

    async def connect(self, client: "_FromClient") -> None:
        try:
            await self._loop.create_connection(lambda: client.server, *self._target)
        except OSError:
            client.reset()

    def began(self, transport: asyncio.Transport) -> None:
        self._open.add(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        self._open.discard(transport)

    def connects(self, client: "_FromClient") -> None:
        client.connecting = self._loop.create_task(self.connect(client))

    async def _end(self) -> None:
        for transport in list(self._open):
            transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # the transports report their own loss


class _Side(asyncio.Protocol):
    """One side of a connection; received data goes to the other one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._recorder.began(self.transport)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def end_of_stream(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write_eof()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """Close it with a reset."""
        if self.transport is not None and not self.transport.is_closing():
            own: socket.socket = self.transport.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.transport.abort()


class _FromClient(_Side):
    """The client's side."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.server = _ToServer(recorder, self)
        self.seen = recorder.noted()
        self.unanswered: deque[tuple[int, SeenRequest]] = deque()
        self.connecting: asyncio.Task[None] | None = None
        self._frames = Frames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._recorder.connects(self)

    def data_received(self, data: bytes) -> None:
        at_ms = now_ms()
        for frame in self._frames.cut(data):
            request = read_request(frame, at_ms)
            self.seen.requests.append(request)
            self.unanswered.append((correlation_of(frame), request))
        self.server.write(data)

    def eof_received(self) -> bool:
        self._note(Ended.FIN)
        self.server.end_of_stream()
        return True  # the other direction stays open until the coordinator closes it

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.transport is not None
        self._recorder.ended(self.transport)
        if exc is not None:
            self._note(Ended.RST)
            self.server.reset()
        else:
            self.server.close()

    def _note(self, how: Ended) -> None:
        if self.seen.ended is None and self.seen.server_ended_ms is None:
            self.seen.ended, self.seen.ended_ms = how, now_ms()


class _ToServer(_Side):
    """The coordinator's side."""

    def __init__(self, recorder: Recorder, client: _FromClient) -> None:
        super().__init__(recorder)
        self._client = client
        self._frames = Frames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        client = self._client.transport
        if client is None or client.is_closing():
            self.close()
        else:
            client.resume_reading()

    def data_received(self, data: bytes) -> None:
        at_ms = now_ms()
        for frame in self._frames.cut(data):
            correlation = int.from_bytes(frame[:_LENGTH_BYTES], "big")
            while self._client.unanswered:  # a request without a response (acks=0) is skipped
                requested, request = self._client.unanswered.popleft()
                if requested == correlation:
                    read_answer(request, frame, at_ms)
                    break
        self._client.write(data)

    def eof_received(self) -> bool:
        self._note()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.transport is not None
        self._recorder.ended(self.transport)
        self._note()
        if exc is None:
            self._client.close()
        else:
            self._client.reset()

    def _note(self) -> None:
        seen = self._client.seen
        if seen.ended is None and seen.server_ended_ms is None:
            seen.server_ended_ms = now_ms()
