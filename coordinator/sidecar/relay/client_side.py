"""A client's socket; each client connection has a broker connection of its own.

So the broker alone identifies the client: SASL is relayed, and the broker is asked for the client's authorizations on
that connection. At most one request is read from a client before the broker connection is open, and a client that never
sends a whole request (a port scan, a load balancer's check) gets no broker connection. When the broker is lost, the
client is disconnected; when the client is gone, its requests are still carried out, as in Kafka, and the responses are
dropped (CC6).

This adds a broker connection to a client's socket (net/client_socket.py). `handle` knows what a request means.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial

import msgspec
import structlog

from muster.coordinator.load.slices import Slices
from muster.coordinator.net.client_socket import ClientSocket
from muster.coordinator.net.heartbeats import HeartbeatCache
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import UNKNOWN_PRINCIPAL
from muster.coordinator.service import AcceptingTicket, Cancel
from muster.coordinator.sidecar.messages.own_requests import PendingRequests
from muster.coordinator.sidecar.messages.request_plan import PlanOf, Rewrite
from muster.coordinator.sidecar.relay import broker_side
from muster.coordinator.sidecar.relay.answers import AnswerScheduler
from muster.coordinator.sidecar.relay.authorization import AuthorizationCache
from muster.coordinator.sidecar.relay.broker_side import BrokerEndpoint, BrokerSide
from muster.coordinator.sidecar.relay.conversation import Conversation
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.relay.sasl import SaslExchange
from muster.coordinator.wire.api import ProtocolError
from muster.events.ids import GroupId, MemberId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ClientSide(ClientSocket):
    """A client's socket, its conversation and its broker connection."""

    def __init__(
        self,
        *,
        endpoint: BrokerEndpoint,
        plan_of: PlanOf,
        handle: Callable[["ClientSide", bytes], Cancel | None],
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        monotonic_ms: Callable[[], int],
        limits: RelayLimits,
        listening: Listening["ClientSide"],
        slices: Slices,
    ) -> None:
        self._relayed = relayed
        heartbeats = HeartbeatCache(listening.cached_heartbeats)
        self._conversation = Conversation(
            plan_of=plan_of,
            fast=heartbeats.answer,
            limits=limits,
            new_id=partial(os.urandom, 4),
            heard=endpoint.heard,
        )
        super().__init__(
            self._conversation, heartbeats, metrics=metrics, monotonic_ms=monotonic_ms, listening=listening
        )
        self.sasl = SaslExchange()
        self.authorizations = AuthorizationCache(
            self, metrics=relayed, monotonic_ms=monotonic_ms, keep_ms=limits.authorization_cache_ms
        )
        self.authentications = 0
        """How many times the broker has authenticated the client."""
        self.slices = slices
        self.endpoint = endpoint
        self._handler = handle
        self._questions = PendingRequests()
        self._answering = AnswerScheduler(
            self._conversation.answers,
            slices,
            delay_ms=limits.delay_ms,
            went_on=self._on_answers_resumed,
            rewritten=self._rewritten,
            failed=self._cannot_answer,
        )
        self._broker = BrokerSide(endpoint, self, relayed)
        self._lingering: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_authenticated = not limits.authenticates

    # ---- for the listener ----------------------------------------------------------------------------

    @property
    def _awaits_answer(self) -> bool:
        return self._conversation.is_owed and self._all_read

    def close(self) -> None:
        """Send everything that is pending, and close both sides."""
        super().close()
        self._close_broker()

    def drain(self) -> None:
        """Accept no more requests; close after the last response."""
        self._is_draining = True
        self._answering.resume(self._conversation.end)
        self._close_if_done()

    def abort(self) -> None:
        """Close at once."""
        super().abort()
        self._questions.cancel()
        self._broker.abort()

    # ---- the client's socket -------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        """Abort this connection only: an internal error must not affect other clients, as in Kafka (G24)."""
        log.error("a connection failed", peer=self.peer.client_host, exc_info=error)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._lost(exc)
        self._transport = None
        self._client_reads = True  # nothing more is sent to it
        self._broker.cancel_connect()
        self._listening.lost(self)
        if self.is_open() and self._conversation.is_of_interest:
            self._lingering = asyncio.get_running_loop().call_later(broker_side.LINGER_S, self._end)
            self._work()
        else:
            self._end()

    def _end(self) -> None:
        """Release everything of a disconnected client."""
        self._share.end()
        self.heartbeats.end()
        self._conversation.forget()
        self._answering.stop()
        if self._lingering is not None:
            self._lingering.cancel()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
        self._close_broker()

    def _receive_early(self, data: bytes) -> None:
        """Connect to the broker as soon as there is a request; read no more until the connection is open."""
        self._conversation.receive(data)
        if not self._broker.is_wanted:
            try:
                if not self._conversation.has_request():
                    return
            except ProtocolError as error:
                self._refuse(error)
                return
            self._broker.connect(self._failed, self._monotonic_ms())
        if self._flow is not None:
            self._flow.turn(on=False)
            self._update_memory()

    # ---- the broker ----------------------------------------------------------------------------------

    @property
    def broker_lost(self) -> "asyncio.Future[None]":
        """Completes when the broker's connection is closed, by either side."""
        return self._broker.lost

    @property
    def wants_broker(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def on_broker_connected(self) -> None:
        self._work()

    def on_broker_unreachable(self) -> None:
        self.abort()

    def on_answer_bytes(self, data: bytes) -> None:
        """Process bytes from the broker."""
        now_ms = self._monotonic_ms()
        if self._is_authenticated:
            self.seen_ms = now_ms
        if data and (begins := self._conversation.answers.begins_next) is not None:
            self._relayed.answered(begins.api_key, now_ms - begins.sent_ms)
        self._answering.resume(partial(self._conversation.answers.receive, data))

    def _on_answers_resumed(self) -> None:
        if self._conversation.answers.is_served and (principal := self.sasl.proved()) is not None:
            self.authenticated(principal)
        self._work()

    def _rewritten(self) -> None:
        if self.is_open():
            self.on_answer_bytes(b"")
        elif self._transport is not None:  # the broker connection was lost in the meantime
            self._send()
            self._transport.close()

    def _cannot_answer(self, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            self._failed(error)
            return
        broker = self.endpoint.broker
        log.error("connection closed: unusable response from the broker", broker=broker, cause=str(error))
        self._metrics.protocol_errors[error.fault] += 1
        self._send()
        self.close()

    def on_broker_lost(self, error: Exception | None) -> None:
        """Send the client everything received before the loss, then close."""
        self._questions.cancel()
        if self._transport is None:
            self._end()
        elif not self._transport.is_closing():
            self._log_closed(str(error or "closed"))
            self._answering.resume(self._conversation.end)
            self._send()
            if not self._conversation.answers.is_rewriting:
                self._transport.close()

    def _log_closed(self, cause: str) -> None:
        if self.sasl.is_refused:  # already logged; brokers disconnect after a failed authentication
            return
        sent = self._conversation.unauthenticated_request
        if sent is None or self.sasl.has_begun or self._conversation.answers.is_served:
            self.endpoint.log_closed(self.peer.client_host, cause)
        else:
            self.endpoint.log_unauthenticated(self.peer.client_host, sent)

    def on_broker_writable(self) -> None:
        if self._broker.is_writable:
            self._work()
        else:
            self._update_reading()

    def _close_broker(self) -> None:
        self._questions.cancel()
        self._broker.close(owes_nothing=self._conversation.is_all_answered)

    # ---- what a request does -------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Return whether the broker is connected; its connection is closed once the client needs nothing more."""
        return self._broker.transport is not None

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """Relay the request that is being handled, unchanged or as `frame`."""
        if self.is_open():
            self._cancel = None
            self._conversation.relay(frame, rewrite)
            self._resume()

    def authenticated(self, principal: str | None) -> None:
        """Note that the broker authenticated the client, perhaps as another principal; clear cached authorizations."""
        self.authentications += 1
        self.authorizations.forget()
        self.heartbeats.clear()
        if principal is not None:
            self._conversation.authenticated()
            self._is_authenticated = True
            self.peer = msgspec.structs.replace(self.peer, principal=principal)
            if principal != UNKNOWN_PRINCIPAL:
                self._share.principal = principal
                if not self._listening.authenticated(self, principal):
                    self.close()  # clients treat it as a lost broker, and reconnect later

    def ask(self, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]:
        """Send a request of ours on the client's own connection.

        `rest` is the request after the correlation id; the future gets the response after its correlation id. The
        future is cancelled when the broker connection is lost, which ends the request that asks.
        """
        future, answered = self._questions.add()
        if self.is_open():
            self._conversation.ask(api_key, api_version, rest, answered)
            if not self._is_working:
                self._send()
        else:
            future.cancel()
        return future

    def refused_by_broker(self) -> None:
        """Do nothing: the request was not forwarded to another process."""

    def keep_heartbeat(self, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: AcceptingTicket) -> None:
        """Answer the client's next heartbeat with the same bytes on the fast path."""
        self.heartbeats.keep(frame, group_id, member_id, ticket)

    def _handle(self, frame: bytes) -> Cancel | None:
        return self._handler(self, frame)

    def _send(self) -> None:
        if self._conversation.for_broker:
            self._broker.send(self._conversation.for_broker)
        super()._send()

    @property
    def _all_read(self) -> bool:
        return self._client_reads and self._broker.is_writable

    def _unread_bytes(self) -> int:
        return super()._unread_bytes() + self._broker.unsent_bytes

    def _update_reading(self) -> None:
        super()._update_reading()
        if self.is_open():
            answers = self._conversation.answers
            self._broker.turn(on=self._client_reads and not (answers.is_rewriting or answers.has_many_waiting))

    def _close_if_done(self) -> None:
        is_gone = self._transport is None
        if not (is_gone or self._is_draining) or self._conversation.is_under_way or self._turns.is_waiting(self):
            return
        if is_gone:
            self._end()
        else:
            self.close()
