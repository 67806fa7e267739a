"""The client side of the links to group owners.

Sends requests to an owner, numbers the clients for it, and processes its messages: outcomes, questions to the broker,
lists of its groups. frontend.py decides which requests are forwarded, and acts on the outcomes.
"""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Node
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.peers.link.peer_links import PeerLinks
from muster.coordinator.peers.link.peer_messages import (
    HIGHEST_TAG,
    Answered,
    AnyMessage,
    AskBroker,
    BrokerAnswered,
    Closed,
    Connected,
    Delegated,
    Disconnected,
    Forwarded,
    Leases,
    ListOwned,
    NotOwned,
    Owned,
    OwnedGroup,
    Relay,
    RequestSuperseded,
    Revoked,
)
from muster.coordinator.service import Service
from muster.coordinator.sidecar.forwarding.delegated_heartbeats import DelegatedHeartbeats
from muster.coordinator.sidecar.forwarding.owner import ForwardedRequests
from muster.coordinator.sidecar.forwarding.paced import Changes, Paced
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.wire.dispatch import ClientAddress
from muster.events.ids import GroupId

LIST_TIMEOUT_S: Final = 5.0

Outcome = Answered | Delegated | Relay | NotOwned | RequestSuperseded | Closed | None
"""The owner's response; None if the owner was lost before it."""


class _Registered(msgspec.Struct, frozen=True):
    """A client as a process knows it. `authentications`: the client's count when it was introduced."""

    number: int
    peer: ClientAddress
    authentications: int


