"""The broker connection of one client, and the endpoint with that broker's address."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.net.flow import Flow, send_all
from muster.coordinator.net.memory import unsent_bytes
from muster.coordinator.sidecar.messages.request_start import api_and_client_of
from muster.coordinator.sidecar.relay.connect_queue import ConnectQueue, ConnectQueues
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.relay.refusals import Refusal, RefusalLog
from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.coordinators import Heard
from muster.events.kafka.failures import hung_up
from muster.events.kafka.shortage import log_shortage

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 10.0
"""Timeout of a connection attempt. An attempt in the queue times out when no other one has succeeded for this long."""
LINGER_S = 10.0
"""How long a disconnected client's requests are still handled, or kept for a broker that does not read."""
_NO_LINGER = struct.pack("ii", 1, 0)


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a listener's broker. `context` is None for plaintext."""

    node_id: int | None
    """The broker's id; None for the bootstrap listener, which uses any broker."""
    addresses: Callable[[], Sequence[tuple[str, int]]]
    """Returns the broker's address, or several to try in order; empty while unknown."""
    context: ssl.SSLContext | None
    connects: ConnectQueues
    """Shared by all listeners."""
    throttle: LogThrottle
    """Shared by all listeners."""
    refusals: RefusalLog
    """Shared by all listeners."""
    on_unreachable: Callable[[], None]
    """Called when a client's connection could not reach any broker, unless the cause is a shortage on our side."""
    heard: Heard
    """Shared by all connections to the broker."""

    @property
    def broker(self) -> str:
        """The broker's name in log lines."""
        return "one of --upstream" if self.node_id is None else f"node id {self.node_id}"

    def log_closed(self, peer: str, cause: str) -> None:
        """Log that the broker closed a client's connection."""
        suppressed = self.throttle.due(("closed", self.node_id, peer, cause))
        if suppressed is not None:
            log.info(
                "broker closed the connection", broker=self.broker, peer=peer, cause=cause, others_since=suppressed
            )

    def log_unauthenticated(self, peer: str, request: bytes) -> None:
        """Log that the broker disconnected a client that did not authenticate. `request`: its first bytes."""
        api, client_id = api_and_client_of(request)
        reason = f"it sent {api} without authenticating, and the broker closed the connection"
        self.refusals.write(Refusal.NONE_SENT, peer, user=None, client_id=client_id, reason=reason)


class BrokerEvents(Protocol):
    """Callbacks of a client's broker connection."""

    @property
    def wants_broker(self) -> bool:
        """True while the client is still connected and waits for its broker."""

    def on_broker_connected(self) -> None: ...

    def on_broker_unreachable(self) -> None: ...

    def on_answer_bytes(self, data: bytes) -> None: ...

    def on_broker_lost(self, error: Exception | None) -> None:
        """Called when the broker connection is lost, but not after `close` or `abort`."""

    def on_broker_writable(self) -> None:
        """Called when `BrokerSide.is_writable` has changed."""


