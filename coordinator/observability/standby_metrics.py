"""The metrics of hot standbys: how far this process is behind the partitions that it follows."""

from collections.abc import Callable, Iterable

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class StandbyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that a process follows. `ready`: the partitions of which a takeover would only read new records.

    `behind_max`: the largest lag in offsets; `oldest_ms`: the longest time since a partition was last known to be at
    its end.
    """

    followed: int
    ready: int
    behind_max: int
    oldest_ms: int


class StandbyMetrics(Collector):
    """Collects the figures at each scrape, in another thread; None: this process has no standbys."""

    def __init__(self, figures: Callable[[], StandbyFigures | None]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        figures = self._figures()
        if figures is None:
            return
        for name, text, value in (
            (
                "muster_standby_partitions",
                "Partitions of other processes that this process follows as a standby",
                figures.followed,
            ),
            (
                "muster_standby_partitions_ready",
                "Followed partitions that are up to date: a takeover would read only newer records",
                figures.ready,
            ),
            (
                "muster_standby_lag_records",
                "Offset lag of the followed partition with the largest lag",
                figures.behind_max,
            ),
            (
                "muster_standby_lag_seconds",
                "Time since the followed partition with the longest lag was last known to be at its end",
                figures.oldest_ms / 1000,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
