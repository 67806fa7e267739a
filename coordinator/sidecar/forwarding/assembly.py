"""Assembles forwarding: the parts that send requests to other processes, and those that handle theirs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol

import structlog

from muster.coordinator.assembly import CannotServe, Readiness, collect
from muster.coordinator.cluster import Cluster, Node, new_cluster
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.peers.link.peer_links import LinkState, PeerLinks
from muster.coordinator.peers.link.peer_listener import PeerListener
from muster.coordinator.peers.peer_metrics import LinkMetrics
from muster.coordinator.peers.peer_status import links_status
from muster.coordinator.peers.sharer import Ownership
from muster.coordinator.runtime.partition.answer_lease import boot_clock_ms
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Service
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import OWNER
from muster.coordinator.sidecar.forwarding.frontend import Frontend
from muster.coordinator.sidecar.forwarding.owner import ForwardedRequests
from muster.coordinator.sidecar.forwarding.owners import Owners
from muster.coordinator.sidecar.groups.owned_groups import ListOwned, SharedListing
from muster.coordinator.sidecar.relay.intercept import Forward, SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.wire.bounds import ANSWER_BYTES_MAX

TAKEOVER_MS: Final = 5_000
"""The maximum duration of a takeover once the former owner's session has expired."""


class Links(Protocol):
    """The connections to the other processes."""

    def is_linked(self, node: Node) -> bool:
        """Return whether there is a connection to the process."""

    def states(self) -> Sequence[LinkState]:
        """Return the other processes that own partitions, each with the state of its connection. Thread-safe."""


