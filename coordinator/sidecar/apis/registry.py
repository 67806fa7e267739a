"""All APIs that a sidecar handles, by key. What is not here is relayed."""

from collections.abc import Callable, Mapping

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.service import Service
from muster.coordinator.sidecar.apis import authentication, consumer_group_heartbeat, produce_and_txn
from muster.coordinator.sidecar.apis.delete_groups import DeletingGroups
from muster.coordinator.sidecar.apis.describe_groups import DescribingGroups
from muster.coordinator.sidecar.apis.group_configs import GroupConfigs
from muster.coordinator.sidecar.apis.list_groups import ListingGroups
from muster.coordinator.sidecar.apis.membership import Membership
from muster.coordinator.sidecar.apis.offset_commit import Commits
from muster.coordinator.sidecar.apis.offset_delete import DeletingOffsets
from muster.coordinator.sidecar.messages.reserved_names import Reserved
from muster.coordinator.sidecar.ownership.in_flight_commits import CommitsUnderWay
from muster.coordinator.sidecar.ownership.moves import Moves
from muster.coordinator.sidecar.ownership.routing import Ownerships
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.shadows import Shadows


def handled_apis(
    service: Service,
    ownerships: Ownerships,
    moves: Moves,
    shadows: Shadows,
    metrics: RelayMetrics,
    *,
    reserved: Reserved,
    under_way: CommitsUnderWay,
    would_refuse: Callable[[JoinGroup], bool],
) -> Mapping[int, SidecarApi]:
    """The registrations."""
    apis = (
        *authentication.apis(metrics),
        *produce_and_txn.apis(reserved),
        consumer_group_heartbeat.api(shadows.follows, metrics),
        *Membership(service, ownerships, moves, would_refuse).apis(),
        *Commits(service, ownerships, moves, shadows, under_way=under_way, reserved=reserved, metrics=metrics).apis(),
        DescribingGroups(service, ownerships, shadows).api(),
        ListingGroups(service, ownerships, shadows).api(),
        DeletingGroups(service, ownerships, shadows).api(),
        DeletingOffsets(service, ownerships, shadows, under_way).api(),
        *GroupConfigs(service, ownerships).apis(),
    )
    return {api.key: api for api in apis}