class BrokerSide(asyncio.Protocol):
    """One client's socket to the broker: connected once, when first needed, and closed once.

    `lost` completes when the socket is closed, by either side; `is_writable`: the broker accepts more bytes.
    """

    def __init__(self, endpoint: BrokerEndpoint, client: BrokerEvents, relayed: RelayMetrics) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_writable = True
        self.transport: asyncio.Transport | None = None
        """The connection; None before it is established, and after it is lost or closed."""
        self._endpoint = endpoint
        self._client = client
        self._relayed = relayed
        self.is_wanted = False
        """True once `connect` was called."""
        self._flow: Flow | None = None
        self._wanted_ms = 0
        self._connecting: asyncio.Task[None] | None = None

    @property
    def unsent_bytes(self) -> int:
        """Bytes buffered while the broker does not read."""
        return 0 if self.is_writable else unsent_bytes(self.transport)

    # ---- connecting and closing ------------------------------------------------------------------------

    def connect(self, failed: Callable[[Exception], None], now_ms: int) -> None:
        """Connect when the queue allows it. `failed` is called on an internal error; `now_ms`: monotonic."""
        self.is_wanted = True
        self._wanted_ms = now_ms
        self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="connect-upstream")
        self._connecting.add_done_callback(on_failure(failed))

    async def _connect(self) -> None:
        transport = await self._connected()
        if transport is None or transport.is_closing():  # the broker disconnected us at once
            self._client.on_broker_unreachable()
        elif not self._client.wants_broker:
            _reset(transport)
        else:
            self.transport, self._flow = transport, Flow(transport)
            self._client.on_broker_connected()

    async def _connected(self) -> asyncio.Transport | None:
        """Open a connection for this client alone; on failure log it and return None."""
        was_silent = True
        # Addresses with a full queue are tried last: that broker may hang, and any broker will do.
        for host, port in sorted(self._endpoint.addresses(), key=lambda each: self._endpoint.connects.to(each).is_full):
            address = f"{host}:{port}"
            try:
                transport = await self._connected_to(host, port)
            except (OSError, TimeoutError) as error:
                is_ours = log_shortage(address, error) is not None
                was_silent = not (is_ours or hung_up(error))  # a broker that disconnects may be full (reachability.py)
                if is_ours:
                    self._relayed.brokers_not_reached += 1
                else:
                    self._log_unreachable(address, str(error) or f"no answer within {CONNECT_TIMEOUT_S:g} s")
            else:
                if past := self._endpoint.throttle.end(("not reached", address)):
                    log.info("broker reachable again", address=address, seconds=past.seconds, failures=past.times)
                return transport
        if (
            was_silent and self._endpoint.heard.until_ms <= self._wanted_ms
        ):  # otherwise it accepts no more connections, but still answers other clients
            self._endpoint.on_unreachable()
        return None

    async def _connected_to(self, host: str, port: int) -> asyncio.Transport:
        """Wait in the queue, then open a connection. Raises OSError and TimeoutError."""
        queue, turn = self._endpoint.connects.to((host, port)), _Turn()
        queue.wait(turn)
        try:
            await _wait_for_turn(turn, queue)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: self, host, port, ssl=self._endpoint.context
                )
            queue.connected += 1
            return transport
        finally:
            queue.leave(turn)

    def _log_unreachable(self, address: str, error: str) -> None:
        self._relayed.brokers_not_reached += 1
        suppressed = self._endpoint.throttle.due(("not reached", address))
        if suppressed is not None:
            broker = self._endpoint.broker
            log.warning("broker unreachable", broker=broker, address=address, error=error, others_since=suppressed)

    def cancel_connect(self) -> None:
        """Cancel a pending `connect`."""
        if self._connecting is not None:
            self._connecting.cancel()

    def close(self, *, owes_nothing: bool = False) -> None:
        """Close once all bytes are sent, after LINGER_S at the latest.

        If the broker owes no response, the connection is reset instead. Otherwise our side would stay in TIME-WAIT and
        block a local port for a minute, and a client that keeps reconnecting would use up all ports.
        """
        transport = self._parted()
        if transport is not None and owes_nothing:
            _reset(transport)
        elif transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        transport = self._parted()
        if transport is not None:
            transport.abort()

    def _parted(self) -> asyncio.Transport | None:
        transport, self.transport = self.transport, None
        return transport

    # ---- bytes in both directions ----------------------------------------------------------------------

    def send(self, chunks: list[bytes]) -> None:
        """Send the chunks and clear the list; without a connection, keep them."""
        if self.transport is not None:
            self._relayed.bytes_to_brokers += send_all(self.transport, chunks)

    def turn(self, *, on: bool) -> None:
        """Resume or pause reading from the broker."""
        if self._flow is not None:
            self._flow.turn(on=on)

    def data_received(self, data: bytes) -> None:
        self._relayed.bytes_from_brokers += len(data)
        self._client.on_answer_bytes(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._parted() is not None:
            self._client.on_broker_lost(exc)

    def pause_writing(self) -> None:
        self.is_writable = False
        self._client.on_broker_writable()

    def resume_writing(self) -> None:
        self.is_writable = True
        self._client.on_broker_writable()


class _Turn:
    """A connection attempt that waits in a queue."""

    def __init__(self) -> None:
        self.begins: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_turn(self) -> None:
        if not self.begins.done():
            self.begins.set_result(None)


async def _wait_for_turn(turn: _Turn, queue: ConnectQueue) -> None:
    """Wait until the attempt may begin. Raises TimeoutError when the queue makes no progress."""
    connected = -1
    while queue.connected != connected:
        connected = queue.connected
        await asyncio.wait([turn.begins], timeout=CONNECT_TIMEOUT_S)
        if turn.begins.done():
            return
    raise TimeoutError(f"none of {queue.at_once} connection attempts succeeded within {CONNECT_TIMEOUT_S:g} s")


def _reset(transport: asyncio.Transport) -> None:
    """Close at once, without TIME-WAIT."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
