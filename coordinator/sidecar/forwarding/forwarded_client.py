"""A client of another process, as the handlers of this one see it: the counterpart of `ClientSide`.

It turns a handler's actions into messages to the frontend, the process that the client is connected to.

The broker knows the client by its connection, which is the frontend's. So questions to the broker go through the
frontend, including those for authorizations, which are cached here for each connection separately. An accepted
heartbeat permits the frontend to answer the next ones itself (delegated_heartbeats.py); the frontend reports afterwards
which members sent some.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.outcomes import Superseded
from muster.coordinator.load.current_work import RequestWork
from muster.coordinator.load.slices import Slices
from muster.coordinator.net.heartbeats import HeartbeatCache, SharedBytes
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.peers.link.peer_messages import (
    Answered,
    AnyMessage,
    Closed,
    Delegated,
    NotOwned,
    Relay,
    RequestSuperseded,
)
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.messages.request_plan import Rewrite
from muster.coordinator.sidecar.relay.authorization import AuthorizationCache
from muster.coordinator.sidecar.relay.intercept import ConsentedTicket, RequestHandler
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.tasks import on_failure
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.dispatch import ClientAddress
from muster.coordinator.wire.in_flight import Answered as AnsweredWith
from muster.coordinator.wire.messages import HEADER_START_BYTES, KEY_AND_VERSION
from muster.events.ids import GroupId, MemberId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


AskFrontend = Callable[["ForwardedClient", int, int, bytes], asyncio.Future[bytes]]
WatchGroup = Callable[[GroupId, ConsentedTicket], None]


class _Accepted(msgspec.Struct, frozen=True):
    """The accepted heartbeat that is being answered."""

    group_id: GroupId
    member_id: MemberId
    ticket: ConsentedTicket


class ForwardedClient:
    """A remote client, for handlers.

    `send` sends a message to its frontend, `ask_frontend` asks the broker through the frontend, and `watch` notifies
    the frontend when the group of a ticket changes.
    """

    def __init__(
        self,
        number: int,
        peer: ClientAddress,
        record: ConnectionRecord,
        *,
        send: Callable[[AnyMessage], None],
        ask_frontend: AskFrontend,
        watch: WatchGroup,
        handler: RequestHandler,
        slices: Slices,
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        cached_heartbeats: SharedBytes,
        monotonic_ms: Callable[[], int],
        authorization_cache_ms: int,
    ) -> None:
        self.number = number
        self.peer = peer
        self.record = record
        self.slices = slices
        self.authorizations = AuthorizationCache(
            self, metrics=relayed, monotonic_ms=monotonic_ms, keep_ms=authorization_cache_ms
        )
        self.broker_lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes when the client or its broker has disconnected."""
        self.questions: set[int] = set()
        """The numbers of this client's questions that the frontend has not answered."""
        self._send = send
        self._ask_frontend = ask_frontend
        self._watch = watch
        self._heartbeats = HeartbeatCache(cached_heartbeats)
        """The heartbeats that the frontend may answer."""
        self._accepted: _Accepted | None = None
        self._handler = handler
        self._metrics = metrics
        self._monotonic_ms = monotonic_ms
        self._cancel: Cancel | None = None
        self._rewriting: asyncio.Task[None] | None = None
        self._frame = b""
        self._is_answered = True
        self._is_refused_by_broker = False

    def is_open(self) -> bool:
        """Return whether the client is still connected."""
        return not self.broker_lost.done()

    def take(self, frame: bytes, member_uuid: str) -> None:
        """Handle the client's next request. Cancels an unfinished one, whose response would be taken for this one's."""
        self._end()
        self._frame, self._is_answered, self._accepted = frame, False, None
        self._is_refused_by_broker = False
        try:
            cancel = self._handler.handle(self, frame, member_uuid=member_uuid)
        except ProtocolError as error:
            self.answered(error)
        except Exception as error:  # an internal error must affect this client only, as in Kafka (G24)
            log.exception("a forwarded request failed", api_key=KEY_AND_VERSION.unpack_from(frame)[0])
            self.answered(ProtocolError(Fault.FAILED_REQUEST, f"could not handle it: {error!r}"))
        else:
            self._cancel = None if self._is_answered else cancel

    def note_heartbeat(self, frame: bytes, age_ms: int) -> bool:
        """Note that the frontend answered this heartbeat `age_ms` ago; return False if the group has changed since."""
        _, api_version = KEY_AND_VERSION.unpack_from(frame)
        last_seen_ms = self._monotonic_ms() - age_ms
        self.record.received_ms = max(self.record.received_ms, last_seen_ms)
        return self._heartbeats.answer(api_version, frame[HEADER_START_BYTES:], last_seen_ms) is not None

    def gone(self) -> None:
        """Cancel everything that the client waits for: it has disconnected."""
        if not self.broker_lost.done():
            self.broker_lost.set_result(None)
        self._end()
        self._heartbeats.end()

    def _end(self) -> None:
        cancel, self._cancel = self._cancel, None
        rewriting, self._rewriting = self._rewriting, None
        if cancel is not None:
            cancel()
        if rewriting is not None:
            rewriting.cancel()

    # ---- what a request does -------------------------------------------------------------------------

    def answered(self, answered: AnsweredWith) -> None:
        """Answer the request that is being handled."""
        if isinstance(answered, Superseded):
            self._done(RequestSuperseded(self.number))
        elif isinstance(answered, ProtocolError):
            self._done(Closed(self.number, answered.fault.value, str(answered)))
        else:
            payload = b"".join(answered)
            self._done(self._delegated(payload) or Answered(self.number, payload, self._is_refused_by_broker))

    def refused_by_broker(self) -> None:
        """Note that the response is the broker's error, so that the frontend asks no other owner."""
        self._is_refused_by_broker = True

    def keep_heartbeat(self, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: ConsentedTicket) -> None:
        """Once this heartbeat is answered, let the frontend answer the client's next ones with the same bytes."""
        if self._heartbeats.keep(frame, group_id, member_id, ticket):
            self._accepted = _Accepted(group_id, member_id, ticket)

    def _delegated(self, payload: bytes) -> Delegated | None:
        """Return the response with permission to repeat it, or None if there is none or it has expired."""
        accepted, self._accepted = self._accepted, None
        now_ms = self._monotonic_ms()
        if accepted is None or not accepted.ticket.accept(now_ms):
            return None
        self._watch(accepted.group_id, accepted.ticket)
        valid_ms = accepted.ticket.until_ms - now_ms
        return Delegated(self.number, payload, accepted.group_id, accepted.member_id, valid_ms)

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None:
        """Have the frontend relay the request unchanged. With a `frame` or `rewrite`, ask the broker through the
        frontend instead.
        """
        if frame is None and rewrite is None:
            self._done(Relay(self.number))
        elif not self._is_answered:
            steps = self._ask_and_rewrite(self._frame if frame is None else frame, rewrite)
            self._rewriting = asyncio.get_running_loop().create_task(steps, name="forwarded-answer")
            self._rewriting.add_done_callback(on_failure(self._failed))

    def not_owned(self) -> None:
        """Notify the frontend that this process does not own the request's group."""
        self._done(NotOwned(self.number))

    def ask(self, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]:
        """Send a request to the broker, as `ClientSide.ask` does."""
        return self._ask_frontend(self, api_key, api_version, rest)

    def work_on(self, api_key: int, api_version: int, frame: bytes) -> RequestWork:
        """Describe the request for the watchdog of the event loop."""
        return RequestWork(
            api=self._metrics.api_name(api_key),
            api_version=api_version,
            size_bytes=len(frame),
            connection=self.peer.client_host,
            principal=self.peer.principal,
        )

    async def _ask_and_rewrite(self, frame: bytes, rewrite: Rewrite | None) -> None:
        api_key, api_version = KEY_AND_VERSION.unpack_from(frame)
        payload = await self.ask(api_key, api_version, frame[HEADER_START_BYTES:])
        self.answered([payload if rewrite is None else await self.slices.result(rewrite(payload))])

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, ProtocolError):
            log.error("could not rewrite a forwarded response", exc_info=error)
            error = ProtocolError(Fault.FAILED_REQUEST, f"could not rewrite its response: {error!r}")
        self.answered(error)

    def _done(self, message: AnyMessage) -> None:
        if not self._is_answered and self.is_open():
            self._is_answered, self._cancel, self._frame = True, None, b""
            self._send(message)
