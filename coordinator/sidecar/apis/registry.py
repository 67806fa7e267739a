"""All APIs that a sidecar handles, by key. All others are relayed."""

from collections.abc import Callable, Mapping

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.service import Service
from muster.coordinator.sidecar.apis import authentication, consumer_group_heartbeat, produce_and_txn
from muster.coordinator.sidecar.apis.delete_groups import DeleteGroupsApi
from muster.coordinator.sidecar.apis.describe_groups import DescribeGroupsApi
from muster.coordinator.sidecar.apis.group_configs import GroupConfigsApi
from muster.coordinator.sidecar.apis.list_groups import ListGroupsApi
from muster.coordinator.sidecar.apis.membership import MembershipApi
from muster.coordinator.sidecar.apis.offset_commit import OffsetCommitApi
from muster.coordinator.sidecar.apis.offset_delete import OffsetDeleteApi
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.owned_groups import ListOwned
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.groups.upstream_groups import UpstreamGroups
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.shadows import Shadows


def handled_apis(
    service: Service,
    router: GroupRouter,
    moves: Moves,
    shadows: Shadows,
    metrics: RelayMetrics,
    *,
    reserved: ReservedNames,
    in_flight: InFlightCommits,
    list_owned: ListOwned,
    would_refuse: Callable[[JoinGroup], bool],
    monotonic_ms: Callable[[], int],
    upstream_groups: UpstreamGroups | None = None,
) -> Mapping[int, SidecarApi]:
    """Return the registrations."""
    apis = (
        *authentication.apis(metrics),
        *produce_and_txn.apis(reserved),
        consumer_group_heartbeat.api(shadows.may_have_shadow, metrics, monotonic_ms),
        *MembershipApi(service, router, moves, would_refuse, reserved.is_group, upstream_groups=upstream_groups).apis(),
        *OffsetCommitApi(
            service, router, moves, shadows, in_flight=in_flight, reserved=reserved, metrics=metrics
        ).apis(),
        DescribeGroupsApi(service, router, shadows).api(),
        ListGroupsApi(router, list_owned).api(),
        DeleteGroupsApi(service, router, shadows).api(),
        OffsetDeleteApi(service, router, shadows, in_flight).api(),
        *GroupConfigsApi(service, router).apis(),
    )
    return {api.key: api for api in apis}
