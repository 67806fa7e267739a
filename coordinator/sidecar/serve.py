"""Assembles, starts and stops a sidecar.

It first waits for the cluster, for as long as that takes; meanwhile /readyz says why. Then the listeners are bound, so
that a port that is taken ends the start before anything is claimed. Then the event log is opened, for as long as that
takes, and claimed. From listening on, group requests are answered as by a coordinator that is loading, until the log is
loaded, and again whenever it is away; everything else is relayed, and so are groups with members upstream.

To stop: accept nothing more, give up the groups, which answers parked requests, and wait for the brokers' answers. The
shadows stay: the next owner of the groups finds them.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from muster.coordinator.assembly import (
    CannotServe,
    Readiness,
    collect,
    keep_certificates,
    keep_open,
    keep_trimmed,
    new_log,
    new_owner,
    new_service,
    new_waiting_quota,
    open_metrics_endpoint,
    snapshot_folder,
    take_over,
    watch_files,
    watch_loop,
)
from muster.coordinator.clock import SystemClock
from muster.coordinator.cluster import new_cluster
from muster.coordinator.group.commands import Caller, ReleaseGroup
from muster.coordinator.group.outcomes import Outcome, ReleaseGroupOutcome
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.net.listening import Listening
from muster.coordinator.observability.group_metrics import GroupMetrics
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.observability.standby_metrics import StandbyMetrics
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.offsets.upstream import UpstreamOffsetStore
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.runtime.partition.owner import ignore_partition
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit, WaitingQuota
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Service
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.broker_ports import NoPort
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import OWNER
from muster.coordinator.sidecar.apis.registry import handled_apis
from muster.coordinator.sidecar.forwarding.peers import Peers
from muster.coordinator.sidecar.forwarding.shared_ownership import SharedOwnership, let_go_of
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.movable_groups import MovableGroups
from muster.coordinator.sidecar.groups.move_log import log_lost
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.owned_groups import ListOwned, own_groups
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.groups.shadow_fence import ShadowFence
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import Forward, Interceptor, SidecarApi, forward_nothing
from muster.coordinator.sidecar.relay.limits import RelayLimits
from muster.coordinator.sidecar.relay.listeners import CannotListen, Listeners
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.link import UpstreamLink
from muster.coordinator.upstream.reachability import Reachability
from muster.coordinator.upstream.shadow_census import ShadowMetrics, shadows_status
from muster.coordinator.upstream.shadows import ShadowName, Shadows, ShadowUnavailable
from muster.coordinator.wire.registry import load_messages_of_members
from muster.events.ids import GroupId
from muster.events.kafka.errors import TryAgain
from muster.events.kafka.muster_check import is_muster
from muster.events.log.base import EventLog
from muster.events.log.kafka.log import KafkaEventLog

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 10.0
WAITING_BYTES_MAX = 1_048_576


async def start(settings: Settings, stack: AsyncExitStack, *, lost: Callable[[Exception], None]) -> None:
    """Start all parts; the stack stops them in reverse. Raises CannotServe, LogError, EventsError."""
    await _Sidecar(settings, stack, lost).start()


class _Sidecar:
    """The parts of one sidecar, while they are put together."""

    def __init__(self, settings: Settings, stack: AsyncExitStack, lost: Callable[[Exception], None]) -> None:
        self.settings = settings
        self.stack = stack
        self.lost = lost
        self.clock = SystemClock()
        self.metrics = ServerMetrics({})
        self.relayed = RelayMetrics()
        self.readiness = Readiness(self.clock)
        self.parts = StatusParts()
        self.link = UpstreamLink(settings.upstream or "", settings.upstream_security(), give_up=lost)
        self._let_go: Callable[[int], None] = ignore_partition

    async def start(self) -> None:
        settings, stack = self.settings, self.stack
        load_messages_of_members()
        watch = watch_loop(stack)
        stack.push_async_callback(self.link.close)
        if settings.metrics is not None:
            collectors = self.metrics, self.relayed
            open_metrics_endpoint(settings, collectors, self.readiness, stack, watch=watch, parts=self.parts)
        keep_certificates(stack, lost=self.lost)
        watch_files(self.readiness, stack, lost=self.lost)
        await self._find_upstream()
        await self._assemble(new_log(settings))

    async def _assemble(self, event_log: EventLog) -> None:
        """Make all that knows of groups, and serve them. Raises CannotServe, LogError, EventsError."""
        settings, stack = self.settings, self.stack
        reserved = await self._reserved(event_log)
        shadows = Shadows(
            self.link,
            lost=lambda group_id, reason: self._release(service, group_id, reason),  # it is there before any group is
            give_up=self.lost,
        )
        stack.push_async_callback(shadows.close)
        waiting_quota = new_waiting_quota(settings, self.metrics)
        sharing = PartitionSharing(settings, event_log, self.clock) if settings.share_partitions else None
        owner = new_owner(
            settings,
            event_log,
            UpstreamOffsetStore(),
            self.clock,
            on_generation=shadows.update_generation,
            on_given_up=self._given_up,
            ask_about_silence=self._reachability().ask_about_silence,
            waiting_quota=waiting_quota,
        )
        runtime = Runtime(
            owner,
            give_up=self.lost,
            deposed=None if sharing is None else sharing.deposed,
            stands_by=settings.stands_by,
            snapshots=snapshot_folder(settings),
        )
        for collector in (
            GroupMetrics(runtime.figures),
            StandbyMetrics(runtime.standby_figures),
            ShadowMetrics(shadows.census),
        ):
            collect(collector, stack)
        self.parts.ownership, self.parts.shadows = runtime.status, lambda: shadows_status(shadows.census())
        moves = self._moves(runtime, shadows)
        self.relayed.upstream_members = moves.recent_members.counted
        self._let_go = let_go_of(shadows, moves, event_log)
        in_flight = InFlightCommits()
        service = self._service(runtime, shadows, moves, in_flight, waiting_quota)
        listening = self._listening(service)
        list_own = own_groups(service, shadows)

        def handled_by(list_owned: ListOwned) -> Mapping[int, SidecarApi]:
            router = GroupRouter(shadows, moves, may_own=settings.may_own, is_loaded=runtime.has_read)
            return handled_apis(
                service,
                router,
                moves,
                shadows,
                self.relayed,
                reserved=reserved,
                in_flight=in_flight,
                list_owned=list_owned,
                would_refuse=runtime.would_refuse,
            )

        peers = None if sharing is None else self._peers(sharing, runtime, service, list_own)
        handled = handled_by(list_own) if peers is None else await peers.start(handled_by, stack, self.link.cluster_id)
        stack.push_async_callback(_stop_listening, listening)
        forward = forward_nothing if peers is None else peers.forward
        listen = await self._listen(listening, service, handled, forward)
        await keep_open(event_log, settings, stack, self.readiness, lost=self.lost)
        shadows.set_name(ShadowName.of(event_log.identity))
        await self._settle(reserved, event_log)

        async def remove_strays() -> None:
            await _remove_stray_shadows(
                shadows, lambda group_id: runtime.has_group(group_id) and not moves.is_released(group_id)
            )

        if peers is None:
            self.readiness.reason = lambda: self._not_ready(runtime.not_ready)
            await take_over(runtime, stack)
            moves.begin()
            await remove_strays()
            stack.callback(_drain, listening)
        else:
            ownership = self._shared_ownership(runtime, moves, remove_strays)
            await peers.share(ownership, self.readiness, self.parts, stack, stop_listening=partial(_drain, listening))
            shared = self.readiness.reason
            self.readiness.reason = lambda: self._not_ready(shared())
            moves.begin()
        keep_trimmed(owner, stack, lost=self.lost)
        where = {"role": OWNER} if listen is None else {"listen": listen}
        log.info("serving", **where, upstream=settings.upstream, log=settings.log)

    def _peers(self, sharing: PartitionSharing, runtime: Runtime, service: Service, list_own: ListOwned) -> Peers:
        return Peers(
            self.settings,
            service,
            sharing,
            runtime,
            list_own=list_own,
            metrics=self.metrics,
            relayed=self.relayed,
            lost=self.lost,
        )

    def _shared_ownership(
        self, runtime: Runtime, moves: Moves, remove_strays: Callable[[], Awaitable[None]]
    ) -> SharedOwnership:
        ownership = SharedOwnership(runtime, moves, remove_strays, self.lost)
        self.stack.push_async_callback(ownership.close)
        return ownership

    def _given_up(self, number: int) -> None:
        self._let_go(number)

    def _not_ready(self, reason: str | None) -> str | None:
        return "; ".join(filter(None, (self.link.outage.reason, reason))) or None

    async def _find_upstream(self) -> None:
        """Wait for the cluster. Raises CannotServe if waiting cannot help."""
        try:
            await self._until_answered(self.link.open)
            await self._until_answered(self._refuse_muster)
        except UpstreamRefused as error:
            raise CannotServe(f"{self._upstream}: {error}") from error

    async def _refuse_muster(self) -> None:
        if await is_muster(self.link):
            raise UpstreamRefused("a Muster answers there, not a broker; name the brokers of the Kafka cluster")

    async def _reserved(self, event_log: EventLog) -> ReservedNames:
        """Return the names refused to clients: the log's, if it may be in the upstream cluster."""
        reserved = ReservedNames(event_log.location if isinstance(event_log, KafkaEventLog) else None)
        if reserved.topics:
            self.link.on_topic_ids(reserved.topics, reserved.update_ids)
            await self._until_answered(self.link.refresh)
        return reserved

    async def _settle(self, reserved: ReservedNames, event_log: EventLog) -> None:
        """Settle whether the log is in the upstream cluster, by cluster ids, not addresses."""
        if isinstance(event_log, KafkaEventLog):
            reserved.settle(is_here=(event_log.cluster_id or "") == self.link.cluster_id)
            await self._until_answered(self.link.refresh)  # the topic may have been made just now

    async def _until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Retry `ask` until a broker answers."""
        upstream = self.settings.upstream
        throttle = LogThrottle(self.clock.monotonic_ms)

        def report(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self.readiness.reason = lambda: f"{self._upstream}: {error}"
            suppressed = throttle.due(upstream)
            if suppressed is not None:
                log.warning(
                    "upstream not reached, trying again", upstream=upstream, error=str(error), others_since=suppressed
                )

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(TryAgain),
            wait=wait_exponential_jitter(initial=0.2, max=5),
            before_sleep=report,
        )
        await attempts(ask)
        if past := throttle.end(upstream):
            log.info("upstream reached", upstream=upstream, seconds=past.seconds, failures=past.times)

    def _reachability(self) -> Reachability:
        reachability = Reachability(self.link, give_up=self.lost, monotonic_ms=self.clock.monotonic_ms)
        self.stack.push_async_callback(reachability.close)
        reachability.keep_open()
        return reachability

    def _moves(self, runtime: Runtime, shadows: Shadows) -> Moves:
        moves = Moves(
            self.link,
            shadows,
            is_released=lambda group_id: runtime.config_of(group_id).coordinator is not None,
            monotonic_ms=self.clock.monotonic_ms,
            give_up=self.lost,
        )
        self.stack.push_async_callback(moves.close)
        return moves

    def _service(
        self, runtime: Runtime, shadows: Shadows, moves: Moves, in_flight: InFlightCommits, waiting_quota: WaitingQuota
    ) -> Service:
        fenced = ShadowFence(runtime, shadows, give_up=self.lost)
        self.stack.push_async_callback(fenced.close)
        movable = MovableGroups(fenced, moves, in_flight, may_own=self.settings.may_own, give_up=self.lost)
        self.stack.push_async_callback(movable.close)
        groups = WaitingLimit(movable, waiting_quota, runtime.is_member)
        # A sidecar relays Metadata, so none of its handlers uses this.
        cluster = new_cluster(cluster_id=self.link.cluster_id, node_id=-1, host="", port=-1, topics=())
        return new_service(groups, cluster, self.clock, runtime, waiting_quota)

    def _listening(self, service: Service) -> Listening[ClientSide]:
        return Listening[ClientSide](
            limits=self.settings.connection_limits(),
            metrics=self.metrics,
            monotonic_ms=self.clock.monotonic_ms,
            call_later=service.call_later,
            answer_memory=service.slices.answer_memory,
            turns=service.turns,
            reuse_port=self.settings.reuse_port,
        )

    async def _listen(
        self,
        listening: Listening[ClientSide],
        service: Service,
        handled: Mapping[int, SidecarApi],
        forward: Forward,
    ) -> str | None:
        """Bind all addresses; returns the first one, or None of an owner without clients. Raises CannotServe."""
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
            await listeners.open_for(self.link.brokers(), ports)
        except OSError as error:
            raise CannotServe(f"{settings.name_of('listen')} {settings.listen}: {why_not_bound(error)}") from error
        except (CannotListen, NoPort) as error:
            raise CannotServe(str(error)) from error
        self.link.on_brokers(listeners.follow)
        log.info("listening", listen=f"{listen.host}:{port}", upstream=settings.upstream, log=settings.log)
        return f"{listen.host}:{port}"

    @property
    def _upstream(self) -> str:
        return f"{self.settings.name_of('upstream')} {self.settings.upstream}"

    @property
    def _listen_at(self) -> Address:
        return Address(self.settings.listen)

    def _release(self, service: Service, group_id: GroupId, reason: str) -> None:
        """Release a group that was lost to upstream: its members have to join there."""

        def released(outcome: Outcome) -> None:
            assert isinstance(outcome, ReleaseGroupOutcome)
            log_lost(group_id, reason, outcome)

        caller = Caller(
            request_id=service.new_request_id(),
            client_id="muster",
            client_host="",
            principal="",
            api_key=-1,
            api_version=-1,
            arrived_ms=self.clock.monotonic_ms(),
            arrived_wall_ms=self.clock.wall_ms(),
        )
        service.groups.submit(ReleaseGroup(group_id=group_id, caller=caller), released)


async def _remove_stray_shadows(shadows: Shadows, is_ours: Callable[[GroupId], bool]) -> None:
    """Remove shadows that a former process has left in groups that have no members any more."""
    try:
        await shadows.remove_stray_shadows(is_ours)
    except ShadowUnavailable as error:
        log.warning("shadows of empty groups may be left upstream, for 30 minutes at most", error=str(error))


def _drain(listening: Listening[ClientSide]) -> None:
    """Accept nothing more; requests in flight are answered, parked ones when the groups are given up."""
    listening.stop_listening()
    for connection in listening.connections:
        connection.drain()


async def _stop_listening(listening: Listening[ClientSide]) -> None:
    _drain(listening)
    await listening.wait_until_closed(STOP_TIMEOUT_S)
    await listening.close(within_s=1.0)
