"""Accepts connections on one address or many, within a limit; closes idle ones; shuts down cleanly.

Applies the limits and timeouts of connections in both modes. Knows nothing of requests.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from muster.coordinator.load.answer_memory import AnswerMemory
from muster.coordinator.load.quotas import Quota
from muster.coordinator.load.turns import Turns
from muster.coordinator.net.heartbeats import SharedBytes
from muster.coordinator.net.kept_sockets import NOT_KEPT, KeptSockets
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.net.listener import Listener, PlainListener, TlsListener
from muster.coordinator.net.memory import Memory
from muster.coordinator.net.tls_handshake import Handshake
from muster.coordinator.observability.metrics import RefusedConnection, ServerMetrics
from muster.coordinator.service import Cancel

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Served(Protocol):
    """A connection as its listener sees it. `seen_ms`: when a request or a response last began or ended (monotonic).

    Further bytes of a request that has begun do not count, so that sending a byte now and then keeps no connection
    open.
    """

    seen_ms: int

    @property
    def client_host(self) -> str:
        """The client's address, known before `Listening.made` is called."""

    @property
    def is_parked(self) -> bool:
        """True if the client waits for other members of its group, or for a broker; then it is not idle (P17)."""

    @property
    def unread_since_ms(self) -> int | None:
        """Since when the client has left more unread than its transport buffers (monotonic ms); None while it reads."""

    @property
    def is_closing(self) -> bool: ...

    def close(self) -> None:
        """Flush, and close."""

    def abort(self) -> None: ...


C = TypeVar("C", bound=Served)

BACKLOG = 1024
"""The backlog of each listening socket."""

Address = tuple[socket.AddressFamily, str]


