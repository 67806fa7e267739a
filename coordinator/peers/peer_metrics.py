"""The metrics of the other processes of the log."""

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.coordinator.peers.sharing import Peer


class PeerMetrics(Collector):
    """Asks for the peers when it is asked itself, in another thread than that of the loop."""

    def __init__(self, states: Callable[[], list[tuple[Peer, bool]]]) -> None:
        self._states = states

    def collect(self) -> Iterable[Metric]:
        """Yield them as a metric."""
        connected = [is_connected for _, is_connected in self._states()]
        peers = GaugeMetricFamily(
            "muster_peers",
            "Other processes of the event log, by whether the connection to each stands",
            labels=("state",),
        )
        peers.add_metric(("connected",), connected.count(True))
        peers.add_metric(("not-connected",), connected.count(False))
        yield peers
