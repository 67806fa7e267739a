"""The listener: accepts connections within a limit, closes idle ones, and stops in good order.

What a connection does stands in client_connection.py. To stop: `stop_listening`, then give the groups up (which answers
what is parked through its replies), then `close`.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from coordinator.client_connection import ClientConnection
from coordinator.metrics import ServerMetrics
from coordinator.service import Cancel, Service
from coordinator.wire.api import Api, KeepTicket
from coordinator.wire.dispatch import Answered, Peer, dispatch

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's names in the comments; the defaults are Kafka's, but for the bytes that may wait, which it has not."""

    host: str = "127.0.0.1"
    port: int = 9092  # 0 takes any that is free
    connections_max: int = 2**31 - 1  # max.connections
    connections_max_idle_ms: int = 600_000  # connections.max.idle.ms
    frame_bytes_max: int = 104_857_600  # socket.request.max.bytes
    waiting_bytes_max: int = 1_048_576


class Server:
    """Serves one address. `apis` are offered; `service` is what their handlers use."""

    def __init__(
        self, *, settings: ServerSettings, service: Service, apis: Mapping[int, Api], metrics: ServerMetrics
    ) -> None:
        self._settings = settings
        self._service = service
        self._apis = apis
        self._metrics = metrics
        self._connections: set[ClientConnection] = set()
        self._listener: asyncio.Server | None = None
        self._port = settings.port
        self._cancel_sweep: Cancel | None = None
        self._is_stopping = False
        self._all_closed = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that was bound; known from `start` on."""
        return self._port

    async def start(self) -> None:
        """Bind and accept. Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            self._new_connection, self._settings.host, self._settings.port, backlog=1024, reuse_address=True
        )
        self._port = self._listener.sockets[0].getsockname()[1]
        self._sweep()

    def stop_listening(self) -> None:
        """Accept no more connections; those that are open go on."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        if self._cancel_sweep is not None:
            self._cancel_sweep()

    async def close(self, *, within_s: float = 5.0) -> None:
        """Send what is still to be sent, close all connections; abort those that do not read within the time."""
        self.stop_listening()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), within_s)
            except TimeoutError:
                log.warning("connections aborted", count=len(self._connections))
                for connection in list(self._connections):
                    connection.abort()
                await self._all_closed.wait()

    def _new_connection(self) -> ClientConnection:
        def dispatch_one(
            frame: bytes, peer: Peer, answer: Callable[[Answered], None], keep_ticket: KeepTicket
        ) -> Cancel | None:
            return dispatch(
                frame, apis=self._apis, service=self._service, peer=peer, answer=answer, keep_ticket=keep_ticket
            )

        return ClientConnection(
            dispatch=dispatch_one,
            metrics=self._metrics,
            monotonic_ms=self._service.monotonic_ms,
            frame_bytes_max=self._settings.frame_bytes_max,
            waiting_bytes_max=self._settings.waiting_bytes_max,
            made=self._made,
            lost=self._lost,
        )

    def _made(self, connection: ClientConnection) -> bool:
        """Whether the connection may stay."""
        if self._is_stopping or len(self._connections) >= self._settings.connections_max:
            self._metrics.connections_refused += 1
            return False
        self._connections.add(connection)
        self._metrics.connections_accepted += 1
        self._metrics.connections = len(self._connections)
        return True

    def _lost(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._metrics.connections = len(self._connections)
        if not self._connections:
            self._all_closed.set()

    def _sweep(self) -> None:
        """Close what has been idle for too long; look again ten times in that while."""
        idle_ms = self._settings.connections_max_idle_ms
        quiet_since_ms = self._service.monotonic_ms() - idle_ms
        for connection in list(self._connections):
            if connection.is_closing:
                connection.abort()  # it was told to go a while ago, and does not read
            elif connection.seen_ms <= quiet_since_ms and not connection.is_parked:
                self._metrics.connections_idle_closed += 1
                connection.close()
        self._cancel_sweep = self._service.call_later(max(1, idle_ms // 10), self._sweep)
