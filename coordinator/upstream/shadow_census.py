"""Counts present and missing shadows, for the status, the metrics, and the last log line of a process."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec
import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.coordinator.observability.group_metrics import in_slices
from muster.coordinator.observability.status import NAMED_MAX, MissingShadowStatus, ShadowStatus
from muster.coordinator.upstream.shadow import ShadowState
from muster.coordinator.upstream.shadow_driver import ShadowHandle
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

GROUPS_NAMED_MAX: Final = 10
"""How many groups the log line names at most."""
_THERE: Final = frozenset({ShadowState.JOINED, ShadowState.IN})


class MissingShadow(msgspec.Struct, frozen=True):
    """A group of ours whose shadow is not upstream now, and the last error; "" if there was none."""

    group_id: GroupId
    error: str


class ShadowCensus(msgspec.Struct, frozen=True, kw_only=True):
    """How many shadows are upstream, and the groups whose shadow should be there but is not, or not yet."""

    present: int
    missing: tuple[MissingShadow, ...]


def census_of(handles: Iterable[ShadowHandle]) -> ShadowCensus:
    """Count the shadows. Thread-safe."""
    wanted = [each for each in in_slices(handles) if each.shadow.should_be_in]
    missing = [MissingShadow(each.group_id, each.last_error) for each in wanted if each.shadow.state not in _THERE]
    return ShadowCensus(present=len(wanted) - len(missing), missing=tuple(missing))


def shadows_status(census: ShadowCensus) -> ShadowStatus:
    """Return the counts for the status."""
    named = [MissingShadowStatus(group_id=each.group_id, error=each.error) for each in census.missing[:NAMED_MAX]]
    return ShadowStatus(present=census.present, missing_count=len(census.missing), missing=named)


def log_left(handles: Collection[ShadowHandle], *, for_at_most_ms: int) -> None:
    """Log which shadows stay upstream when the process exits, and for how long."""
    groups = sorted(each.group_id for each in handles if each.shadow.state is not ShadowState.OUT)
    if groups:
        log.info(
            "shadows left in the cluster: its brokers refuse direct members of these groups until they expire",
            shadows=len(groups),
            groups=groups[:GROUPS_NAMED_MAX],
            for_at_most_s=for_at_most_ms // 1000,
            way_out="start a sidecar with the same --log; muster release --all before a stop leaves none",
        )


class ShadowMetrics(Collector):
    """Counts the shadows at each scrape."""

    def __init__(self, census: Callable[[], ShadowCensus]) -> None:
        self._census = census

    def collect(self) -> Iterable[Metric]:
        """Yield the counts."""
        census = self._census()
        shadows = GaugeMetricFamily(
            "muster_shadows",
            "Shadows present in the upstream cluster, and groups whose shadow is missing",
            labels=("state",),
        )
        shadows.add_metric(("present",), census.present)
        shadows.add_metric(("missing",), len(census.missing))
        yield shadows
