"""Accepts clients on a listening socket, many per turn of the event loop, with or without TLS.

uvloop's own servers accept one client per turn. When many clients reconnect, such as after a takeover or a restart,
turns are long: the last of three hundred clients would be accepted after more than a second.

An asyncio server reports a TLS connection only after its handshake, so no limit would apply to clients that never
finish theirs. Here a client is counted first, and then the handshake begins (tls_handshake.py), which has a time limit.

While a crowd of connections waits for its turn, few are accepted: clients that open connections faster than their
requests can be handled wait in the kernel's backlog. Otherwise a heartbeat would wait behind all of their requests. But
some are always accepted, or connections that always have requests would keep everyone else out.
"""

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog

from muster.coordinator.load.turns import Turns
from muster.coordinator.net.hosts import java_host
from muster.coordinator.net.tls_handshake import Handshake, log_failed
from muster.events.kafka.shortage import log_not_accepted

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

ACCEPTED_AT_ONCE = 64
"""The clients that are accepted before the loop runs other callbacks."""

ACCEPTED_IN_CROWD = 4
"""The same while a crowd waits: fewer than the requests that the shortest turn handles, so the crowd shrinks."""

RETRY_ACCEPT_S = 1.0
"""The pause after a failed accept, for instance because no file is free."""


class Listener(ABC):
    """Accepts clients on a listening socket, which it then owns: many at once, but few while `is_crowded()`."""

    def __init__(self, bound: socket.socket, is_crowded: Callable[[], bool]) -> None:
        self._bound = bound
        self._is_crowded = is_crowded
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        bound.settimeout(0)
        self._listen()

    @abstractmethod
    def _accepted(self, client: socket.socket, host: str) -> None:
        """Start serving a client, whose socket is non-blocking. `host`: its address."""

    def close(self) -> None:
        """Stop accepting clients; accepted ones continue. Idempotent."""
        if self._bound.fileno() < 0:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._bound)
        self._bound.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_IN_CROWD if self._is_crowded() else ACCEPTED_AT_ONCE):
            try:
                client, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if log_not_accepted(error) is None:
                    log.error("cannot accept connections", error=str(error), retry_s=RETRY_ACCEPT_S)
                self._loop.remove_reader(self._bound)
                self._retry = self._loop.call_later(RETRY_ACCEPT_S, self._listen)
                return
            client.settimeout(0)
            self._accepted(client, address[0])


class PlainListener(Listener):
    """Accepts clients without TLS; `new_connection` creates the protocol of each."""

    def __init__(
        self,
        bound: socket.socket,
        new_connection: Callable[[], asyncio.Protocol],
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(bound, is_crowded)
        self._new_connection = new_connection
        self._beginning: set[asyncio.Task[None]] = set()

    def _accepted(self, client: socket.socket, host: str) -> None:  # noqa: ARG002 -- the connection looks itself
        begins = self._loop.create_task(self._begin(client), name="accept")
        self._beginning.add(begins)
        begins.add_done_callback(self._beginning.discard)

    async def _begin(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_connection, client)
        except OSError:  # it has disconnected
            client.close()


class TlsListener(Listener):
    """Accepts clients that use TLS; see the module.

    `turns` is the queue of handshakes of all listeners. `admit` counts a handshake and returns whether the client may
    stay. `ended` is called when the place of an admitted client is free, perhaps twice. `failed`: see Handshake.
    """

    def __init__(
        self,
        bound: socket.socket,
        new_connection: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        turns: Turns,
        *,
        admit: Callable[[Handshake], bool],
        ended: Callable[[Handshake], None],
        failed: Callable[[str, str], None] = log_failed,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(bound, is_crowded)
        self._new_connection = new_connection
        self._context = context
        self._turns = turns
        self._ended = ended
        self._admit = admit
        self._failed = failed

    def _accepted(self, client: socket.socket, host: str) -> None:
        handshake = Handshake(
            java_host(host),
            self._context,
            self._turns,
            made=self._made,
            ended=self._ended,
            failed=self._failed,
        )
        if self._admit(handshake):
            handshake.begin(client)
        else:
            client.close()

    def _made(self, handshake: Handshake) -> asyncio.Protocol:
        """Create the connection of a finished handshake; it takes the handshake's place in the count."""
        self._ended(handshake)
        return self._new_connection()
