"""The owner of groups, for clients of other processes: handles the requests that those processes forward.

Receives the messages of the frontends and keeps track of the clients behind them. A forwarded request is handled like
one of this process's own clients. If this process does not own its group, the frontend is notified at once, and nothing
is decided or requested upstream.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.net.heartbeats import SharedBytes
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.peers.link.peer_connection import PeerConnection
from muster.coordinator.peers.link.peer_messages import (
    HIGHEST_TAG,
    AnyMessage,
    AskBroker,
    BrokerAnswered,
    Connected,
    Disconnected,
    Forwarded,
    HeartbeatReport,
    Leases,
    ListOwned,
    Owned,
    OwnedGroup,
    ReportedHeartbeat,
    RequestSuperseded,
    Revoked,
)
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.forwarding.forwarded_client import ForwardedClient
from muster.coordinator.sidecar.forwarding.group_apis import MANY_BYTES, OF_MANY_GROUPS, OF_ONE_GROUP
from muster.coordinator.sidecar.forwarding.paced import Paced
from muster.coordinator.sidecar.groups.owned_groups import ListOwned as ListOwnGroups
from muster.coordinator.sidecar.relay.intercept import ClientRequest, ConsentedTicket, RequestHandler, SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.tasks import BackgroundTasks
from muster.coordinator.wire import heartbeat, sync_group
from muster.coordinator.wire.api import Body, RequestContext, keep_no_ticket
from muster.coordinator.wire.dispatch import ClientAddress, work_on
from muster.coordinator.wire.in_flight import InFlightRequest
from muster.events.connection import ConnectionEnd
from muster.events.ids import GroupId
from muster.events.steps import entries_of

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LISTED_AT_ONCE: Final = 1_000
LISTED_CHARACTERS: Final = 16_384
"""Limits of one message, so that it is sent whole and in order: the number of groups, and of characters in their ids
and types.
"""


_ENDS: Final = frozenset(ConnectionEnd)


class ForwardingPeer(Protocol):
    """A process that forwards requests."""

    node_id: int | None
    highest_tag: int
    """The highest tag of the messages that it understands."""

    def send(self, message: AnyMessage) -> None: ...


class _Clients(msgspec.Struct, eq=False):
    """The clients of one frontend, by number, and the questions that the frontend has not answered."""

    by_number: dict[int, ForwardedClient] = msgspec.field(default_factory=dict)
    questions: dict[int, tuple[ForwardedClient, asyncio.Future[bytes]]] = msgspec.field(default_factory=dict)
    """The open questions by number; each client has the numbers of its own questions."""
    watched: set[GroupId] = msgspec.field(default_factory=set)
    """The groups whose changes the frontend is notified of."""


class ForwardedRequests:
    """Handles other processes' requests. Call `handle_by` first.

    `is_assigned`: this process owns the group; `is_loading`: it does not serve it yet; `leases`: for how many ms
    responses from memory may be sent, by partition of the log.
    """

    def __init__(
        self,
        service: Service,
        *,
        is_assigned: Callable[[GroupId], bool],
        is_loading: Callable[[GroupId], bool],
        leases: Callable[[], dict[int, int]],
        list_own: ListOwnGroups,
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        authorization_cache_ms: int,
        failed: Callable[[Exception], None],
    ) -> None:
        self._service = service
        self._list_own = list_own
        self._is_assigned = is_assigned
        self._is_loading = is_loading
        self._leases = leases
        self._metrics = metrics
        self._relayed = relayed
        self._authorization_cache_ms = authorization_cache_ms
        self._cached_heartbeats = SharedBytes()
        self._handler = RequestHandler(handled={}, metrics=metrics, service=service)
        self._frontends: dict[ForwardingPeer, _Clients] = {}
        self._questions = itertools.count(1)
        self._watched: dict[GroupId, set[ForwardingPeer]] = {}
        """The frontends that may answer heartbeats of a group's members, until the group changes."""
        self._tasks = BackgroundTasks(failed)
        self._paced = Paced()

    def handle_by(self, apis: Mapping[int, SidecarApi]) -> None:
        """Use these APIs, which handle this process's own groups, for forwarded requests."""
        named = OF_ONE_GROUP | OF_MANY_GROUPS.keys()
        handled = {key: self._checked(api) for key, api in apis.items() if key in named}
        self._handler = RequestHandler(handled=handled, metrics=self._metrics, service=self._service)

    def accepted(self, connection: PeerConnection) -> None:
        """Accept requests of another process."""
        connection.handle = partial(self.received, connection)

    def lost(self, frontend: ForwardingPeer) -> None:
        """Remove all clients of a frontend that has disconnected, a few at a time."""
        clients = self._frontends.pop(frontend, None)
        if clients is None:
            return
        for client in clients.by_number.values():  # their connections may still exist
            client.record.ended(ConnectionEnd.UNKNOWN, self._service.monotonic_ms())
        for group_id in clients.watched:  # otherwise a frontend that reconnects often would leak entries
            self._watched[group_id].discard(frontend)
        self._paced.call(partial(self._on_closed, clients, client) for client in clients.by_number.values())

    async def close(self) -> None:
        """Remove all clients."""
        for clients in self._frontends.values():
            for client in list(clients.by_number.values()):
                self._on_closed(clients, client)
        self._frontends.clear()
        await self._tasks.close()

    def received(self, frontend: ForwardingPeer, message: AnyMessage) -> None:
        """Handle a message of a frontend; ignore messages that only owners send."""
        clients = self._clients_of(frontend)
        match message:
            case Connected():
                self._introduce(frontend, clients, message, ConnectionRecord(edge=frontend.node_id))
            case Disconnected(connection=number):
                client = clients.by_number.pop(number, None)
                if client is not None:
                    self._note_end(client, message)
                    self._on_closed(clients, client)
            case Forwarded(connection=number, frame=frame, member_uuid=member_uuid):
                client = clients.by_number.get(number)
                if client is not None:
                    client.take(frame, member_uuid)
            case BrokerAnswered():
                self._broker_answered(clients, message)
            case HeartbeatReport(sent_ms=sent_ms, members=members):
                for member in members:
                    self._count_heartbeat(clients.by_number.get(member.connection), member)
                frontend.send(Leases(sent_ms, self._leases()))
            case ListOwned(question=question):
                self._tasks.start(self._list(frontend, question), "list-owned")

    def introduce_own(self, frontend: ForwardingPeer, connected: Connected, record: ConnectionRecord) -> None:
        """Add a client of this process itself, with its connection's record."""
        self._introduce(frontend, self._clients_of(frontend), connected, record)

    def _clients_of(self, frontend: ForwardingPeer) -> _Clients:
        clients = self._frontends.get(frontend)
        if clients is None:
            clients = self._frontends[frontend] = _Clients()
        return clients

    def _note_end(self, client: ForwardedClient, told: Disconnected) -> None:
        """Record how the client's connection to the frontend ended, if it did."""
        if told.end is None:
            return
        end = ConnectionEnd(told.end) if told.end in _ENDS else ConnectionEnd.UNKNOWN
        client.record.ended(end, self._service.monotonic_ms() - max(0, told.age_ms))

    def _introduce(
        self, frontend: ForwardingPeer, clients: _Clients, connected: Connected, record: ConnectionRecord
    ) -> None:
        def ask_frontend(client: ForwardedClient, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]:
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            if client.is_open():
                question = next(self._questions)
                clients.questions[question] = client, answer
                client.questions.add(question)
                frontend.send(AskBroker(client.number, question, api_key, api_version, rest))
            else:
                answer.cancel()
            return answer

        def send(message: AnyMessage) -> None:
            # An older version would consider the link broken; its request just stays unanswered.
            if frontend.highest_tag >= HIGHEST_TAG or not isinstance(message, RequestSuperseded):
                frontend.send(message)

        host, principal = connected.client_host, connected.principal
        peer = ClientAddress(client_host=host, principal=principal, connection=record)
        clients.by_number[connected.connection] = ForwardedClient(
            connected.connection,
            peer,
            record,
            send=send,
            ask_frontend=ask_frontend,
            watch=partial(self._watch, frontend, clients),
            handler=self._handler,
            slices=self._service.slices,
            metrics=self._metrics,
            relayed=self._relayed,
            cached_heartbeats=self._cached_heartbeats,
            monotonic_ms=self._service.monotonic_ms,
            authorization_cache_ms=self._authorization_cache_ms,
        )

    def _broker_answered(self, clients: _Clients, answered: BrokerAnswered) -> None:
        asker, answer = clients.questions.pop(answered.question, (None, None))
        if asker is None or answer is None:
            return
        asker.questions.discard(answered.question)
        if not answer.done():
            answer.cancel() if answered.payload is None else answer.set_result(answered.payload)

    def _count_heartbeat(self, client: ForwardedClient | None, heard: ReportedHeartbeat) -> None:
        """Count a heartbeat that the frontend answered: in full, by the rules, if the group has changed in the
        meantime.
        """
        if client is None or client.note_heartbeat(heard.frame, heard.age_ms):
            return
        arrived_ms = self._service.monotonic_ms() - heard.age_ms

        def count(body: Body, context: RequestContext, in_flight: InFlightRequest) -> None:
            then = msgspec.structs.replace(context, arrived_ms=arrived_ms)
            heartbeat.handle(body, then, self._service, in_flight.write)

        work_on(
            heard.frame,
            service=self._service,
            peer=client.peer,
            answer=lambda _: None,  # the frontend has answered it
            keep_ticket=keep_no_ticket,
            handle=count,
        )

    def _watch(self, frontend: ForwardingPeer, clients: _Clients, group_id: GroupId, ticket: ConsentedTicket) -> None:
        """Notify the frontend when the group changes."""
        if (
            self._frontends.get(frontend) is not clients
        ):  # it has disconnected, and some of its clients are not removed yet
            return
        clients.watched.add(group_id)
        watched = self._watched.get(group_id)
        if watched is not None:
            watched.add(frontend)
            return
        self._watched[group_id] = {frontend}
        ticket.when_changed(partial(self._changed, group_id))

    def _changed(self, group_id: GroupId) -> None:
        for frontend in self._watched.pop(group_id):
            if frontend in self._frontends:
                self._frontends[frontend].watched.discard(group_id)
                frontend.send(Revoked(group_id))

    def _on_closed(self, clients: _Clients, client: ForwardedClient) -> None:
        client.gone()
        for question in client.questions:
            _, answer = clients.questions.pop(question)
            answer.cancel()
        client.questions.clear()

    async def _list(self, frontend: ForwardingPeer, question: int) -> None:
        try:
            groups = await self._list_own()
        except Exception:
            log.exception("could not list the groups of this process")
            groups = ErrorCode.unknown_server_error
        if isinstance(groups, ErrorCode):
            frontend.send(Owned(question, [], groups.value, is_last=True))
            return
        pace, some, size = self._service.slices.pace(), list[OwnedGroup](), 0
        for group in groups:
            if len(some) >= LISTED_AT_ONCE or size > LISTED_CHARACTERS:
                frontend.send(Owned(question, some, ErrorCode.none.value, is_last=False))
                some, size = [], 0
            some.append(group)
            size += len(group.group_id) + len(group.protocol_type or "")
            await pace.worked()
        frontend.send(Owned(question, some, ErrorCode.none.value, is_last=True))

    def _checked(self, api: SidecarApi) -> SidecarApi:
        """Return the API for forwarded requests, which handles only groups that are assigned to this process."""

        def handle(request: ClientRequest) -> Cancel | None:
            assert isinstance(request.client, ForwardedClient)
            assert api.handle is not None
            if len(request.frame) > MANY_BYTES and api.key in OF_MANY_GROUPS:
                return request.work(check_and_handle(request))
            if api.key == sync_group.API.key and self._is_loading(request.body.group_id):
                # The response would be REBALANCE_IN_PROGRESS (QK8), and a leader's rejoin makes all others rejoin.
                request.client.not_owned()
                return None
            if all(map(self._is_assigned, _groups_of(api.key, request.body))):
                return api.handle(request)
            request.client.not_owned()
            return None

        async def check_and_handle(request: ClientRequest) -> None:
            assert isinstance(request.client, ForwardedClient)
            assert api.handle is not None
            pace = request.pace()
            for group_id in _groups_of(api.key, request.body):
                if not self._is_assigned(group_id):
                    request.client.not_owned()
                    return
                await pace.worked(entries_of(group_id))
            request.in_flight.drops(api.handle(request))

        return msgspec.structs.replace(api, handle=handle, inspect=None)


def _groups_of(api_key: int, body: Any) -> Iterator[GroupId]:  # noqa: ANN401 -- a request of any version
    many = OF_MANY_GROUPS.get(api_key)
    if many is None:
        yield body.group_id
        return
    for each in getattr(body, many.asked):
        group_id = many.group_of(each)
        if group_id is not None:
            yield group_id
