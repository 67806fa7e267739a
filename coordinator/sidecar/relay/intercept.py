"""Decides by API key whether a request is relayed, relayed with its response rewritten, or handled here.

Contains the table of handled APIs and the objects that handlers are given. APIs that are not in the table are relayed
unchanged, including those of later versions of Kafka.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec

from muster.coordinator.load.current_work import RequestWork, steps_working_on, working_on
from muster.coordinator.load.slices import Pace
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.service import Cancel, HeartbeatTicket, Service
from muster.coordinator.sidecar.messages.entry_limits import entry_check
from muster.coordinator.sidecar.messages.own_requests import BrokerLink
from muster.coordinator.sidecar.messages.request_plan import RELAY, Inspect, PlanOf, RequestPlan, Rewrite
from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.coordinator.sidecar.relay.authorization import AuthorizationCache
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.limits import handled_bytes_max
from muster.coordinator.wire import api_versions, heartbeat
from muster.coordinator.wire.api import Body, Fault, Fields, Offered, ProtocolError, RequestContext, keep_no_ticket
from muster.coordinator.wire.dispatch import ClientAddress, work_on
from muster.coordinator.wire.in_flight import Answered, InFlightRequest
from muster.coordinator.wire.messages import KEY_AND_VERSION, message
from muster.events.ids import GroupId, MemberId

_PLANS_KEPT = 1_000


class HandledClient(BrokerLink, Protocol):
    """The client that sent a request: connected to this process (ClientSide) or to another one (ForwardedClient)."""

    @property
    def peer(self) -> ClientAddress: ...

    @property
    def authorizations(self) -> AuthorizationCache: ...

    @property
    def broker_lost(self) -> "asyncio.Future[None]":
        """Completes when the broker's connection is closed, by either side."""

    def is_open(self) -> bool: ...

    def answered(self, answered: Answered) -> None: ...

    def refused_by_broker(self) -> None:
        """Note that the response is an error of the broker, so another owner would get the same one."""

    def relay(self, frame: bytes | None = None, rewrite: Rewrite | None = None) -> None: ...

    def keep_heartbeat(self, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: "ConsentedTicket") -> None:
        """Answer the client's next heartbeat with the same bytes on the fast path."""

    def work_on(self, api_key: int, api_version: int, frame: bytes) -> RequestWork: ...


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is handled here. It is answered or relayed exactly once."""

    client: HandledClient
    frame: bytes
    body: Body
    context: RequestContext
    in_flight: InFlightRequest
    note: RequestWork

    def answer(self, fields: Fields) -> None:
        """Answer with these response fields, by kio's names."""
        self.in_flight.write(fields)

    def pace(self) -> Pace:
        """Return a pace for loops over many entries (see slices.py)."""
        return self.client.slices.pace()

    def relay(self) -> None:
        """Relay the request unchanged."""
        self.client.relay()

    def work(self, steps: Coroutine[Any, Any, None]) -> Cancel:
        """Run the handler's coroutine in a task. A ProtocolError, caused by the client or the broker, closes the
        connection.
        """
        task = asyncio.get_running_loop().create_task(
            steps_working_on(self.note, steps), name=f"request-{self.context.api_key}"
        )

        def ended(task: asyncio.Task[None]) -> None:
            steps.close()  # it may not have started: the client disconnected within this turn of the event loop
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self.in_flight.failed(error)

        task.add_done_callback(ended)

        def cancel() -> None:
            task.cancel()

        return cancel


class SidecarApi(Offered, frozen=True, kw_only=True):
    """An API that is handled here. `versions`: those that can be decoded; brokers may offer fewer.

    `inspect`: given the version and the Rewrite for relayed responses, returns a function that decides by a request's
    first bytes whether to handle or relay it. Without `handle`, all requests are relayed after `inspect` has read them.
    """

    handle: Callable[[ClientRequest], Cancel | None] | None = None
    inspect: Callable[[int, Rewrite | None], Inspect] | None = None


