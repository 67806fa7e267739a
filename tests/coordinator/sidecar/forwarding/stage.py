"""Two sidecars of one log in process: one that clients are connected to, and one that owns their groups.

The real frontend and owner on a real connection, in front of a scripted broker, with scripted groups.

    async with forwarding() as stage:
        client = await stage.frontend.connect(1)
        client.send(...)
        stage.groups.release(...)        # the owner's
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Node, new_cluster
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.peers.link.peer_connection import PeerConnection
from muster.coordinator.peers.link.peer_links import PeerLinks
from muster.coordinator.peers.link.peer_listener import PeerListener
from muster.coordinator.peers.link.peer_messages import AnyMessage, Leases
from muster.coordinator.service import Service
from muster.coordinator.sidecar.apis import consumer_group_heartbeat
from muster.coordinator.sidecar.apis.membership import MembershipApi
from muster.coordinator.sidecar.forwarding.frontend import Frontend
from muster.coordinator.sidecar.forwarding.owner import ForwardedRequests
from muster.coordinator.sidecar.forwarding.owners import Owners
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.wire import delete_groups
from muster.events.ids import GroupId
from tests.coordinator.scripted import ScriptedGroups, new_service
from tests.coordinator.sidecar.relay.test_relay import join
from tests.coordinator.sidecar.relaying import Client, Relay, parks_joins, relaying
from tests.coordinator.sidecar.scripted_broker import ScriptedBroker, scripted_broker
from tests.waiting import until

SECRET = b"s" * 32
MESSAGE_BYTES_MAX = 1_000_000
FRONTEND, OWNER = 1, 2


def fails(error: Exception) -> None:
    raise error


class OwnerProcess:
    """The process that owns groups: those in `assigned`, by default all."""

    def __init__(self, frontend: Relay) -> None:
        self.groups = ScriptedGroups(parks_joins)
        self.service = new_service(self.groups)
        self.metrics = ServerMetrics({})
        self.assigned = True
        self.loading = False
        self.lease_left_ms = 60_000
        self.shadowed: set[GroupId] = set()
        self.deleted: list[str] = []
        self.requests = owner_of(
            self.service,
            self.metrics,
            frontend,
            is_assigned=lambda _: self.assigned,
            is_loading=lambda _: self.loading,
            leases=lambda: {0: self.lease_left_ms},
            shadowed=self.shadowed,
            deleted=self.deleted,
        )
        self.listener = PeerListener(
            secret=lambda: SECRET,
            node_id=OWNER,
            message_bytes_max=MESSAGE_BYTES_MAX,
            monotonic_ms=lambda: 0,
            accepted=self._accepted,
            lost=self.requests.lost,
        )
        self.listener.log_identity = "log"
        self.connections: list[PeerConnection] = []
        self.node = Node(node_id=OWNER, host="127.0.0.1", port=0)

    def _accepted(self, connection: PeerConnection) -> None:
        self.connections.append(connection)
        self.requests.accepted(connection)

    def hang(self) -> None:
        """Hang like a process stopped by SIGSTOP: silent, with open connections."""
        self.listener.log_identity = None
        self.connections[-1].handle = lambda _: None
        self.connections[-1].send = lambda message: None  # type: ignore[method-assign]

    async def start(self) -> None:
        port = await self.listener.start("127.0.0.1", self.node.port, None)
        self.node = msgspec.structs.replace(self.node, port=port)

    async def end(self) -> None:
        """End like a process: its connections break."""
        await self.listener.close()
        await self.requests.close()


def owner_of(
    service: Service,
    metrics: ServerMetrics,
    relay: Relay,
    *,
    is_assigned: Any,
    is_loading: Any,
    leases: Any,
    shadowed: set[GroupId],
    deleted: list[str],
) -> ForwardedRequests:
    """An owner that handles memberships, and heartbeats of the newer protocol."""

    async def list_own() -> Any:
        return []

    requests = ForwardedRequests(
        service,
        is_assigned=is_assigned,
        is_loading=is_loading,
        leases=leases,
        list_own=list_own,
        metrics=metrics,
        relayed=RelayMetrics(),
        authorization_cache_ms=5_000,
        failed=fails,
    )
    apis = (
        *MembershipApi(service, relay.router, relay.moves, lambda _: False).apis(),
        consumer_group_heartbeat.api(shadowed.__contains__, relay.relayed, lambda: 0),
        deleting(deleted),
    )
    handled = {api.key: api for api in apis}
    metrics.offer(handled)
    requests.handle_by(handled)
    return requests


def deleting(deleted: list[str]) -> SidecarApi:
    """DeleteGroups, which each process executes for all requested groups."""

    def handle(request: ClientRequest) -> None:
        results = [{"group_id": each, "error_code": ErrorCode.none} for each in request.body.groups_names]
        deleted.extend(request.body.groups_names)
        request.answer({"throttle_time": 0, "results": results})

    api = delete_groups.API
    return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=handle)


class BootClock:
    """The frontend's clock, moved by the test."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def boot_ms(self) -> int:
        return self.now_ms


