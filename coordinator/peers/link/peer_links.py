"""Keeps a connection to each other process of the log, on which requests for its groups are sent.

Tracks which processes there are and whether they are reachable. Knows nothing of requests.
"""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from muster.coordinator.cluster import Node
from muster.coordinator.log_throttle import LossThrottle
from muster.coordinator.peers.link.peer_connection import Handshake, PeerConnection
from muster.coordinator.peers.link.peer_messages import AnyMessage, Challenge, Denied, Welcome
from muster.coordinator.peers.link.proof import NONCE_BYTES, BadPeerSecret, Claim, is_proven, proof_of
from muster.coordinator.tasks import BackgroundTasks

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 2.0

Received = Callable[[Node, AnyMessage], None]


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """Another process, and whether it is reachable. `error`: why the last attempt failed, "" before the first one."""

    node: Node
    is_reached: bool
    error: str


class PeerLinks:
    """One connection to each peer. `received` is called with each message.

    `changed` is called when a process becomes reachable or unreachable, and when the first attempt to reach it has
    failed: it may have ended in the meantime.

    `log_identity` is set when the log is open, before `follow` is called.
    """

    def __init__(
        self,
        *,
        secret: Callable[[], bytes],
        node_id: int,
        message_bytes_max: int,
        context: ssl.SSLContext | None,
        monotonic_ms: Callable[[], int],
        received: Received,
        changed: Callable[[Node], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.log_identity = ""
        self._secret = secret
        self._node_id = node_id
        self._message_bytes_max = message_bytes_max
        self._context = context
        self._throttle = LossThrottle(monotonic_ms)
        self._received = received
        self._changed = changed
        self._tasks = BackgroundTasks(failed)
        self._keeping: dict[Node, asyncio.Task[None]] = {}
        self._ready: dict[Node, PeerConnection] = {}
        self._errors: dict[Node, str] = {}

    def follow(self, nodes: Iterable[Node]) -> None:
        """Keep connections to these processes from now on, and to no others."""
        wanted = [node for node in nodes if node.node_id != self._node_id]
        for node in [each for each in self._keeping if each not in wanted]:
            self._keeping.pop(node).cancel()
            self._errors.pop(node, None)
        for node in [each for each in wanted if each not in self._keeping]:
            self._keeping[node] = self._tasks.start(self._keep(node), f"link-node-{node.node_id}")

    async def close(self) -> None:
        await self._tasks.close()

    def is_linked(self, node: Node) -> bool:
        """Return whether there is a connection to the process."""
        return node in self._ready

    def is_reached(self, node: Node) -> bool:
        """Return whether messages can be sent to the process: it is connected, and not overloaded."""
        connection = self._ready.get(node)
        return connection is not None and not connection.is_full

    def states(self) -> list[LinkState]:
        """The other processes by node id, and whether each is reachable. Thread-safe."""
        nodes = sorted(self._keeping.copy(), key=lambda each: each.node_id)
        return [
            LinkState(node=node, is_reached=node in self._ready, error=self._errors.get(node, "")) for node in nodes
        ]

    def send(self, node: Node, message: AnyMessage) -> None:
        """Send a message to a process; dropped if there is no connection to it."""
        connection = self._ready.get(node)
        if connection is not None:
            connection.send(message)

    async def _keep(self, node: Node) -> None:
        retry_s, is_first = RETRY_S, True
        while True:
            opened = _Opening(self, node)
            try:
                reason = await self._open(node, opened)
                if reason is None:
                    retry_s, is_first = RETRY_S, False
                    self._reached(node, opened.connection)
                    reason = await opened.lost
                self._errors[node] = reason
            finally:
                if self._ready.pop(node, None) is not None:
                    self._changed(node)
                opened.connection.abort("it is no longer needed")
            if is_first:
                is_first = False
                self._changed(node)
            self._log_lost(node, reason)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _open(self, node: Node, opened: "_Opening") -> str | None:
        """Connect and complete the handshake; returns a human-readable reason if that failed."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(opened.protocol, node.host, node.port, ssl=self._context)
                return await opened.proven
        except (OSError, ValueError, OverflowError, TimeoutError) as error:  # the advertised address may be invalid
            return str(error) or f"it did not respond within {CONNECT_TIMEOUT_S:.0f} s"

    def _reached(self, node: Node, connection: PeerConnection) -> None:
        self._ready[node] = connection
        self._errors.pop(node, None)
        connection.handle = lambda message: self._received(node, message)
        connection.keep_alive()
        if self._throttle.back(node):
            log.info("peer reachable again", node_id=node.node_id, address=f"{node.host}:{node.port}")
        self._changed(node)

    def _log_lost(self, node: Node, reason: str) -> None:
        suppressed = self._throttle.lost(node)
        if suppressed is not None:
            log.warning(
                "peer unreachable, retrying: requests for its groups wait",
                node_id=node.node_id,
                address=f"{node.host}:{node.port}",
                error=reason,
                others_since=suppressed,
            )

    # ---- one connection ------------------------------------------------------------------------------------

    def claim(self, node: Node) -> Claim:
        """Return what this process claims about itself towards another."""
        return Claim(log=self.log_identity, node_id=self._node_id, wanted_node_id=node.node_id)

    def read_secret(self) -> bytes:
        """Read the secret. Raises OSError, BadPeerSecret."""
        return self._secret()

    @property
    def message_bytes_max(self) -> int:
        return self._message_bytes_max


class _Opening:
    """One attempt. `proven`: why it failed, or None; `lost`: why the connection ended."""

    def __init__(self, links: PeerLinks, node: Node) -> None:
        loop = asyncio.get_running_loop()
        self.proven: asyncio.Future[str | None] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        self._links = links
        self._claim = links.claim(node)
        self._challenge: Challenge | None = None
        self._secret = b""
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self.connection = PeerConnection(
            message_bytes_max=links.message_bytes_max, begin=lambda _: None, proving=self._prove, lost=self._ended
        )

    def protocol(self) -> PeerConnection:
        return self.connection

    def _prove(self, connection: PeerConnection, message: Handshake) -> None:
        match message:
            case Challenge() if self._challenge is None:
                self._challenge = message
                try:
                    self._secret = self._links.read_secret()
                except OSError as error:
                    connection.close(f"the peer secret cannot be read: {error.strerror}")
                except BadPeerSecret as bad:
                    connection.close(str(bad))
                else:
                    connection.send(proof_of(self._secret, self._claim, message, self._nonce))
            case Welcome() if self._challenge is not None and not self.proven.done():
                if is_proven(self._secret, self._claim, self._challenge, self._nonce, message):
                    connection.handle = _too_early
                    self.proven.set_result(None)
                else:
                    connection.close("it has a different peer secret")
            case Denied(reason=reason):
                connection.close(f"it refuses this process: {reason}")
            case _:
                connection.close("it sent a message out of turn")

    def _ended(self, _connection: PeerConnection, reason: str) -> None:
        if not self.proven.done():
            self.proven.set_result(reason)
        if not self.lost.done():
            self.lost.set_result(reason)


def _too_early(_message: AnyMessage) -> None:
    """Ignore messages before the first request: they answer nothing."""
