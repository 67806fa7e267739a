"""A network without sockets: an event loop in virtual time, whose connections lead to the test's own brokers.

It has connections, and frames in both directions; brokers interpret the frames. Connecting and each frame take no time;
all time that passes is that of a timeout.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from tests.simulation.virtual_time import VirtualTimeLoop

_SIZE_BYTES = 4


class Listener(Protocol):
    """The server at an address."""

    def accepted(self, connection: "Connection") -> None:
        """Accept a client. Raises OSError without a listener."""
        ...

    def received(self, connection: "Connection", frame: bytes) -> None:
        """A frame has come, without its length."""
        ...


class NetworkLoop(VirtualTimeLoop):
    """Connects to `listeners` alone, by (host, port)."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: dict[tuple[str, int], Listener] = {}

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple["Connection", asyncio.Protocol]:
        """Like asyncio's own; without TLS."""
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"Connect call failed ({host!r}, {port})")
        protocol = protocol_factory()
        connection = Connection(self, protocol, listener)
        listener.accepted(connection)
        protocol.connection_made(connection)
        await asyncio.sleep(0)
        return connection, protocol


class Connection(asyncio.Transport):
    """The client's end of a connection, and by `answer` and `cut` the broker's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, listener: Listener) -> None:
        super().__init__()
        self._loop, self._protocol, self._listener = loop, protocol, listener
        self._sent = bytearray()
        self._held: list[bytes] | None = None
        self._is_closed = False
        self.is_refusing_writes = False
        """Like uvloop on a transport that it has closed, before anything was notified."""

    # ---- the broker's side ---------------------------------------------------------------------------

    def answer(self, content: bytes) -> None:
        """Send a frame; nothing happens when the client has gone."""
        self._loop.call_soon(self._deliver, len(content).to_bytes(_SIZE_BYTES, "big") + content)

    def cut(self) -> None:
        """Reset the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, ConnectionResetError("Connection reset by peer"))

    def _deliver(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._held is not None:
            self._held.append(data)
        else:
            self._protocol.data_received(data)

    # ---- the client's side ---------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.is_refusing_writes:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        self._sent += data
        while len(self._sent) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(self._sent[:_SIZE_BYTES], "big")
            if len(self._sent) < end:
                return
            frame = bytes(self._sent[_SIZE_BYTES:end])
            del self._sent[:end]
            if not self._is_closed:
                self._loop.call_soon(self._listener.received, self, frame)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        self._held = self._held or []

    def resume_reading(self) -> None:
        held, self._held = self._held or [], None
        for data in held:
            self._deliver(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
