"""Metrics about the other processes of the log."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.coordinator.peers.link.peer_links import LinkState
from muster.coordinator.peers.sharing import Peer


class PeerMetrics(Collector):
    """Connections to the other processes, collected at each scrape, outside the event loop's thread."""

    def __init__(self, states: Callable[[], list[tuple[Peer, bool]]]) -> None:
        self._states = states

    def collect(self) -> Iterable[Metric]:
        connected = [is_connected for _, is_connected in self._states()]
        peers = GaugeMetricFamily(
            "muster_peers",
            "Other processes of the event log, by the state of the connection to each",
            labels=("state",),
        )
        peers.add_metric(("connected",), connected.count(True))
        peers.add_metric(("not-connected",), connected.count(False))
        yield peers


class LinkMetrics(Collector):
    """The connections on which requests are forwarded, collected in the same way. `lost_ms`: how long no owner was
    reachable.
    """

    def __init__(self, states: Callable[[], Sequence[LinkState]], lost_ms: Callable[[], int]) -> None:
        self._states = states
        self._lost_ms = lost_ms

    def collect(self) -> Iterable[Metric]:
        reached = [each.is_reached for each in self._states()]
        links = GaugeMetricFamily(
            "muster_peer_links",
            "Other processes that own partitions, by whether requests can be forwarded to each",
            labels=("state",),
        )
        links.add_metric(("reached",), reached.count(True))
        links.add_metric(("not-reached",), reached.count(False))
        yield links
        yield GaugeMetricFamily(
            "muster_owners_not_reached_seconds",
            "How long this process has reached no owner of any partition; 0 while it reaches one",
            value=self._lost_ms() / 1000,
        )
