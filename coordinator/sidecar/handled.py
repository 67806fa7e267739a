"""All APIs that a sidecar handles, by key. What is not here is relayed."""

from collections.abc import Mapping

from coordinator.service import Service
from coordinator.sidecar.commits import Commits
from coordinator.sidecar.intercept import SidecarApi
from coordinator.sidecar.membership import Membership
from coordinator.sidecar.metrics import RelayMetrics
from coordinator.sidecar.whose import Ownerships
from coordinator.upstream.shadows import Shadows


def handled_apis(
    service: Service, ownerships: Ownerships, shadows: Shadows, metrics: RelayMetrics
) -> Mapping[int, SidecarApi]:
    """The registrations."""
    apis = (
        *Membership(service, ownerships).apis(),
        *Commits(service, ownerships, shadows, metrics).apis(),
    )
    return {api.key: api for api in apis}
