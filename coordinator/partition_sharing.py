"""Wires together what a process needs to share the partitions of one event log with others, in both modes.

At the end, the process first releases its partitions, so that the next owners find its CoordinatorStopped. Then it
leaves the ownership group, so that the partitions are assigned to other processes.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from muster.coordinator.assembly import Readiness, collect, take_over
from muster.coordinator.clock import Clock
from muster.coordinator.cluster import Cluster
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.peers.ownership_group import PROTOCOL_TYPE
from muster.coordinator.peers.peer_metrics import PeerMetrics
from muster.coordinator.peers.peer_status import elsewhere_status, peers_status
from muster.coordinator.peers.sharer import CLIENTS_REDIRECTED_S, Ownership, Sharer
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Service
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import FRONTEND
from muster.coordinator.tasks import BackgroundTasks
from muster.coordinator.upstream.group_requests import AsMember
from muster.coordinator.upstream.security import UpstreamSecurity
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.kafka.addresses import KnownBrokers
from muster.events.log.base import EventLog
from muster.events.log.kafka.names import ownership_group
from muster.events.ownership import OwnershipEnd


class PartitionSharing:
    """The parts that a process needs to share partitions with others, in both modes."""

    def __init__(
        self,
        settings: Settings,
        event_log: EventLog,
        clock: Clock,
        *,
        upstream: str = "",
        known_brokers: KnownBrokers | None = None,
    ) -> None:
        """`upstream`: the id of the cluster that this process is in front of; empty: standalone.

        `known_brokers`: shared with other links of the process.
        """
        self._known_brokers = known_brokers
        self._upstream = upstream
        self._settings = settings
        self._log = event_log
        self._clock = clock
        self._sharer: Sharer | None = None

    @property
    def log_identity(self) -> str:
        """The identity of the log, once it is open."""
        return self._log.identity

    def deposed(self, number: int) -> None:
        """Request a new assignment, because another process has claimed a partition."""
        if self._sharer is not None:
            self._sharer.deposed(number)

    def end_of(self, number: int, owner_before: str) -> OwnershipEnd | None:
        """Return why this former owner lost the partition; None if unknown."""
        return None if self._sharer is None else self._sharer.end_of(number, owner_before)

    def expect_rebalance(self) -> None:
        """Prepare for a rebalance, because another process was lost."""
        if self._sharer is not None:
            self._sharer.group.expect_rebalance()

    async def begin(
        self,
        runtime: Runtime,
        service: Service,
        stack: AsyncExitStack,
        readiness: Readiness,
        parts: StatusParts,
        *,
        lost: Callable[[Exception], None],
        stop_listening: Callable[[], None],
        published: Callable[[], None] = lambda: None,
        ownership: Ownership | None = None,
        clients_redirected_s: float = CLIENTS_REDIRECTED_S,
    ) -> None:
        """Share the partitions until the stack is left. The log must be open.

        `published` is called when `service.cluster` has new owners. `ownership`: the runtime, or a layer in front of
        it.
        """

        def publish(cluster: Cluster) -> None:
            service.cluster = cluster
            published()

        publish(service.cluster.shared((), ()))  # clients are told to retry until the owners are known
        link = self._new_link(lost)
        stack.push_async_callback(link.close)
        sharer = self._sharer = Sharer(
            ownership or runtime,
            lambda: service.cluster,
            publish,
            link=link,
            who=self._as_member(),
            process=runtime.owner_name,
            partitions=self._log.partitions,
            session_timeout_ms=self._settings.owner_session_timeout_ms,
            monotonic_ms=self._clock.monotonic_ms,
            wall_ms=self._clock.wall_ms,
            failed=lost,
            clients_redirected_s=clients_redirected_s,
            is_frontend=self._settings.role == FRONTEND,
            upstream=self._upstream,
        )
        collect(PeerMetrics(sharer.peer_watch.states), stack)
        parts.peers = lambda: peers_status(sharer.peer_watch.states())
        parts.elsewhere = lambda: elsewhere_status(service.cluster)
        stack.push_async_callback(sharer.group.leave)
        stack.push_async_callback(sharer.peer_watch.close)
        readiness.reason = lambda: sharer.not_ready or runtime.not_ready
        await take_over(runtime, stack, ())
        stack.callback(stop_listening)

        taking_part, serving = BackgroundTasks(lost), BackgroundTasks(lost)
        member = taking_part.start(sharer.group.take_part(), "share-partitions")
        serving.start(sharer.serve(), "serve-shared")

        async def leave() -> None:
            if not member.done():  # otherwise it is not in the group, and the process exits because of that
                await sharer.leave()

        stack.push_async_callback(taking_part.close)
        stack.push_async_callback(leave)
        stack.push_async_callback(serving.close)

    def _new_link(self, lost: Callable[[Exception], None]) -> UpstreamLink:
        own = self._settings.log_security()
        return UpstreamLink(
            self._settings.log_servers,
            UpstreamSecurity(own, own),
            give_up=lost,
            monotonic_ms=self._clock.monotonic_ms,
            cluster="the event log's cluster",
            known_brokers=self._known_brokers,
        )

    def _as_member(self) -> AsMember:
        identity = self._log.identity
        return AsMember(
            group_id=ownership_group(self._log.location),
            group_instance_id=f"muster-{identity}-{self._settings.node_id}",
            protocol_type=PROTOCOL_TYPE,
            protocol_name=identity,
        )
