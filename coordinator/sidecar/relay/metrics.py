"""The relay's Prometheus counters."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class RelayMetrics(Collector):
    """The counters of all listeners together."""

    def __init__(self) -> None:
        self.bytes_to_brokers = 0
        self.bytes_from_brokers = 0
        self.brokers_not_reached = 0
        self.commits_relayed = 0
        self.authorizations_asked = 0
        self.consumer_group_heartbeats_deferred = 0
        self.authentications_refused = 0

    def collect(self) -> Iterable[Metric]:
        """All counters as Prometheus wants them."""
        for name, text, count in (
            ("muster_relayed_bytes_to_brokers", "Bytes sent to brokers for clients", self.bytes_to_brokers),
            ("muster_relayed_bytes_from_brokers", "Bytes read from brokers for clients", self.bytes_from_brokers),
            ("muster_brokers_not_reached", "Connections whose broker could not be reached", self.brokers_not_reached),
            ("muster_commits_relayed", "Commits relayed for groups of Muster", self.commits_relayed),
            (
                "muster_consumer_group_heartbeats_deferred",
                "ConsumerGroupHeartbeats told to try again, as the group has classic members here",
                self.consumer_group_heartbeats_deferred,
            ),
            (
                "muster_authentications_refused",
                "Times that a broker did not let a client in",
                self.authentications_refused,
            ),
            ("muster_authorizations_asked", "Times a broker was asked what a client may do", self.authorizations_asked),
        ):
            yield CounterMetricFamily(name, text, value=count)
