"""A client's connection to a standalone server, which answers all its requests itself."""

from collections.abc import Callable
from functools import partial

import structlog

from muster.coordinator.load.current_work import working_on
from muster.coordinator.net.client_socket import ClientSocket
from muster.coordinator.net.frames import Connection
from muster.coordinator.net.heartbeats import HeartbeatCache
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.service import Cancel
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import KeepTicket, keep_no_ticket
from muster.coordinator.wire.dispatch import ClientAddress
from muster.coordinator.wire.in_flight import Answered
from muster.coordinator.wire.messages import KEY_AND_VERSION

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Dispatch = Callable[[bytes, ClientAddress, Callable[[Answered], None], KeepTicket], Cancel | None]
"""`wire.dispatch.dispatch`, with the arguments that are the same for every connection filled in."""


class ClientConnection(ClientSocket):
    """Frames of one client. `frame_bytes_max`, `waiting_bytes_max`: as in net/frames.py."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        metrics: ServerMetrics,
        monotonic_ms: Callable[[], int],
        frame_bytes_max: int,
        waiting_bytes_max: int,
        listening: Listening["ClientConnection"],
    ) -> None:
        heartbeats = HeartbeatCache(listening.cached_heartbeats)
        connection = Connection(
            fast=heartbeats.answer, frame_bytes_max=frame_bytes_max, waiting_bytes_max=waiting_bytes_max
        )
        super().__init__(connection, heartbeats, metrics=metrics, monotonic_ms=monotonic_ms, listening=listening)
        self._dispatch = dispatch
        self._is_at_end = False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._lost(exc)
        self._transport = None
        self._turns.forget(self)
        self._share.end()
        self.heartbeats.end()
        self._connection.forget()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._listening.lost(self)
        if exc is not None:
            log.info("connection lost", peer=self.peer.client_host, cause=str(exc))

    def eof_received(self) -> bool:
        """Handle the requests that have arrived, then close, as Kafka does; the client sends no more."""
        super().eof_received()
        self._is_at_end = self._turns.is_waiting(self)
        return self._is_at_end

    def _receive_early(self, data: bytes) -> None:
        """Drop the bytes: the connection is closing."""

    def _handle(self, frame: bytes) -> Cancel | None:
        api_key, api_version = KEY_AND_VERSION.unpack_from(frame)
        self._metrics.count_request(api_key, api_version)
        keep_ticket = partial(self.heartbeats.keep, frame) if api_key == heartbeat.KEY else keep_no_ticket
        with working_on(self.work_on(api_key, api_version, frame)):
            return self._dispatch(frame, self.peer, self.answered, keep_ticket)

    def _close_if_done(self) -> None:
        if self._is_at_end and not self._turns.is_waiting(self):
            self.close()
