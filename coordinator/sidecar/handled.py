"""All APIs that a sidecar handles, by key. What is not here is relayed."""

from collections.abc import Callable, Mapping

from coordinator.group.commands import JoinGroup
from coordinator.service import Service
from coordinator.sidecar import authentication, consumer_groups, refused
from coordinator.sidecar.commits import Commits
from coordinator.sidecar.delete_groups import DeletingGroups
from coordinator.sidecar.describe_groups import DescribingGroups
from coordinator.sidecar.group_configs import GroupConfigs
from coordinator.sidecar.intercept import SidecarApi
from coordinator.sidecar.list_groups import ListingGroups
from coordinator.sidecar.membership import Membership
from coordinator.sidecar.metrics import RelayMetrics
from coordinator.sidecar.moves import Moves
from coordinator.sidecar.offset_delete import DeletingOffsets
from coordinator.sidecar.reserved import Reserved
from coordinator.sidecar.under_way import CommitsUnderWay
from coordinator.sidecar.whose import Ownerships
from coordinator.upstream.shadows import Shadows


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
        *refused.apis(reserved),
        consumer_groups.api(shadows.follows, metrics),
        *Membership(service, ownerships, moves, would_refuse).apis(),
        *Commits(service, ownerships, moves, shadows, under_way=under_way, reserved=reserved, metrics=metrics).apis(),
        DescribingGroups(service, ownerships, shadows).api(),
        ListingGroups(service, ownerships, shadows).api(),
        DeletingGroups(service, ownerships, shadows).api(),
        DeletingOffsets(service, ownerships, shadows, under_way).api(),
        *GroupConfigs(service, ownerships).apis(),
    )
    return {api.key: api for api in apis}
