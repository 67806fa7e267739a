"""What the server counts, for Prometheus.

Counting is done with plain integers, since it happens with every request; the Prometheus form is made when somebody
asks for it. The library's own counters take a lock and look up labels each time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.wire.api import Api, Fault

REGISTRY = CollectorRegistry()
"""What the process tells Prometheus. Whoever puts the process together registers collectors here."""


class ServerMetrics(Collector):
    """The counters of one server, to be registered with `REGISTRY`, or a registry of a test's own."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self._apis = apis
        self.requests: Counter[tuple[int, int]] = Counter()  # by API key and version
        self.fast_heartbeats = 0
        self.protocol_errors: Counter[Fault] = Counter()
        self.bytes_received = 0
        self.bytes_sent = 0
        self.bytes_rejected = 0
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_idle_closed = 0

    def collect(self) -> Iterable[Metric]:
        """All counters as Prometheus wants them."""
        requests = CounterMetricFamily("muster_requests", "Requests that were decoded", labels=("api", "version"))
        for (key, version), count in list(self.requests.items()):  # asked for in another thread
            api = self._apis.get(key)
            if api is not None and version in api.versions:  # a client may send any number: no label for each of them
                requests.add_metric((api.name, str(version)), count)
        yield requests
        errors = CounterMetricFamily("muster_protocol_errors", "Connections closed for bad bytes", labels=("fault",))
        for fault in Fault:
            errors.add_metric((fault.value,), self.protocol_errors[fault])
        yield errors
        yield GaugeMetricFamily("muster_connections", "Client connections that are open", value=self.connections)
        for name, text, count in (
            ("muster_fast_heartbeats", "Heartbeats answered without being decoded", self.fast_heartbeats),
            ("muster_received_bytes", "Bytes read from clients", self.bytes_received),
            ("muster_sent_bytes", "Bytes sent to clients", self.bytes_sent),
            ("muster_rejected_bytes", "Bytes thrown away with closed connections", self.bytes_rejected),
            ("muster_connections_accepted", "Client connections accepted", self.connections_accepted),
            ("muster_connections_refused", "Client connections over the limit", self.connections_refused),
            ("muster_connections_idle_closed", "Client connections closed as idle", self.connections_idle_closed),
        ):
            yield CounterMetricFamily(name, text, value=count)
