"""Accepts connections of the other processes of the log, and has each prove that it has the secret.

Connections that have not proven themselves are limited, and so are unfinished TLS handshakes: the oldest makes room for
a new one. A process that only watches this one (peer_watch.py) opens such a connection and sends nothing on it; so only
the connecting end logs failed handshakes.
"""

import secrets
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from muster.coordinator.load.turns import Turns
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.net.listener import Listener, PlainListener, TlsListener
from muster.coordinator.net.listening import BACKLOG, addresses_of, bind_each
from muster.coordinator.net.tls_handshake import Handshake as TlsHandshake
from muster.coordinator.peers.link.peer_connection import Handshake, PeerConnection
from muster.coordinator.peers.link.peer_messages import LEVEL, Challenge, Denied, Proof
from muster.coordinator.peers.link.proof import NONCE_BYTES, BadPeerSecret, refusal_of, welcome

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

UNPROVEN_MAX: Final = 100
LINKS_MAX: Final = 1_000


class PeerListener:
    """Accepts peers. `secret` reads the secret for each proof; `accepted` receives each proven connection.

    `log_identity` is set when the log is open; until then all peers are refused.
    """

    def __init__(
        self,
        *,
        secret: Callable[[], bytes],
        node_id: int,
        message_bytes_max: int,
        monotonic_ms: Callable[[], int],
        accepted: Callable[[PeerConnection], None],
        lost: Callable[[PeerConnection], None],
    ) -> None:
        self.log_identity: str | None = None
        self._secret = secret
        self._node_id = node_id
        self._message_bytes_max = message_bytes_max
        self._throttle = LogThrottle(monotonic_ms)
        self._accepted = accepted
        self._lost_one = lost
        self._challenges: dict[PeerConnection, Challenge] = {}
        self._links: dict[int, PeerConnection] = {}
        """The proven connections, by node id."""
        self._handshakes: dict[TlsHandshake, None] = {}
        """Unfinished TLS handshakes, oldest first."""
        self._listeners: list[Listener] = []

    async def start(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Bind and listen; returns the port. Raises OSError."""
        sockets = bind_each(await addresses_of(host), port, _bound)
        bound: int = sockets[0].getsockname()[1]
        turns = Turns()
        for each in sockets:
            if context is None:
                self._listeners.append(PlainListener(each, self._new_connection))
            else:
                self._listeners.append(self._tls_listener(each, context, turns))
        return bound

    def _tls_listener(self, bound: socket.socket, context: ssl.SSLContext, turns: Turns) -> TlsListener:
        return TlsListener(
            bound,
            self._new_connection,
            context,
            turns,
            admit=self._handshake_begun,
            ended=lambda handshake: self._handshakes.pop(handshake, None),
            failed=lambda _host, _reason: None,
        )

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        for listener in self._listeners:
            listener.close()
        for handshake in list(self._handshakes):
            handshake.abort()
        for connection in (*self._challenges, *self._links.values()):
            connection.close("this process stops")

    def _new_connection(self) -> PeerConnection:
        return PeerConnection(
            message_bytes_max=self._message_bytes_max, begin=self._begin, proving=self._proving, lost=self._lost
        )

    def _handshake_begun(self, handshake: TlsHandshake) -> bool:
        if len(self._handshakes) >= UNPROVEN_MAX:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.abort()
        self._handshakes[handshake] = None
        return True

    def _begin(self, connection: PeerConnection) -> None:
        if len(self._challenges) >= UNPROVEN_MAX:
            oldest = next(iter(self._challenges))
            del self._challenges[oldest]  # immediately, however long the abort takes
            oldest.abort("too many connections without a proof")
        challenge = self._challenges[connection] = Challenge(LEVEL, secrets.token_bytes(NONCE_BYTES))
        connection.send(challenge)

    def _proving(self, connection: PeerConnection, message: Handshake) -> None:
        challenge = self._challenges.get(connection)
        if challenge is None or not isinstance(message, Proof):
            connection.close("it sent a message out of turn")
            return
        secret = self._read_secret()
        refusal = secret if isinstance(secret, str) else self._refusal(secret, message, challenge)
        if refusal is not None:
            self._log_refused(connection, message, refusal)
            connection.send(Denied(refusal))
            connection.close(refusal)
            return
        assert isinstance(secret, bytes)
        del self._challenges[connection]
        connection.node_id, connection.highest_tag = message.node_id, message.highest_tag
        self._replace(message.node_id, connection)
        connection.send(welcome(secret, message, challenge))
        connection.answer_back()
        self._accepted(connection)

    def _read_secret(self) -> bytes | str:
        """Return the secret, or the reason why no peer can be admitted."""
        if self.log_identity is None:
            return "the event log is being opened"
        try:
            return self._secret()
        except OSError as error:
            return f"the peer secret cannot be read there: {error.strerror}"
        except BadPeerSecret:
            return "the peer secret there cannot be used"

    def _refusal(self, secret: bytes, proof: Proof, challenge: Challenge) -> str | None:
        refusal = refusal_of(secret, proof, challenge, log=self.log_identity or "", node_id=self._node_id)
        if refusal is None and len(self._links) >= LINKS_MAX and proof.node_id not in self._links:
            return f"{LINKS_MAX} processes are already connected"
        return refusal

    def _replace(self, node_id: int, connection: PeerConnection) -> None:
        """Admit a process. Its former connection is over, even if it was not closed."""
        before = self._links.get(node_id)
        self._links[node_id] = connection
        if before is not None:
            self._lost_one(before)
            before.abort("it has reconnected")

    def _log_refused(self, connection: PeerConnection, proof: Proof, refusal: str) -> None:
        suppressed = self._throttle.due(refusal)
        if suppressed is not None:
            log.warning(
                "peer refused",
                address=connection.peer,
                node_id=proof.node_id,
                reason=refusal,
                others_since=suppressed,
            )

    def _lost(self, connection: PeerConnection, _reason: str) -> None:
        self._challenges.pop(connection, None)
        for node_id in [each for each, link in self._links.items() if link is connection]:
            del self._links[node_id]
            self._lost_one(connection)


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), family=family, backlog=BACKLOG)