class RequestHandler:
    """Handles requests of clients that are connected to any of the processes. `handled`: the APIs by key."""

    def __init__(self, *, handled: Mapping[int, SidecarApi], metrics: ServerMetrics, service: Service) -> None:
        self._handled = handled
        self._metrics = metrics
        self._service = service

    def handle(self, client: HandledClient, frame: bytes, *, member_uuid: str = "") -> Cancel | None:
        """Handle a request. Raises ProtocolError. `member_uuid`: as in RequestContext."""
        api_key, api_version = KEY_AND_VERSION.unpack_from(frame)
        if api_key == api_versions.KEY:
            client.answered([message(api_key, 0).write(api_versions.unsupported_version())])
            return None
        self._metrics.count_request(api_key, api_version)
        note = client.work_on(api_key, api_version, frame)
        api = self._handled[api_key]

        def handle(body: Body, context: RequestContext, in_flight: InFlightRequest) -> Cancel | None:
            assert api.handle is not None
            return api.handle(
                ClientRequest(client=client, frame=frame, body=body, context=context, in_flight=in_flight, note=note)
            )

        keep_ticket = partial(_keep, client, frame) if api_key == heartbeat.KEY else keep_no_ticket
        with working_on(note):
            return work_on(
                frame,
                service=self._service,
                peer=client.peer,
                answer=client.answered,
                keep_ticket=keep_ticket,
                handle=handle,
                member_uuid=member_uuid,
            )


Handle = Callable[[ClientSide, bytes], Cancel | None]
Forward = Callable[[ClientSide, bytes, Handle], bool]
"""Forwards a request to another process and returns True, or returns False. If forwarding fails, the given function
handles the request.
"""


def forward_nothing(_client: ClientSide, _frame: bytes, _handle: Handle) -> bool:
    """Forward no request: the default, where no other process owns groups."""
    return False


class Interceptor(RequestHandler):
    """Decides by API key what to do with a request. `handled`: the APIs that are handled here, by key.

    `forward` is called with each request to be handled, before it is decoded.
    """

    def __init__(
        self,
        *,
        handled: Mapping[int, SidecarApi],
        rewriting: AnswerRewriter,
        metrics: ServerMetrics,
        service: Service,
        forward: Forward = forward_nothing,
    ) -> None:
        super().__init__(handled=handled, metrics=metrics, service=service)
        self._forward = forward
        self._rewriting = rewriting
        self.plan_of: PlanOf = lru_cache(maxsize=_PLANS_KEPT)(self._make_plan)
        """The cached `_make_plan`; its size is limited, since clients may send any API key and version."""

    def handle_own(self, client: ClientSide, frame: bytes) -> Cancel | None:
        """Handle a request of a client that is connected here. Raises ProtocolError."""
        return None if self._forward(client, frame, self.handle) else self.handle(client, frame)

    def _make_plan(self, api_key: int, api_version: int) -> RequestPlan:
        """Plan a request (see conversation.py). Raises ProtocolError."""
        api = self._handled.get(api_key)
        if api is not None:
            _check(api.name, api.versions, api_version)
            if api.inspect is None:
                return _take(api_key)
            return RequestPlan(inspect=api.inspect(api_version, self._rewriting.of(api_key, api_version)))
        if api_key == api_versions.KEY and api_version not in api_versions.VERSIONS:
            return _take(api_key)  # answered in v0, so that the client retries with a known version (KIP-511)
        versions = self._rewriting.versions(api_key)
        if versions is not None:
            _check(f"API key {api_key}", versions, api_version)
        rewrite = self._rewriting.of(api_key, api_version)
        plan = RELAY if rewrite is None else RequestPlan(rewrite=rewrite)
        check = entry_check(api_key, api_version, plan)
        return plan if check is None else RequestPlan(inspect=check)


class ConsentedTicket(msgspec.Struct, frozen=True):
    """A heartbeat ticket that expires with the client's authorization; then the next heartbeat is handled in full."""

    ticket: HeartbeatTicket
    until_ms: int

    def accept(self, now_ms: int) -> bool:
        return now_ms < self.until_ms and self.ticket.accept(now_ms)

    def when_changed(self, changed: Callable[[], None]) -> None:
        self.ticket.when_changed(changed)


def _keep(client: HandledClient, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: HeartbeatTicket) -> None:
    authorization = client.authorizations.last(group_id)
    if authorization is not None:
        client.keep_heartbeat(frame, group_id, member_id, ConsentedTicket(ticket, authorization.until_ms))


def _take(api_key: int) -> RequestPlan:
    return RequestPlan(is_handled=True, handled_bytes_max=handled_bytes_max(api_key))


def _check(name: str, versions: range, api_version: int) -> None:
    if api_version not in versions:
        raise ProtocolError(
            Fault.UNSUPPORTED_VERSION,
            f"{name} v{api_version} is not offered here, v{versions[0]} to v{versions[-1]} are",
        )