class OwnersReach:
    """Tracks whether other owners are reachable. Call `check` when owners or links change. Thread-safe to read."""

    def __init__(
        self, cluster: Callable[[], Cluster], links: Links, *, monotonic_ms: Callable[[], int], takeover_ms: int
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._monotonic_ms = monotonic_ms
        self._takeover_ms = takeover_ms
        self._was_reached = False
        self._lost_since_ms: int | None = None

    def check(self) -> None:
        """Check whether any partition has a reachable owner, which may be this process."""
        cluster = self._cluster()
        if any(
            owner is not None and (owner.node_id == cluster.node.node_id or self._links.is_linked(owner))
            for owner in cluster.owners or ()
        ):
            self._was_reached, self._lost_since_ms = True, None
        elif self._lost_since_ms is None:
            self._lost_since_ms = self._monotonic_ms()

    @property
    def lost_ms(self) -> int:
        """How long no owner has been reachable; 0 while one is."""
        since_ms = self._lost_since_ms
        return 0 if since_ms is None else self._monotonic_ms() - since_ms

    @property
    def not_ready(self) -> str | None:
        """The message of /readyz; None while an owner is reachable, or could be again after a takeover."""
        if self._lost_since_ms is None or (self._was_reached and self.lost_ms <= self._takeover_ms):
            return None
        for_s = f"this process has reached no owner of a partition for {self.lost_ms // 1000} s"
        tried = [
            f"node {each.node.node_id} at {each.node.host}:{each.node.port}: {each.error or 'it has not responded yet'}"
            for each in self._links.states()
        ]
        return f"{for_s}; {'; '.join(tried) or 'no process owns any: start one with --role owner or both'}"


log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MESSAGE_OVERHEAD_BYTES = 65_536
"""The size of a message without the request or response in it."""


class Forwarding:
    """Both directions of forwarding: requests that leave this process, and requests that arrive."""

    def __init__(
        self,
        settings: Settings,
        service: Service,
        sharing: PartitionSharing,
        runtime: Runtime,
        *,
        list_own: ListOwned,
        metrics: ServerMetrics,
        relayed: RelayMetrics,
        lost: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._service = service
        self._sharing = sharing
        self._runtime = runtime
        self._lost = lost
        self._owner = ForwardedRequests(
            service,
            is_assigned=runtime.is_assigned,
            is_loading=runtime.is_loading,
            leases=runtime.leases,
            list_own=list_own,
            metrics=metrics,
            relayed=relayed,
            authorization_cache_ms=settings.authorization_cache_ms,
            failed=lost,
        )
        owners = self._owners = Owners(
            service, self._owner, answer_lease_ms=settings.answer_lease_ms, boot_ms=boot_clock_ms
        )
        self._frontend = Frontend(service, owners, answer_lease_ms=settings.answer_lease_ms, boot_ms=boot_clock_ms)
        tls = settings.peer_tls()
        request_bytes_max = settings.frame_bytes_max + MESSAGE_OVERHEAD_BYTES
        self._listener = PeerListener(
            secret=settings.peer_secret,
            node_id=settings.node_id,
            message_bytes_max=request_bytes_max,
            monotonic_ms=service.monotonic_ms,
            accepted=self._owner.accepted,
            lost=self._owner.lost,
        )
        self._links = PeerLinks(
            secret=settings.peer_secret,
            node_id=settings.node_id,
            message_bytes_max=max(request_bytes_max, ANSWER_BYTES_MAX + MESSAGE_OVERHEAD_BYTES),
            context=None if tls is None else tls.connecting,
            monotonic_ms=service.monotonic_ms,
            received=owners.received,
            changed=self._link_changed,
            failed=lost,
        )
        self._accepting = None if tls is None else tls.accepting
        owners.forward_on(self._links)
        self._reach = OwnersReach(
            lambda: service.cluster,
            self._links,
            monotonic_ms=service.monotonic_ms,
            takeover_ms=settings.owner_session_timeout_ms + TAKEOVER_MS,
        )

    async def start(
        self,
        handled_by: Callable[[ListOwned], Mapping[int, SidecarApi]],
        stack: AsyncExitStack,
        cluster_id: str,
    ) -> Mapping[int, SidecarApi]:
        """Listen for other processes until the stack closes; return the APIs that handle this process's clients.

        `handled_by` returns the APIs that handle requests for this process's groups. Raises CannotServe.
        """
        handled = handled_by(SharedListing(self._owners.list_all).list_groups)
        self._owner.handle_by(handled)
        settings = self._settings
        assert settings.peer_listen is not None
        at = Address(settings.peer_listen)
        try:
            port = await self._listener.start(at.host, at.port, self._accepting)
        except OSError as error:
            raise CannotServe(f"{settings.name_of('peer_listen')} {at}: {why_not_bound(error)}") from error
        stack.push_async_callback(self._listener.close)
        stack.push_async_callback(self._links.close)
        stack.push_async_callback(self._owner.close)
        advertised = Address(settings.peer_advertise or f"{at.host}:{port}")
        cluster = new_cluster(
            cluster_id=cluster_id,
            node_id=settings.node_id,
            host=advertised.host,
            port=advertised.port,
            topics=(),
        )
        self._service.cluster = cluster.shared((), ())  # no owner is known yet
        log.info("listening for the other processes", listen=f"{at.host}:{port}", node_id=settings.node_id)
        return {key: self._frontend.wrapped(api) for key, api in handled.items()}

    @property
    def forward(self) -> Forward:
        """The shortcut that forwards heartbeats to their owner."""
        return self._frontend.forward_heartbeat

    async def share(
        self,
        ownership: Ownership,
        readiness: Readiness,
        parts: StatusParts,
        stack: AsyncExitStack,
        *,
        stop_listening: Callable[[], None],
    ) -> None:
        """Own a share of the partitions, and forward requests for the groups of the others. The log must be open."""
        self._listener.log_identity = self._links.log_identity = self._sharing.log_identity

        def stop() -> None:
            stop_listening()
            self._frontend.stop_waiting()

        await self._sharing.begin(
            self._runtime,
            self._service,
            stack,
            readiness,
            parts,
            lost=self._lost,
            stop_listening=stop,
            published=self._ownership_changed,
            ownership=ownership,
            clients_redirected_s=0.0,
        )
        parts.links = lambda: links_status(self._links.states(), self._reach.lost_ms)
        collect(LinkMetrics(self._links.states, lambda: self._reach.lost_ms), stack)
        if self._settings.role != OWNER:  # a process without clients does not need other owners
            shared = readiness.reason
            readiness.reason = lambda: shared() or self._reach.not_ready

    def _link_changed(self, node: Node) -> None:
        self._owners.link_changed(node)
        self._reach.check()
        if not self._links.is_linked(node):
            self._sharing.expect_rebalance()

    def _ownership_changed(self) -> None:
        self._links.follow(self._service.cluster.nodes)
        self._reach.check()
        self._frontend.ownership_changed()
