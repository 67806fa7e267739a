"""A proxy that forwards everything, and delays one request on demand.

It forwards bytes in both directions, and only reads the API key of requests.

It runs in its own thread; a connection with a delayed request waits, and all others continue.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.brokers.broker import HOST

HELD_WITHIN_S: Final = 30
_LENGTH_BYTES = 4
_KEY_BYTES = 2


class HoldingProxy:
    """See the module."""

    def __init__(self, port: int, target: str) -> None:
        self._port = port
        host, _, target_port = target.rpartition(":")
        self._target = (host, int(target_port))
        self._loop = asyncio.new_event_loop()
        self._held_key: int | None = None
        self._holds = threading.Event()
        self._let_go = asyncio.Event()
        self._relays: set[asyncio.Task[None]] = set()

    def hold_next(self, api_key: int) -> None:
        """Delay the next request of this kind, and what follows on its connection."""
        self._holds.clear()
        self._held_key = api_key

    def wait_until_held(self) -> None:
        """Return when there is one."""
        assert self._holds.wait(HELD_WITHIN_S), "there was no such request"

    def let_go(self) -> None:
        """Forward the delayed data."""
        self._loop.call_soon_threadsafe(self._let_go.set)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Accept connections while the block lasts."""
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, HOST, self._port))
        thread = threading.Thread(target=self._loop.run_forever, name="holding-proxy")
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            server.close()
            self._loop.run_until_complete(self._end_relays())
            self._loop.close()

    async def _end_relays(self) -> None:
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.current_task()
        assert relay is not None
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        to_reader, to_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(reader, to_writer))
                both.create_task(_answers(to_reader, writer))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass  # one side has closed, so close the other
        finally:
            writer.close()
            to_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            length = await reader.readexactly(_LENGTH_BYTES)
            frame = await reader.readexactly(int.from_bytes(length, "big"))
            if int.from_bytes(frame[:_KEY_BYTES], "big") == self._held_key:
                self._held_key = None
                self._let_go.clear()
                self._holds.set()
                await self._let_go.wait()
            writer.write(length + frame)
            await writer.drain()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()
    raise ConnectionResetError("the broker has hung up")
