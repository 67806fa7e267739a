"""Accepting clients that speak TLS: each counts as a connection from the accept on, and its handshake has a time limit.

A server of asyncio shows a connection only after its TLS handshake, so clients that never finish theirs would be met by
no limit. Here a client is admitted first, and then shakes hands. asyncio's `start_tls`, on a connection that was
accepted in plain, would lose what the client sends before it: uvloop begins to read at once.

What belongs here: what happens until a client's connection can be made. What it must not know: limits, requests.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

import structlog

from muster.coordinator.net.hosts import java_host

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
"""The time for a handshake; Java's clients give up after as long (socket.connection.setup.timeout.ms)."""

ACCEPTED_AT_ONCE = 64
"""The clients that are accepted before the loop turns."""

RETRY_ACCEPT_S = 1.0
"""The pause after an accept that failed, for instance since no file is free."""

_MEANINGS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, which --tls-client-ca demands",
}
"""Explanations of OpenSSL's reasons that say little."""


class Handshake(asyncio.Protocol):
    """A client that was accepted, until its handshake has ended and its connection is made."""

    def __init__(self, client_host: str, listener: "TlsListener") -> None:
        self.client_host = client_host
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    def begin(self, client: socket.socket) -> None:
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(client))
        self._task.add_done_callback(lambda _: self._listener.ended(self))

    def abort(self) -> None:
        """Close at once."""
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self, client, ssl=self._listener.context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except OSError as error:  # TLS's own errors are some of these
            _tell_failed(self.client_host, error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake has ended: hand over to the client's connection, which is counted in its place."""
        self._listener.ended(self)
        connection = self._listener.new_connection()
        cast("asyncio.Transport", transport).set_protocol(connection)  # uvloop's is none by class
        connection.connection_made(transport)


class TlsListener:
    """Accepts at a listening socket, which is its own from then on; see the module.

    `admit` counts a handshake and returns whether the client may stay. `ended` is called when the place of one that was
    admitted is free, perhaps twice.
    """

    def __init__(
        self,
        bound: socket.socket,
        new_connection: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        *,
        admit: Callable[[Handshake], bool],
        ended: Callable[[Handshake], None],
    ) -> None:
        self.new_connection = new_connection
        self.context = context
        self.ended = ended
        self._admit = admit
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        bound.settimeout(0)
        self._listen()

    def close(self) -> None:
        """Accept no more clients; handshakes go on."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._bound)
        self._bound.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted", error=str(error), retry_s=RETRY_ACCEPT_S)
                self._loop.remove_reader(self._bound)
                self._retry = self._loop.call_later(RETRY_ACCEPT_S, self._listen)
                return
            handshake = Handshake(java_host(address[0]), self)
            if self._admit(handshake):
                client.settimeout(0)
                handshake.begin(client)
            else:
                client.close()


def _tell_failed(client_host: str, error: OSError) -> None:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"its certificate: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        name = error.reason or str(error)
        reason = _MEANINGS.get(name, name.lower().replace("_", " "))
    elif isinstance(error, ConnectionAbortedError):
        reason = f"it has not finished the handshake within {HANDSHAKE_TIMEOUT_S:g} s"
    else:  # it has gone, as the checks of load balancers do
        return
    log.warning("TLS with a client failed", peer=client_host, reason=reason)
