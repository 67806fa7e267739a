"""The parts of a sidecar that deal with groups: the owner, the shadows upstream, moves, the service.

Creates them in the order in which they depend on each other; the exit stack closes them in reverse. Knows nothing of
client connections.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from muster.coordinator.assembly import collect, new_owner, new_service, new_waiting_quota, snapshot_folder
from muster.coordinator.clock import Clock
from muster.coordinator.cluster import new_cluster
from muster.coordinator.group.commands import Caller, ReleaseGroup
from muster.coordinator.group.outcomes import Outcome, ReleaseGroupOutcome
from muster.coordinator.observability.group_metrics import GroupMetrics
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.observability.standby_metrics import StandbyMetrics
from muster.coordinator.observability.status import StatusParts
from muster.coordinator.offsets.upstream import UpstreamOffsetStore
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.runtime.ownership.takeover.ownership_end import end_unknown
from muster.coordinator.runtime.partition.owner import ignore_partition
from muster.coordinator.runtime.partition.waiting_limit import WaitingLimit, WaitingQuota
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Service
from muster.coordinator.settings.settings import Settings
from muster.coordinator.sidecar.forwarding.shared_ownership import release_callback
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.movable_groups import MovableGroups
from muster.coordinator.sidecar.groups.move_log import log_lost
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.shadow_fence import ShadowFence
from muster.coordinator.sidecar.groups.upstream_groups import UpstreamGroups
from muster.coordinator.upstream.reachability import Reachability
from muster.coordinator.upstream.shadow_census import ShadowMetrics, shadows_status
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.log.base import EventLog

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class GroupParts:
    """The parts, closed by the exit stack in reverse order. `lost` receives the error that ends the process."""

    def __init__(
        self,
        settings: Settings,
        event_log: EventLog,
        link: UpstreamLink,
        clock: Clock,
        stack: AsyncExitStack,
        *,
        metrics: ServerMetrics,
        sharing: PartitionSharing | None,
        lost: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._link = link
        self._clock = clock
        self._stack = stack
        self._lost = lost
        self._release_partition: Callable[[int], None] = ignore_partition
        self.shadows = Shadows(link, lost=self._release, give_up=lost)
        stack.push_async_callback(self.shadows.close)
        self.owner = new_owner(
            settings,
            event_log,
            UpstreamOffsetStore(),
            clock,
            on_generation=self.shadows.update_generation,
            on_given_up=self._given_up,
            ask_about_silence=self._reachability().ask_about_silence,
        )
        self.runtime = Runtime(
            self.owner,
            give_up=lost,
            deposed=None if sharing is None else sharing.deposed,
            end_of=end_unknown if sharing is None else sharing.end_of,
            stands_by=settings.stands_by,
            snapshots=snapshot_folder(settings),
        )
        self.moves = self._moves()
        self._release_partition = release_callback(self.shadows, self.moves, event_log)
        self.in_flight = InFlightCommits()
        self.upstream_groups = UpstreamGroups(clock.monotonic_ms)
        self.service = self._service(new_waiting_quota(settings, metrics))

    def observe(self, parts: StatusParts) -> None:
        """Register the parts' metrics and status."""
        runtime, shadows = self.runtime, self.shadows
        for collector in (
            GroupMetrics(runtime.figures),
            StandbyMetrics(runtime.standby_figures),
            ShadowMetrics(shadows.census),
        ):
            collect(collector, self._stack)
        parts.upstream_groups = self.upstream_groups.status
        parts.ownership, parts.shadows = runtime.status, lambda: shadows_status(shadows.census())

    async def remove_stray_shadows(self) -> None:
        """Remove shadows that a previous process left in groups that have no members any more."""
        runtime, moves = self.runtime, self.moves

        def is_ours(group_id: GroupId) -> bool:
            return runtime.has_group(group_id) and not moves.is_released(group_id)

        try:
            await self.shadows.remove_stray_shadows(is_ours)
        except ShadowUnavailable as error:
            log.warning("shadows of empty groups may stay upstream for up to 30 minutes", error=str(error))

    def _given_up(self, number: int) -> None:
        self._release_partition(number)

    def _reachability(self) -> Reachability:
        reachability = Reachability(self._link, give_up=self._lost, monotonic_ms=self._clock.monotonic_ms)
        self._stack.push_async_callback(reachability.close)
        reachability.keep_open()
        return reachability

    def _moves(self) -> Moves:
        moves = Moves(
            self._link,
            self.shadows,
            is_released=lambda group_id: self.runtime.config_of(group_id).coordinator is not None,
            monotonic_ms=self._clock.monotonic_ms,
            give_up=self._lost,
        )
        self._stack.push_async_callback(moves.close)
        return moves

    def _service(self, waiting_quota: WaitingQuota) -> Service:
        fenced = ShadowFence(self.runtime, self.shadows, give_up=self._lost)
        self._stack.push_async_callback(fenced.close)
        movable = MovableGroups(fenced, self.moves, self.in_flight, may_own=self._settings.may_own, give_up=self._lost)
        self._stack.push_async_callback(movable.close)
        groups = WaitingLimit(movable, waiting_quota, self.runtime.is_member)
        # A sidecar relays Metadata, so none of its handlers uses this.
        cluster = new_cluster(cluster_id=self._link.cluster_id, node_id=-1, host="", port=-1, topics=())
        return new_service(groups, cluster, self._clock, self.runtime, waiting_quota)

    def _release(self, group_id: GroupId, reason: str) -> None:
        """Release a group that was lost to upstream, so that its members join there."""

        def released(outcome: Outcome) -> None:
            assert isinstance(outcome, ReleaseGroupOutcome)
            log_lost(group_id, reason, outcome)

        caller = Caller(
            request_id=self.service.new_request_id(),
            client_id="muster",
            client_host="",
            principal="",
            api_key=-1,
            api_version=-1,
            arrived_ms=self._clock.monotonic_ms(),
            arrived_wall_ms=self._clock.wall_ms(),
        )
        self.service.groups.submit(ReleaseGroup(group_id=group_id, caller=caller), released)
