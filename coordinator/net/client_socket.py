"""A client's socket around a `Connection`, in both modes: turns, back-pressure, memory, closing.

    bytes in   -> frames (frames.py) -> known heartbeats, answered at once
                                     -> requests, each passed to `_handle` when those before it are answered
    responses  -> in the order of requests -> one write for all of a turn

The methods in which the modes differ are at the end: standalone/client_connection.py answers everything itself,
sidecar/relay/client_side.py has a broker behind it. Knows nothing of the meaning of requests.

The requests of one read are handled in one go, with one write for all responses, unless other connections wait
(load/turns.py). Nothing here blocks: a request that is answered later (a parked join, a fetch) leaves the connection
unchanged until `answered` is called. No request is started from within a response: it waits for the connection's next
turn. Back-pressure works both ways: a client that does not read its responses, or has too much waiting, is not read
from.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import structlog

from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.outcomes import Superseded
from muster.coordinator.load.current_work import RequestWork
from muster.coordinator.net.flow import Flow, send_all
from muster.coordinator.net.frames import Connection
from muster.coordinator.net.heartbeats import HeartbeatCache
from muster.coordinator.net.hosts import java_host
from muster.coordinator.net.listening import Listening
from muster.coordinator.net.memory import FREE_BYTES, ConnectionMemory, EvictionOrder, unsent_bytes
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS
from muster.coordinator.service import Cancel
from muster.coordinator.wire.api import ProtocolError
from muster.coordinator.wire.dispatch import ClientAddress
from muster.coordinator.wire.in_flight import Answered
from muster.events.connection import ConnectionEnd

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

ANSWERED_BYTES_MAX = 256 * 1024
"""The size of responses after which a turn ends: they are sent, and other connections take their turns."""


class ClientSocket(asyncio.Protocol):
    """The asyncio protocol of a client's connection. `seen_ms`: when a request or a response last progressed
    (monotonic).

    Until a client that has to authenticate has done so, it is the time at which it connected.
    """

    def __init__(
        self,
        connection: Connection,
        heartbeats: HeartbeatCache,
        *,
        metrics: ServerMetrics,
        monotonic_ms: Callable[[], int],
        listening: Listening[Any],
    ) -> None:
        self.seen_ms = monotonic_ms()
        self.unread_since_ms: int | None = None
        self.record = ConnectionRecord()
        self.peer = ClientAddress(client_host="", principal=ANONYMOUS, connection=self.record)
        self.address = ""
        self.heartbeats = heartbeats
        self._connection = connection
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._listening = listening
        self._turns = listening.turns
        self._share = ConnectionMemory(listening.memory, eviction_order=self._eviction_order, abort=self.abort)
        self._transport: asyncio.Transport | None = None
        self._flow: Flow | None = None
        self._cancel: Cancel | None = None
        self._is_authenticated = True
        self._is_working = False
        self._client_reads = True
        self._answered_bytes = 0

    # ---- for the listener ----------------------------------------------------------------------------

    @property
    def client_host(self) -> str:
        return self.peer.client_host

    @property
    def is_parked(self) -> bool:
        """True if the client reads, and waits for other members of its group; then it is not idle (P17)."""
        return self._connection.is_parked and self._all_read

    @property
    def _awaits_answer(self) -> bool:
        return self._connection.is_handling and self._all_read

    def _eviction_order(self) -> EvictionOrder:
        if not self._is_authenticated:
            return EvictionOrder.UNAUTHENTICATED
        return EvictionOrder.AWAITING_ANSWER if self._awaits_answer else EvictionOrder.STALLED

    @property
    def is_closing(self) -> bool:
        """True if the connection closes once the client has read what was sent."""
        return self._transport is not None and self._transport.is_closing()

    def close(self) -> None:
        """Flush, and close."""
        if self._transport is not None:
            self._ended(ConnectionEnd.CLOSED_BY_COORDINATOR)
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._ended(ConnectionEnd.CLOSED_BY_COORDINATOR)
            self._transport.abort()

    # ---- the socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = transport.get_extra_info("peername")
        if address is None:  # already disconnected
            transport.close()
            return
        host = java_host(address[0])
        self.peer = ClientAddress(client_host=host, principal=self.peer.principal, connection=self.record)
        self.address = f"{address[0]}:{address[1]}"
        self._share.client_host = self.peer.client_host
        if not self._listening.made(self):  # over a limit
            transport.close()
            return
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is not a subclass
        self._flow = Flow(self._transport)

    def eof_received(self) -> bool:
        """Note that the client has closed its side; return whether ours is closed later."""
        self._ended(ConnectionEnd.CLOSED)
        return False

    def _ended(self, end: ConnectionEnd) -> None:
        self.record.ended(end, self._monotonic_ms())

    def _lost(self, error: Exception | None) -> None:
        """Note how the connection ended, unless that is known: without an error it was closed here."""
        if error is None:
            self._ended(ConnectionEnd.CLOSED_BY_COORDINATOR)
        elif isinstance(error, ConnectionError):
            self._ended(ConnectionEnd.RESET)
        else:
            self._ended(ConnectionEnd.TIMED_OUT if isinstance(error, TimeoutError) else ConnectionEnd.UNKNOWN)

    def pause_writing(self) -> None:
        self._client_reads = False
        self.unread_since_ms = self._monotonic_ms()
        self._update_reading()

    def resume_writing(self) -> None:
        self._client_reads = True
        self.unread_since_ms = None
        self._work()

    def data_received(self, data: bytes) -> None:
        """Answer known heartbeats immediately if nothing else waits; process everything else the usual way."""
        self._metrics.bytes_received += len(data)
        if not self.is_open():
            self._receive_early(data)
        elif not self._turns.begin(self):
            self._connection.receive(data)
            self._send()
        elif self._share.is_counted or not self._all_read:
            self._connection.receive(data)
            self.take_turn()
        elif self._connection.receive_known(data, now_ms := self._monotonic_ms()):
            self.record.received_ms = now_ms
            if self._is_authenticated:
                self.seen_ms = now_ms
            self._send_to_client()
        else:
            self.take_turn()

    # ---- what a request does -------------------------------------------------------------------------

    def answered(self, answered: Answered) -> None:
        """Answer the request that is being handled."""
        if not self.is_open():
            return  # the client has disconnected, so its response is dropped as in Kafka (CC6)
        self._cancel = None
        if isinstance(answered, ProtocolError):
            self._refuse(answered)
            return
        if isinstance(answered, Superseded):
            self._connection.supersede()
            self._update_reading()
            self._close_if_done()
            return
        self._connection.answer(*answered)
        self._answered_bytes += sum(map(len, answered))
        self._resume()

    def work_on(self, api_key: int, api_version: int, frame: bytes) -> RequestWork:
        """Describe the request for the watchdog of the loop."""
        return RequestWork(
            api=self._metrics.api_name(api_key),
            api_version=api_version,
            size_bytes=len(frame),
            connection=self.address,
            principal=self.peer.principal,
        )

    def _resume(self) -> None:
        """Continue after a request that was handled."""
        if self._is_working:
            return
        if self._is_authenticated:
            self.seen_ms = self._monotonic_ms()
        self._send()
        if self._connection.waiting_bytes:
            self._turns.wait(self)
        else:
            self._close_if_done()

    def _work(self) -> None:
        """Take a turn now, or as soon as it is this connection's."""
        if not self.is_open():
            return
        if self._turns.begin(self):
            self.take_turn()
        else:
            self._send()

    def take_turn(self) -> None:
        """Handle requests until one has to wait, none is left, a peer does not read, or the slice is over; then write
        all responses at once.
        """
        if not self.is_open():
            return
        now_ms = self._monotonic_ms()
        has_failed, self._is_working = True, True
        try:
            self._take_requests(now_ms)
            has_failed = False
        except ProtocolError as error:  # not kept beyond this block: its traceback references the request
            has_failed = False
            self._send()
            self._refuse(error)
        finally:
            self._is_working = False
            if has_failed:  # a bug of ours affects only this client, as in Kafka (G24)
                self.abort()
        if self._connection.take_progress() and self._is_authenticated:
            self.seen_ms = now_ms
        self._send()
        self._close_if_done()

    def _take_requests(self, now_ms: int) -> None:
        connection, turns, taken = self._connection, self._turns, 0
        while self._all_read and self.is_open():
            frame = connection.next_request(now_ms)
            if frame is None:
                if connection.is_interrupted:
                    turns.wait(self)
                return
            cancel = self._handle(frame)
            if connection.is_handling:
                self._cancel = cancel
            taken += 1
            if taken >= turns.share or self._answered_bytes > ANSWERED_BYTES_MAX or turns.is_over:
                if connection.waiting_bytes:
                    turns.wait(self)
                return

    def _send(self) -> None:
        self._send_to_client()
        self._update_reading()

    def _send_to_client(self) -> None:
        self._metrics.fast_heartbeats += self.heartbeats.hits
        self.heartbeats.hits = self._answered_bytes = 0
        for_client = self._connection.for_client
        if for_client:
            if self._transport is not None and not self._transport.is_closing():
                self._metrics.bytes_sent += send_all(self._transport, for_client)
            for_client.clear()

    def _update_reading(self) -> None:
        """Pause or resume reading: back-pressure, in both directions."""
        self._update_memory()
        if self._flow is not None and self.is_open():
            connection = self._connection
            must_wait = connection.held_bytes > FREE_BYTES and self._turns.is_waiting(self)
            self._flow.turn(on=self._all_read and not connection.is_full and not must_wait)

    def _update_memory(self) -> None:
        held = self._connection.held_bytes
        if held > FREE_BYTES or self._share.is_counted or not self._all_read:
            self._share.count(held + self._unread_bytes())

    def _refuse(self, error: ProtocolError) -> None:
        self._metrics.protocol_errors[error.fault] += 1
        self._metrics.bytes_rejected += self._connection.waiting_bytes
        log.warning("connection closed", peer=self.peer.client_host, fault=error.fault.value, cause=str(error))
        self.close()

    # ---- where the modes differ ----------------------------------------------------------------------

    def is_open(self) -> bool:
        """Return whether requests of the client are still handled."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _all_read(self) -> bool:
        """True if every peer that we write to reads; while one does not, no request is started."""
        return self._client_reads

    def _unread_bytes(self) -> int:
        """Return the number of bytes that peers have not read yet."""
        return 0 if self._client_reads else unsent_bytes(self._transport)

    @abstractmethod
    def _receive_early(self, data: bytes) -> None:
        """Process bytes of the client while it is not open."""

    @abstractmethod
    def _handle(self, frame: bytes) -> Cancel | None:
        """Handle a request; `answered` is called now or later. Return a function that cancels it."""

    @abstractmethod
    def _close_if_done(self) -> None:
        """Close if closing waited for requests in flight, and none is left."""
