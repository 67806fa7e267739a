"""The server of a standalone coordinator: it listens on one address and answers every request itself.

Connections are in net/client_socket.py. To stop: `stop_listening`, then give up the groups, which answers parked
requests, then `close`.
"""

from collections.abc import Callable, Mapping

import msgspec

from muster.coordinator.net.limits import FRAME_BYTES_MAX, ConnectionLimits
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.service import Cancel, Service
from muster.coordinator.standalone.client_connection import ClientConnection
from muster.coordinator.wire.api import Api, KeepTicket
from muster.coordinator.wire.dispatch import ClientAddress, dispatch
from muster.coordinator.wire.in_flight import Answered


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The address to listen on, and the limits; port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 9092
    limits: ConnectionLimits = ConnectionLimits()
    frame_bytes_max: int = FRAME_BYTES_MAX
    waiting_bytes_max: int = 1_048_576


class Server:
    """Listens on one address and answers requests of the offered `apis`. `service` is passed to their handlers."""

    def __init__(
        self, *, settings: ServerSettings, service: Service, apis: Mapping[int, Api], metrics: ServerMetrics
    ) -> None:
        self._settings = settings
        self._service = service
        self._apis = apis
        self._metrics = metrics
        self._port = settings.port
        self._listening = Listening[ClientConnection](
            limits=settings.limits,
            metrics=metrics,
            monotonic_ms=service.monotonic_ms,
            call_later=service.call_later,
            answer_memory=service.slices.answer_memory,
            turns=service.turns,
        )

    @property
    def port(self) -> int:
        """The port that was bound; known once `start` has returned."""
        return self._port

    async def start(self) -> None:
        """Bind and accept. Raises OSError if the address cannot be bound."""
        self._port = await self._listening.listen(self._settings.host, self._settings.port, self._new_connection)

    def stop_listening(self) -> None:
        """Stop accepting connections; open ones continue."""
        self._listening.stop_listening()

    async def close(self, *, within_s: float = 5.0) -> None:
        """Flush and close all connections; abort those that have not read in time."""
        await self._listening.close(within_s=within_s)

    def _new_connection(self) -> ClientConnection:
        def dispatch_one(
            frame: bytes, peer: ClientAddress, answer: Callable[[Answered], None], keep_ticket: KeepTicket
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
            listening=self._listening,
        )
