"""Accepting connections within a limit, closing idle ones, and stopping in good order; at one address or at many.

What belongs here: what is the same for all connections, whatever is spoken on them. What it must not know: requests.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from muster.coordinator.load.quotas import Quota
from muster.coordinator.load.room import Room
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.net.memory import Memory
from muster.coordinator.observability.metrics import RefusedConnection, ServerMetrics
from muster.coordinator.service import Cancel

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Served(Protocol):
    """A connection as its listener sees it. `seen_ms`: when something came to its end on it last, or began (monotonic).

    The rest of a request that has begun does not count, so that nobody is let stay for a byte now and then.
    """

    seen_ms: int

    @property
    def client_host(self) -> str:
        """Its address, known before `Listening.made` is asked."""

    @property
    def is_parked(self) -> bool:
        """Whether the client waits for us, which does not count as idle (P17)."""

    @property
    def unread_since_ms(self) -> int | None:
        """Since when more waits to be read by the client than its transport takes; None while it reads (monotonic)."""

    @property
    def is_closing(self) -> bool: ...

    def close(self) -> None:
        """Send what is to be sent, and close."""

    def abort(self) -> None: ...


C = TypeVar("C", bound=Served)

BACKLOG = 1024
"""Connections that wait to be accepted, at each address."""


class Listening(Generic[C]):
    """All connections of a process, whatever address they came to."""

    def __init__(
        self,
        *,
        limits: ConnectionLimits,
        metrics: ServerMetrics,
        monotonic_ms: Callable[[], int],
        call_later: Callable[[int, Callable[[], None]], Cancel],
        room: Room,
        turns: Turns,
    ) -> None:
        self._connections_max = limits.connections_max
        self._idle_ms = limits.connections_max_idle_ms
        self._unread_ms = limits.unread_answers_max_ms
        self._addresses = Quota[str](
            limits.max_connections_per_ip, partial(_tell_full, "address", "--max-connections-per-ip")
        )
        self._principals = Quota[str](
            limits.connections_per_principal, partial(_tell_full, "principal", "--connections-per-principal")
        )
        self._principal_of: dict[C, str] = {}
        self._is_full_told = False
        self.memory = Memory(limits.queued_max_request_bytes, metrics, room)
        self.turns = turns
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._connections: set[C] = set()
        self._leaving: dict[C, int] = {}
        """Those that a sweep closed, or found closing, and when."""
        self._listeners: list[asyncio.Server] = []
        self._cancel_sweep: Cancel | None = None
        self._is_stopping = False
        self._all_closed = asyncio.Event()

    async def listen(
        self,
        host: str,
        port: int,
        new_connection: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext | None = None,
    ) -> int:
        """Bind and accept; returns the port, which for 0 is any that was free. Raises OSError."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            new_connection, host, port, backlog=BACKLOG, reuse_address=True, ssl=context
        )
        bound: int = listener.sockets[0].getsockname()[1]
        self._listens(listener)
        return bound

    async def accept_at(
        self, bound: socket.socket, new_connection: Callable[[], asyncio.Protocol], *, context: ssl.SSLContext | None
    ) -> None:
        """Accept at a socket that listens already, which is ours from here on."""
        loop = asyncio.get_running_loop()
        self._listens(await loop.create_server(new_connection, sock=bound, backlog=BACKLOG, ssl=context))

    def _listens(self, listener: asyncio.Server) -> None:
        if self._is_stopping:
            listener.close()
            return
        self._listeners.append(listener)
        if self._cancel_sweep is None:
            self._sweep()

    @property
    def connections(self) -> Sequence[C]:
        """Those that are open now."""
        return list(self._connections)

    def stop_listening(self) -> None:
        """Accept no more connections; those that are open go on."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        if self._cancel_sweep is not None:
            self._cancel_sweep()

    async def close(self, *, within_s: float) -> None:
        """Send what is still to be sent, close all connections; abort those that do not read within the time."""
        self.stop_listening()
        for connection in self.connections:
            connection.close()
        if not await self.wait_until_closed(within_s):
            log.warning("connections aborted", count=len(self._connections))
            for connection in self.connections:
                connection.abort()
            await self._all_closed.wait()

    def made(self, connection: C) -> bool:
        """Whether the connection may stay."""
        if self._is_stopping:
            return False
        if len(self._connections) >= self._connections_max:
            self._metrics.connections_refused[RefusedConnection.ALL] += 1
            self._tell_all_taken(connection.client_host)
            return False
        if not self._addresses.acquire(connection.client_host):
            self._metrics.connections_refused[RefusedConnection.ADDRESS] += 1
            return False
        self._connections.add(connection)
        self._metrics.connections_accepted += 1
        self._metrics.connections = len(self._connections)
        return True

    def _tell_all_taken(self, refused: str) -> None:
        """Once, until a tenth is free again, as a quota does; who has most is to blame, not who came too late."""
        if self._is_full_told:
            return
        self._is_full_told = True
        most = (("most_of_address", self._addresses.most()), ("most_of_principal", self._principals.most()))
        log.warning(
            "connections refused over a limit",
            limit="--connections-max",
            address=refused,
            **{name: f"{found[0]}: {found[1]}" for name, found in most if found is not None},
        )

    def authenticated(self, connection: C, principal: str) -> bool:
        """Whether the connection may stay, now that it is known whose it is."""
        self._forget_principal(connection)
        if not self._principals.acquire(principal):
            self._metrics.connections_refused[RefusedConnection.PRINCIPAL] += 1
            return False
        self._principal_of[connection] = principal
        return True

    def _forget_principal(self, connection: C) -> None:
        principal = self._principal_of.pop(connection, None)
        if principal is not None:
            self._principals.release(principal)

    def lost(self, connection: C) -> None:
        """The connection is closed."""
        self._connections.discard(connection)
        self._addresses.release(connection.client_host)
        self._forget_principal(connection)
        self._leaving.pop(connection, None)
        if len(self._connections) < self._connections_max - self._connections_max // 10:
            self._is_full_told = False
        self._metrics.connections = len(self._connections)
        if not self._connections:
            self._all_closed.set()

    async def wait_until_closed(self, within_s: float) -> bool:
        """Whether all connections were closed within the time."""
        if not self._connections:
            return True
        self._all_closed.clear()
        try:
            await asyncio.wait_for(self._all_closed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def _sweep(self) -> None:
        """Close who has been idle, or has not read, for too long; look again ten times in that while."""
        now_ms = self._monotonic_ms()
        for connection in self.connections:
            unread_since_ms = connection.unread_since_ms
            if connection.is_closing:
                if now_ms - self._leaving.setdefault(connection, now_ms) >= self._idle_ms // 10:
                    connection.abort()  # it was told to go a while ago, and does not read
            elif unread_since_ms is not None and now_ms - unread_since_ms >= self._unread_ms:
                self._metrics.connections_unread_closed += 1
                log.warning(
                    "connection closed: it does not read its answers",
                    peer=connection.client_host,
                    limit="--unread-answers-max-ms",
                    unread_ms=now_ms - unread_since_ms,
                )
                connection.abort()
            elif now_ms - connection.seen_ms >= self._idle_ms and not connection.is_parked:
                self._metrics.connections_idle_closed += 1
                connection.close()
                self._leaving[connection] = now_ms
        self._cancel_sweep = self._call_later(max(1, min(self._idle_ms, self._unread_ms) // 10), self._sweep)


def _tell_full(kind: str, setting: str, whose: str) -> None:
    log.warning("connections refused over a limit", limit=setting, **{kind: whose})