class Stage(msgspec.Struct, eq=False):
    """See the module. `frontend.groups` are the frontend's own groups."""

    broker: ScriptedBroker
    frontend: Relay
    owner: OwnerProcess
    forwarder: Frontend
    owners: Owners
    links: PeerLinks
    clock: "BootClock"
    deleted: list[str]
    """The groups that the frontend has deleted."""
    from_owner: list[AnyMessage]

    @property
    def groups(self) -> ScriptedGroups:
        return self.owner.groups

    def share(self) -> None:
        """Give the frontend half of the groups, and the owner the other half."""
        cluster = self.frontend.service.cluster
        both = (cluster.node, self.owner.node)
        self.frontend.service.cluster = cluster.shared(both, both)
        self.forwarder.ownership_changed()

    def give_to(self, node: Node | None) -> None:
        """Give the partition of all groups to this process, or to none."""
        cluster = self.frontend.service.cluster
        known = [each for each in (cluster.node, self.owner.node) if node is not None or each is cluster.node]
        self.frontend.service.cluster = cluster.shared(known, [node])
        self.links.follow([self.owner.node])
        self.forwarder.ownership_changed()

    async def parked_join(self) -> tuple[Client, list[int]]:
        """Connect a client to the frontend, whose join is parked at the owner, and record the ids of dropped
        requests.
        """
        gone: list[int] = []
        self.owner.service.gone = gone.append
        client = await self.frontend.connect(1)
        client.send(join())
        await until(lambda: self.groups.parked)
        return client, gone

    async def until_delegated(self) -> None:
        """Wait until the frontend has the owner's lease, without which delegation has no effect."""
        await until(lambda: any(isinstance(each, Leases) for each in self.from_owner))

    async def until_reached(self) -> None:
        await until(lambda: self.links.is_reached(self.owner.node))


@asynccontextmanager
async def forwarding(*, answer_lease_ms: int = 60_000) -> AsyncIterator[Stage]:
    """At first the owner has everything."""
    clock = BootClock()
    made: list[tuple[Frontend, Owners]] = []
    deleted: list[str] = []

    def wrapped(relay: Relay) -> Iterable[SidecarApi]:
        relay.service.cluster = new_cluster(
            cluster_id="c", node_id=FRONTEND, host="127.0.0.1", port=1, topics=()
        ).shared((), ())
        owner = owner_of(
            relay.service,
            relay.metrics,
            relay,
            is_assigned=lambda _: True,
            is_loading=lambda _: False,
            leases=dict,
            shadowed=set(),
            deleted=deleted,
        )
        owners = Owners(relay.service, owner, answer_lease_ms=answer_lease_ms, boot_ms=clock.boot_ms)
        frontend = Frontend(relay.service, owners, answer_lease_ms=answer_lease_ms, boot_ms=clock.boot_ms)
        made.append((frontend, owners))
        relay.forward = frontend.forward_heartbeat
        membership = MembershipApi(relay.service, relay.router, relay.moves, lambda _: False).apis()
        newer = consumer_group_heartbeat.api(lambda _: False, relay.relayed, lambda: 0)
        return [frontend.wrapped(api) for api in (*membership, newer, deleting(deleted))]

    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(scripted_broker())
        relay = await stack.enter_async_context(relaying({1: broker}, more=wrapped))
        ((frontend, owners),) = made
        owner = OwnerProcess(relay)
        await owner.start()
        stack.push_async_callback(owner.end)
        from_owner: list[AnyMessage] = []

        def received(node: Node, message: AnyMessage) -> None:
            from_owner.append(message)
            owners.received(node, message)

        links = PeerLinks(
            secret=lambda: SECRET,
            node_id=FRONTEND,
            message_bytes_max=MESSAGE_BYTES_MAX,
            context=None,
            monotonic_ms=lambda: 0,
            received=received,
            changed=owners.link_changed,
            failed=fails,
        )
        links.log_identity = "log"
        stack.push_async_callback(links.close)
        owners.forward_on(links)
        stage = Stage(broker, relay, owner, frontend, owners, links, clock, deleted, from_owner)
        stage.give_to(owner.node)
        await stage.until_reached()
        yield stage