class Listening(Generic[C]):
    """The listening sockets of a process, and all its client connections."""

    def __init__(
        self,
        *,
        limits: ConnectionLimits,
        metrics: ServerMetrics,
        monotonic_ms: Callable[[], int],
        call_later: Callable[[int, Callable[[], None]], Cancel],
        answer_memory: AnswerMemory,
        turns: Turns,
        reuse_port: bool = False,
        kept: KeptSockets = NOT_KEPT,
    ) -> None:
        """`reuse_port`: other processes may listen on the same addresses (SO_REUSEPORT)."""
        self._reuse_port = reuse_port
        self._kept = kept
        self._connections_max = limits.connections_max
        self._idle_ms = limits.connections_max_idle_ms
        self._unread_ms = limits.unread_answers_max_ms
        self._addresses = Quota[str](
            limits.max_connections_per_ip, partial(_log_full, "address", "--max-connections-per-ip")
        )
        self._principals = Quota[str](
            limits.connections_per_principal, partial(_log_full, "principal", "--connections-per-principal")
        )
        self._principal_of: dict[C, str] = {}
        self._is_full_logged = False
        self.memory = Memory(limits.queued_max_request_bytes, metrics, answer_memory)
        self.cached_heartbeats = SharedBytes()
        self.turns = turns
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._connections: set[C] = set()
        self._handshakes: set[Handshake] = set()
        self._handshake_turns = Turns()
        self._leaving: dict[C, int] = {}
        """The connections that a sweep closed, or found closing, and when (monotonic ms)."""
        self._listeners: list[Listener] = []
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
        """Bind and accept; return the port; 0 means any free port. Raises OSError."""
        sockets = self.bind(await addresses_of(host), port)
        own_port: int = sockets[0].getsockname()[1]
        for bound in sockets:
            self.accept_at(bound, new_connection, context=context)
        return own_port

    def bind(self, addresses: Sequence[Address], port: int) -> list[socket.socket]:
        """Return a listening socket for each address: a previous process's, or a new one. Raises OSError."""
        bound = bind_each(addresses, port, self._bound)
        for each in bound:
            self._kept.keep(each)
        return bound

    def _bound(self, family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        taken = self._kept.take(family, address, port)
        if taken is None:
            return socket.create_server((address, port), family=family, backlog=BACKLOG, reuse_port=self._reuse_port)
        taken.listen(BACKLOG)  # the supervisor makes it refuse clients if this takes long
        return taken

    def accept_at(
        self, bound: socket.socket, new_connection: Callable[[], asyncio.Protocol], *, context: ssl.SSLContext | None
    ) -> None:
        """Accept connections on a listening socket, which is closed with the others."""
        if context is None:
            self._listens(PlainListener(bound, new_connection, self._is_crowded))
        else:
            self._listens(self._tls_listener(bound, new_connection, context))

    def _tls_listener(
        self, bound: socket.socket, new_connection: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> TlsListener:
        return TlsListener(
            bound,
            new_connection,
            context,
            self._handshake_turns,
            admit=self._handshake_begun,
            ended=self._handshake_ended,
            is_crowded=self._is_crowded,
        )

    def _is_crowded(self) -> bool:
        return self.turns.is_crowded

    def _listens(self, listener: Listener) -> None:
        if self._is_stopping:
            listener.close()
            return
        self._listeners.append(listener)
        if self._cancel_sweep is None:
            self._sweep()

    @property
    def connections(self) -> Sequence[C]:
        """The open connections."""
        return list(self._connections)

    def stop_listening(self) -> None:
        """Stop accepting connections; open ones continue."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._cancel_sweep is not None:
            self._cancel_sweep()

    async def close(self, *, within_s: float) -> None:
        """Flush and close all connections; abort handshakes, and connections that have not read in time."""
        self.stop_listening()
        for handshake in list(self._handshakes):
            handshake.abort()
        for connection in self.connections:
            connection.close()
        if not await self.wait_until_closed(within_s):
            log.warning("connections aborted", count=len(self._connections))
            for connection in self.connections:
                connection.abort()
            await self._all_closed.wait()

    def made(self, connection: C) -> bool:
        """Count a new connection; return whether it may stay."""
        if not self._admit(connection.client_host):
            return False
        self._connections.add(connection)
        self._metrics.connections_accepted += 1
        self._update_count()
        return True

    def _handshake_begun(self, handshake: Handshake) -> bool:
        """Count a TLS handshake as a connection; return whether it may stay."""
        if not self._admit(handshake.client_host):
            return False
        self._handshakes.add(handshake)
        self._update_count()
        return True

    def _handshake_ended(self, handshake: Handshake) -> None:
        """Stop counting the handshake; if it succeeded, the connection that follows immediately is counted instead."""
        if handshake in self._handshakes:
            self._handshakes.discard(handshake)
            self._addresses.release(handshake.client_host)
            self._update_count()

    def _admit(self, client_host: str) -> bool:
        if self._is_stopping:
            return False
        if self._open >= self._connections_max:
            self._metrics.connections_refused[RefusedConnection.ALL] += 1
            self._log_all_taken(client_host)
            return False
        if not self._addresses.acquire(client_host):
            self._metrics.connections_refused[RefusedConnection.ADDRESS] += 1
            return False
        return True

    @property
    def _open(self) -> int:
        return len(self._connections) + len(self._handshakes)

    def _update_count(self) -> None:
        self._metrics.connections = self._open
        if self._open < self._connections_max - self._connections_max // 10:
            self._is_full_logged = False

    def _log_all_taken(self, refused: str) -> None:
        """Log the clients with the most connections; not again until a tenth of all connections is free."""
        if self._is_full_logged:
            return
        self._is_full_logged = True
        most = (("most_of_address", self._addresses.most()), ("most_of_principal", self._principals.most()))
        log.warning(
            "connections refused: limit reached",
            limit="--connections-max",
            address=refused,
            **{name: f"{found[0]}: {found[1]}" for name, found in most if found is not None},
        )

    def authenticated(self, connection: C, principal: str) -> bool:
        """Count a connection for its principal; return whether it may stay."""
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
        """Forget a connection that was closed."""
        self._connections.discard(connection)
        self._addresses.release(connection.client_host)
        self._forget_principal(connection)
        self._leaving.pop(connection, None)
        self._update_count()
        if not self._connections:
            self._all_closed.set()

    async def wait_until_closed(self, within_s: float) -> bool:
        """Wait until all connections are closed; return whether that was in time."""
        if not self._connections:
            return True
        self._all_closed.clear()
        try:
            await asyncio.wait_for(self._all_closed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def _sweep(self) -> None:
        """Close connections that were idle, or did not read, for too long; runs ten times within that time."""
        now_ms = self._monotonic_ms()
        for connection in self.connections:
            unread_since_ms = connection.unread_since_ms
            if connection.is_closing:
                if now_ms - self._leaving.setdefault(connection, now_ms) >= self._idle_ms // 10:
                    connection.abort()  # closing began a while ago, and the client does not read
            elif unread_since_ms is not None and now_ms - unread_since_ms >= self._unread_ms:
                self._metrics.connections_unread_closed += 1
                log.warning(
                    "connection closed: the client does not read its responses",
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


def _log_full(kind: str, setting: str, whose: str) -> None:
    log.warning("connections refused: limit reached", limit=setting, **{kind: whose})


def bind_each(
    addresses: Sequence[Address], port: int, bind: Callable[[socket.AddressFamily, str, int], socket.socket]
) -> list[socket.socket]:
    """Return sockets from `bind`, all with the same port; port 0 means any port that is free on the first address.

    If one fails, closes all of them and raises OSError.
    """
    with ExitStack() as unless_all:
        bound: list[socket.socket] = []
        for family, address in addresses:
            bound.append(unless_all.enter_context(bind(family, address, port)))
            port = port or bound[0].getsockname()[1]
        unless_all.pop_all()
    return bound


async def addresses_of(host: str) -> list[Address]:
    """Return the addresses to listen on for a host name; "" means all addresses of this machine. Raises OSError.

    `::` means all addresses of both families, as in Kafka, with a socket for each, since Python's socket for `::` is
    IPv6 only.
    """
    if host == "::":
        return [(socket.AF_INET6, host), (socket.AF_INET, "0.0.0.0")]  # noqa: S104 -- as requested
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))
