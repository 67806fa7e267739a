"""Raw requests over one connection, for a load that costs the sender little; encoded and decoded by kio."""

import asyncio
import itertools
from typing import Any

from tests.coordinator.kio_client import frame, parse, with_length

HEADER_BYTES = 8  # length and correlation id


class Link(asyncio.Protocol):
    """One connection; responses arrive in the order of the requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: list[tuple[str, int, asyncio.Future[Any]]] = []
        self._correlation_ids = itertools.count()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        for _, _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(ConnectionError(f"connection lost: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEADER_BYTES:end])
            del self._buffer[:end]
            name, version, answer = self._waiting.pop(0)
            if not answer.done():
                answer.set_result(parse(name, version, payload))

    async def ask(self, name: str, version: int, **body: Any) -> Any:
        """Send a request and wait for its response."""
        request = frame(name, version, correlation_id=next(self._correlation_ids), **body)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, version, answer))
        self._transport.write(with_length(request))
        return await answer

    def close(self) -> None:
        self._transport.close()


async def connect(bootstrap: str) -> Link:
    host, _, port = bootstrap.rpartition(":")
    _, link = await asyncio.get_running_loop().create_connection(Link, host, int(port))
    return link
