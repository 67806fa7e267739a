"""A relay in front of one broker that loses and forges answers, as networks and failing brokers do.

It relays frames in both directions, and injects the faults. It decodes no message: it finds an answer's error code by
its place, and puts its own port wherever an answer names the broker's, so that clients stay with it.
"""

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from enum import IntEnum

HOST = "127.0.0.1"
_SIZE = struct.Struct(">i")
_NAME_LENGTH = struct.Struct(">h")


class ApiKey(IntEnum):
    """The kinds of requests that faults can be injected into, with the fields before the topic in their responses."""

    PRODUCE = 0
    FETCH = 1

    @property
    def bytes_before_topic(self) -> int:
        """Correlation id and number of topics; Fetch (v11): throttle time, error code and session id between them."""
        return {ApiKey.PRODUCE: 8, ApiKey.FETCH: 18}[self]


class BrokerProxy:
    """Has its port from the start; relays between `start` and `stop`."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self._socket = socket.create_server((HOST, 0))
        own_port: int = self._socket.getsockname()[1]
        self.address = f"{HOST}:{own_port}"
        names = (_NAME_LENGTH.pack(len(host)) + host.encode(), bytes((len(host) + 1,)) + host.encode())
        self._renamed = [(name + _SIZE.pack(int(port)), name + _SIZE.pack(own_port)) for name in names]
        """The bytes that name the broker, and their replacement: in the older versions of answers, and in the newer."""
        self._relays: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._losses: dict[int, float] = {}
        self._forgeries: dict[int, deque[int]] = {}
        self.requests: list[int] = []
        """The API keys of the requests relayed, in order."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._relays)

    def lose_answers(self, api_key: int, count: float) -> None:
        """Cut the connection when the broker has answered, instead of passing on its next `count` answers."""
        self._losses[api_key] = count

    def forge_errors(self, api_key: ApiKey, *codes: int) -> None:
        """Put these error codes into the next responses, one each, whatever the broker did and returned."""
        self._forgeries[api_key] = deque(codes)

    async def _serve(self, down_reader: asyncio.StreamReader, down_writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        up_reader, up_writer = await asyncio.open_connection(*self._broker)
        writers = {down_writer, up_writer}
        self._writers |= writers
        requested: deque[int] = deque()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._relay_requests(down_reader, up_writer, requested))
                group.create_task(self._relay_answers(up_reader, down_writer, requested))
        except* (ConnectionError, asyncio.IncompleteReadError, _Cut):
            pass
        finally:
            self._relays.discard(task)
            self._writers -= writers
            for writer in writers:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()

    async def _relay_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requested: deque[int]
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            (api_key,) = struct.unpack_from(">h", frame)
            requested.append(api_key)
            self.requests.append(api_key)
            writer.writelines((_SIZE.pack(len(frame)), frame))
            await writer.drain()

    async def _relay_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requested: deque[int]
    ) -> None:
        while True:
            frame = await _read_frame(reader)
            for broker_named, self_named in self._renamed:
                frame = frame.replace(broker_named, self_named)
            api_key = requested.popleft()
            if self._losses.get(api_key, 0) > 0:
                self._losses[api_key] -= 1
                raise _Cut
            if self._forgeries.get(api_key):
                frame = _forged(frame, ApiKey(api_key), self._forgeries[api_key].popleft())
            writer.writelines((_SIZE.pack(len(frame)), frame))
            await writer.drain()


class _Cut(Exception):
    """Raised to cut a connection."""


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


def _forged(frame: bytes, api_key: ApiKey, code: int) -> bytes:
    position = api_key.bytes_before_topic
    (name_length,) = _NAME_LENGTH.unpack_from(frame, position)
    position += _NAME_LENGTH.size + name_length + 8  # the number of partitions, and the partition
    return frame[:position] + struct.pack(">h", code) + frame[position + 2 :]
