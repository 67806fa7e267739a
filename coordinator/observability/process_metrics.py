"""The metrics of the process itself: its version, its readiness, the machine resources that it uses."""

import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from muster import DISTRIBUTION


class BuildInfo(Collector):
    """The running version and mode, and whether the process is ready."""

    def __init__(self, mode: str, is_ready: Callable[[], bool]) -> None:
        self._mode = mode
        self._is_ready = is_ready

    def collect(self) -> Iterable[Metric]:
        """Yield the info series, whose value is 1, and the readiness, 1 or 0."""
        info = GaugeMetricFamily(
            "muster_build_info",
            "Version, Python and mode of the process, as labels",
            labels=("version", "python", "mode"),
        )
        info.add_metric((version(DISTRIBUTION), sys.version.partition(" ")[0], self._mode), 1)
        yield info
        yield GaugeMetricFamily("muster_ready", "1 if /readyz reports ready, else 0", value=int(self._is_ready()))


def process_collectors(mode: str, is_ready: Callable[[], bool]) -> tuple[Collector, ...]:
    """Return the collectors of the process. `mode`: standalone or sidecar. `is_ready` is thread-safe."""
    nowhere = CollectorRegistry()  # each registers itself when it is created, but the caller decides where
    return (
        BuildInfo(mode, is_ready),
        ProcessCollector(registry=nowhere),
        PlatformCollector(registry=nowhere),
        GCCollector(registry=nowhere),
    )
