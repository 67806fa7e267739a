"""Assembles, starts and stops a sidecar.

It first waits for the cluster, without a time limit; meanwhile /readyz says why. Then it binds the listeners, so that
startup fails before anything is claimed if a port is in use. Then it opens the event log, again without a time limit,
and claims it. Once it listens, it answers group requests like a coordinator that is loading, until the log is loaded
and during any outage of the log. Everything else is relayed, including requests of groups with members upstream.

To stop, it accepts no more connections, gives up the groups, which answers parked requests, and waits for the brokers'
responses. The shadows stay for the next owner of the groups.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

import structlog

from muster.coordinator.assembly import (
    CannotServe,
    Readiness,
    keep_certificates,
    keep_open,
    keep_trimmed,
    new_log,
    open_metrics_endpoint,
    take_over,
    watch_files,
    watch_log_settings,
    watch_loop,
    watch_unassigned,
)
from muster.coordinator.clock import SystemClock
from muster.coordinator.net.kept_sockets import KeptSockets
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.service import Service
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.broker_ports import NoPort
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import FRONTEND, OWNER
from muster.coordinator.sidecar.apis.registry import handled_apis
from muster.coordinator.sidecar.forwarding.assembly import Forwarding
from muster.coordinator.sidecar.forwarding.shared_ownership import SharedOwnership
from muster.coordinator.sidecar.group_parts import GroupParts
from muster.coordinator.sidecar.groups.owned_groups import ListOwned, SharedListing, own_groups
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import Forward, Interceptor, SidecarApi, forward_nothing
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.sidecar.relay.listeners import CannotListen, Listeners
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.upstream_cluster import UpstreamCluster
from muster.coordinator.upstream.partition_counts import UpstreamPartitionCounts
from muster.coordinator.upstream.shadows import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.coordinator.wire.registry import load_messages_of_members
from muster.events.kafka.addresses import KnownBrokers
from muster.events.log.base import EventLog

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 10.0
WAITING_BYTES_MAX = 1_048_576


async def start(
    settings: Settings, stack: AsyncExitStack, kept: KeptSockets, *, lost: Callable[[Exception], None]
) -> None:
    """Start all parts; the stack stops them in reverse. Raises CannotServe, LogError, EventsError."""
    await _Sidecar(settings, stack, kept, lost).start()


class _Sidecar:
    """The parts of one sidecar during assembly."""

    def __init__(
        self, settings: Settings, stack: AsyncExitStack, kept: KeptSockets, lost: Callable[[Exception], None]
    ) -> None:
        self.settings = settings
        self.stack = stack
        self.kept = kept
        self.lost = lost
        self.clock = SystemClock()
        self.metrics = ServerMetrics({})
        self.relayed = RelayMetrics()
        self.readiness = Readiness(self.clock)
        self.status = StatusParts()
        self.known_brokers = KnownBrokers()
        self.link = UpstreamLink(
            settings.upstream or "",
            settings.upstream_security(),
            give_up=lost,
            monotonic_ms=self.clock.monotonic_ms,
            known_brokers=self.known_brokers,
        )
        self.upstream = UpstreamCluster(settings, self.link, self.readiness, self.clock.monotonic_ms)

    async def start(self) -> None:
        settings, stack = self.settings, self.stack
        load_messages_of_members()
        watch = watch_loop(stack)
        stack.push_async_callback(self.link.close)
        if settings.metrics is not None:
            collectors = self.metrics, self.relayed
            port = open_metrics_endpoint(settings, collectors, self.readiness, stack, watch=watch, parts=self.status)
            self.kept.report_metrics(port)
        keep_certificates(stack, lost=self.lost)
        watch_files(self.readiness, stack, lost=self.lost)
        await self.upstream.find()
        await self._assemble(new_log(settings, self.known_brokers))
        self.kept.serves()

    async def _assemble(self, event_log: EventLog) -> None:
        """Create the parts that deal with groups, and serve them. Raises CannotServe, LogError, EventsError."""
        settings, stack = self.settings, self.stack
        reserved = await self.upstream.reserved(event_log)
        sharing = None
        if settings.share_partitions:
            sharing = PartitionSharing(
                settings, event_log, self.clock, upstream=self.link.cluster_id, known_brokers=self.known_brokers
            )
        parts = GroupParts(
            settings, event_log, self.link, self.clock, stack, metrics=self.metrics, sharing=sharing, lost=self.lost
        )
        parts.observe(self.status)
        self.relayed.upstream_members = parts.moves.recent_members.counted
        listening = self._listening(parts.service)
        handled_by = self._handled_by(parts, reserved)
        list_own = SharedListing(own_groups(parts.service, parts.shadows)).list_groups
        forwarding = None if sharing is None else self._forwarding(sharing, parts, list_own)
        if forwarding is None:
            handled = handled_by(list_own)
        else:
            handled = await forwarding.start(handled_by, stack, self.link.cluster_id)
        stack.push_async_callback(_stop_listening, listening)
        forward = forward_nothing if forwarding is None else forwarding.forward
        listen = await self._listen(listening, parts.service, handled, forward)
        await keep_open(event_log, settings, stack, self.readiness, lost=self.lost)
        parts.shadows.set_name(ShadowName.of(event_log.identity))
        await self.upstream.settle(reserved, event_log)
        if forwarding is None:
            await self._own_all(parts, listening)
        else:
            await self._share(forwarding, parts, listening)
        keep_trimmed(parts.owner, stack, lost=self.lost)
        watch_log_settings(settings, event_log, self.status, stack, lost=self.lost)
        if settings.role != FRONTEND:
            counts = UpstreamPartitionCounts(self.link)
            watch_unassigned(parts.runtime, counts, self.clock, self.status, stack, lost=self.lost)
        where = {"role": OWNER} if listen is None else {"listen": listen}
        log.info("serving", **where, upstream=settings.upstream, log=settings.log)

    def _handled_by(
        self, parts: GroupParts, reserved: ReservedNames
    ) -> Callable[[ListOwned], Mapping[int, SidecarApi]]:
        def handled_by(list_owned: ListOwned) -> Mapping[int, SidecarApi]:
            return handled_apis(
                parts.service,
                GroupRouter(
                    parts.shadows,
                    parts.moves,
                    may_own=self.settings.may_own,
                    is_loaded=parts.runtime.has_read,
                    is_loaded_soon=parts.runtime.is_loaded_soon,
                ),
                parts.moves,
                parts.shadows,
                self.relayed,
                reserved=reserved,
                in_flight=parts.in_flight,
                list_owned=list_owned,
                would_refuse=parts.runtime.would_refuse,
                monotonic_ms=self.clock.monotonic_ms,
                upstream_groups=parts.upstream_groups,
            )

        return handled_by

    async def _own_all(self, parts: GroupParts, listening: Listening[ClientSide]) -> None:
        """Take all partitions over."""
        self.readiness.reason = lambda: self._not_ready(parts.runtime.not_ready)
        with parts.shadows.retakes_held():
            await take_over(parts.runtime, self.stack)
        parts.moves.begin()
        await parts.remove_stray_shadows()
        self.stack.callback(_drain, listening)

    async def _share(self, forwarding: Forwarding, parts: GroupParts, listening: Listening[ClientSide]) -> None:
        """Take over this process's share of the partitions."""
        ownership = SharedOwnership(parts.runtime, parts.shadows, parts.moves, parts.remove_stray_shadows, self.lost)
        self.stack.push_async_callback(ownership.close)
        drain = partial(_drain, listening)
        await forwarding.share(ownership, self.readiness, self.status, self.stack, stop_listening=drain)
        shared = self.readiness.reason
        self.readiness.reason = lambda: self._not_ready(shared())
        parts.moves.begin()

    def _forwarding(self, sharing: PartitionSharing, parts: GroupParts, list_own: ListOwned) -> Forwarding:
        return Forwarding(
            self.settings,
            parts.service,
            sharing,
            parts.runtime,
            list_own=list_own,
            metrics=self.metrics,
            relayed=self.relayed,
            lost=self.lost,
        )

    def _not_ready(self, reason: str | None) -> str | None:
        return "; ".join(filter(None, (self.link.outage.reason, reason))) or None

    def _listening(self, service: Service) -> Listening[ClientSide]:
        return Listening[ClientSide](
            limits=self.settings.connection_limits(),
            metrics=self.metrics,
            monotonic_ms=self.clock.monotonic_ms,
            call_later=service.call_later,
            answer_memory=service.slices.answer_memory,
            turns=service.turns,
            reuse_port=self.settings.reuse_port,
            kept=self.kept,
        )

    async def _listen(
        self,
        listening: Listening[ClientSide],
        service: Service,
        handled: Mapping[int, SidecarApi],
        forward: Forward,
    ) -> str | None:
        """Bind all addresses; returns the first, or None for an owner, which has no clients. Raises CannotServe."""
        settings, listen = self.settings, self._listen_at
        self.metrics.offer(handled)
        if settings.role == OWNER:
            return None

        def interceptor(listeners: Listeners) -> Interceptor:
            versions = {key: api.versions for key, api in handled.items()}
            return Interceptor(
                handled=handled,
                rewriting=AnswerRewriter(listeners.address_of, versions, self.link.cluster_id),
                metrics=self.metrics,
                service=service,
                forward=forward,
            )

        listeners = Listeners(
            host=listen.host,
            advertised_host=Address(settings.advertise).host if settings.advertise else listen.host,
            interceptor=interceptor,
            service=service,
            listening=listening,
            metrics=self.metrics,
            relayed=self.relayed,
            limits=RelayLimits(
                frame_bytes_max=settings.frame_bytes_max,
                waiting_bytes_max=WAITING_BYTES_MAX,
                authorization_cache_ms=settings.authorization_cache_ms,
                authenticates=settings.upstream_security().authenticates,
            ),
            client_context=settings.client_tls(),
            broker_context=settings.upstream_security().relay_context(),
            on_unreachable=self.link.broker_not_reached,
            heard=self.link.heard,
        )
        metrics = Address(settings.metrics) if settings.metrics else None
        try:
            port = await listeners.start(listen.port)
            ports = settings.broker_ports(Address(f"{listen.host}:{port}"), metrics)
            listeners.open_for(self.link.brokers(), ports)
        except OSError as error:
            raise CannotServe(f"{settings.name_of('listen')} {settings.listen}: {why_not_bound(error)}") from error
        except (CannotListen, NoPort) as error:
            raise CannotServe(str(error)) from error
        self.link.on_brokers(listeners.follow)
        log.info("listening", listen=f"{listen.host}:{port}", upstream=settings.upstream, log=settings.log)
        return f"{listen.host}:{port}"

    @property
    def _listen_at(self) -> Address:
        return Address(self.settings.listen)


def _drain(listening: Listening[ClientSide]) -> None:
    """Accept no more connections. Requests in flight are still answered; parked ones are answered when the groups are
    given up.
    """
    listening.stop_listening()
    for connection in listening.connections:
        connection.drain()


async def _stop_listening(listening: Listening[ClientSide]) -> None:
    _drain(listening)
    await listening.wait_until_closed(STOP_TIMEOUT_S)
    await listening.close(within_s=1.0)