class Owners:
    """All processes that own groups. `own`: this process, as the owner for its own clients.

    `boot_ms`: a clock that counts the time in suspend.
    """

    def __init__(
        self, service: Service, own: ForwardedRequests, *, answer_lease_ms: int, boot_ms: Callable[[], int]
    ) -> None:
        self._service = service
        self._own = own
        self._links: PeerLinks | None = None
        self._numbers = itertools.count(1)
        self._clients: dict[ClientSide, dict[int, _Registered]] = {}
        """Each client as the processes know it, by node id."""
        self._by_number: dict[int, tuple[ClientSide, Node]] = {}
        self._waiting: dict[int, Callable[[Outcome], None]] = {}
        """Callbacks for the outcomes of forwarded requests, by client number."""
        self._listing: dict[int, _Listing] = {}
        self._paced = Paced()
        self.changes = Changes(self._paced)
        """Signalled when a group may have another owner, or when an owner's connection changes."""
        self._own_frontend = _OwnFrontend(self)
        self.delegated = DelegatedHeartbeats(
            send=self._send,
            number_at=self._number_at,
            partition_of=self._partition_of,
            paced=self._paced,
            lease_ms=answer_lease_ms,
            boot_ms=boot_ms,
            monotonic_ms=service.monotonic_ms,
        )

    def forward_on(self, links: PeerLinks) -> None:
        """Use these links from now on."""
        self._links = links

    def drop_all(self) -> None:
        """Cancel all forwarded requests."""
        self.delegated.report_all()
        for number in list(self._waiting):
            client, node = self._by_number[number]
            self._disconnect(node, client)

    def link_changed(self, node: Node) -> None:
        """Handle a process that became reachable, or was lost, in which case its outcomes will not arrive."""
        if self._links is not None and self._links.is_linked(node):
            self.delegated.on_reachable(node)
        else:
            self.delegated.on_unreachable(node)
            node_id = node.node_id
            lost = [number for number, (_, at) in self._by_number.items() if at.node_id == node_id]
            waiting = [done for number in lost if (done := self._forget(number)) is not None]
            self._paced.call(partial(done, None) for done in waiting)
            for listing in list(self._listing.values()):
                listing.lost(node_id)
        self.changes.notify()

    def owner_of(self, group_id: GroupId) -> Node | None:
        """Return the process that owns the group, or None if it is unknown."""
        return self._service.cluster.coordinator_of(group_id)

    def _partition_of(self, group_id: GroupId) -> int | None:
        return self._service.cluster.partition_of(group_id)

    def is_own(self, node: Node | None) -> bool:
        """Return whether the node is this process."""
        return node is not None and node.node_id == self._service.cluster.node.node_id

    def is_linked(self, node: Node) -> bool:
        """Return whether there is a connection to the process, even if it does not respond."""
        return self._links is not None and self._links.is_linked(node)

    def is_reached(self, node: Node) -> bool:
        """Return whether requests can be sent to the process."""
        return self._links is not None and self._links.is_reached(node)

    async def list_all(self) -> list[OwnedGroup] | ErrorCode:
        """List the groups of all processes; return an error if one of them does not respond."""
        listings = [(node, next(self._numbers), _Listing(node.node_id)) for node in self._service.cluster.nodes]
        if not all(self.is_own(node) or self.is_reached(node) for node, _, _ in listings):
            return ErrorCode.coordinator_not_available
        try:
            for node, question, listing in listings:
                self._listing[question] = listing
                self._send(node, ListOwned(question))
            async with asyncio.timeout(LIST_TIMEOUT_S):
                errors = [await listing.done for _, _, listing in listings]
        except TimeoutError:
            return ErrorCode.coordinator_not_available
        finally:
            for _, question, _ in listings:
                self._listing.pop(question, None)
        error = next((each for each in errors if each is not ErrorCode.none), None)
        return [group for _, _, listing in listings for group in listing.groups] if error is None else error

    async def outcome(self, node: Node | None, request: ClientRequest, frame: bytes, member_uuid: str) -> Outcome:
        """Send the process a request and return its outcome; None if it is unreachable, or lost in the meantime."""
        if node is None or not (self.is_own(node) or self.is_reached(node)) or not request.client.is_open():
            return None
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(result: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        client = request.client
        assert isinstance(client, ClientSide)
        number = self.send(node, client, frame, done, member_uuid)
        try:
            return await outcome
        finally:
            if self._waiting.get(number) is done:  # the client has disconnected, or waits no longer
                del self._waiting[number]
                self._disconnect(node, client)

    def send(
        self,
        node: Node,
        client: ClientSide,
        frame: bytes,
        done: Callable[[Outcome], None],
        member_uuid: str = "",
    ) -> int:
        """Send a client's request to a reachable process; return the client's number there."""
        number = self._number_at(node, client)
        self.delegated.report(node)
        self._waiting[number] = done
        self._send(node, Forwarded(number, member_uuid, frame))
        return number

    def _number_at(self, node: Node, client: ClientSide) -> int:
        """Return the process's number for this client. The client gets a new one when it authenticates again."""
        if client not in self._clients:
            self._clients[client] = {}
            client.broker_lost.add_done_callback(lambda _: self._client_lost(client))
        known = self._clients[client].get(node.node_id)
        if known is not None:
            if known.authentications == client.authentications and known.peer == client.peer:
                return known.number
            self._disconnect(node, client)
        number, peer = next(self._numbers), client.peer
        self._clients[client][node.node_id] = _Registered(number, peer, client.authentications)
        self._by_number[number] = client, node
        self._introduce(node, Connected(number, peer.client_host, peer.principal), client)
        return number

    def _introduce(self, node: Node, connected: Connected, client: ClientSide) -> None:
        if self.is_own(node):
            self._own.introduce_own(self._own_frontend, connected, client.record)
        else:
            self._send(node, connected)

    def _client_lost(self, client: ClientSide) -> None:
        for registered in list(self._clients.get(client, {}).values()):
            _, node = self._by_number[registered.number]
            self._disconnect(node, client)
        self._clients.pop(client, None)

    def _disconnect(self, node: Node, client: ClientSide) -> None:
        """Cancel the client's request at the process, which will not answer it then."""
        registered = self._clients.get(client, {}).get(node.node_id)
        if registered is None:
            return
        done = self._forget(registered.number)
        self.delegated.report(node)
        self._send(node, self._disconnected(registered.number, client.record))
        if done is not None:
            done(None)

    def _disconnected(self, number: int, record: ConnectionRecord) -> Disconnected:
        if record.end is None or record.ended_ms is None:
            return Disconnected(number)
        return Disconnected(number, record.end, self._service.monotonic_ms() - record.ended_ms)

    def _forget(self, number: int) -> Callable[[Outcome], None] | None:
        """Forget the number; return the callback of the pending request."""
        client, node = self._by_number.pop(number)
        self._clients[client].pop(node.node_id)
        return self._waiting.pop(number, None)

    def _send(self, node: Node, message: AnyMessage) -> None:
        if self.is_own(node):
            self._own.received(self._own_frontend, message)
        elif self._links is not None:
            self._links.send(node, message)

    def received(self, node: Node, message: AnyMessage) -> None:
        """Handle a message from an owner."""
        match message:
            case Answered() | Delegated() | Relay() | NotOwned() | RequestSuperseded() | Closed():
                done = self._waiting.pop(message.connection, None)
                if done is not None:
                    done(message)
            case Revoked(group_id=group_id):
                self.delegated.revoke(node, group_id)
            case Leases():
                self.delegated.on_leases(node, message)
            case AskBroker():
                self._ask_broker(node, message)
            case Owned():
                listing = self._listing.get(message.question)
                if listing is not None and listing.node_id == node.node_id:
                    listing.add(message)

    def received_of_own(self, message: AnyMessage) -> None:
        """Handle a message from this process as an owner."""
        self.received(self._service.cluster.node, message)

    def _ask_broker(self, node: Node, asked: AskBroker) -> None:
        client, _ = self._by_number.get(asked.connection, (None, None))
        if client is None or asked.connection not in self._waiting:
            self._send(node, BrokerAnswered(asked.question, None))
            return

        def answered(answer: asyncio.Future[bytes]) -> None:
            self._send(node, BrokerAnswered(asked.question, None if answer.cancelled() else answer.result()))

        client.ask(asked.api_key, asked.api_version, asked.rest).add_done_callback(answered)


class _OwnFrontend:
    """This process as the frontend for its own groups."""

    node_id: int | None = None
    highest_tag = HIGHEST_TAG

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def send(self, message: AnyMessage) -> None:
        self._owners.received_of_own(message)


class _Listing:
    """The groups of one process, collected from its messages."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.groups: list[OwnedGroup] = []
        self.done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def add(self, owned: Owned) -> None:
        self.groups += owned.groups
        if owned.is_last and not self.done.done():
            self.done.set_result(ErrorCode(owned.error))

    def lost(self, node_id: int) -> None:
        if node_id == self.node_id and not self.done.done():
            self.done.set_result(ErrorCode.coordinator_not_available)
