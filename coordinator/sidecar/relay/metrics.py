"""The relay's Prometheus metrics.

Requests and responses update plain integers only, as in `observability/metrics.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
_NAMED: Final = {0: "Produce", 1: "Fetch", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch"}
_OTHERS: Final = "other"


class _Latencies:
    """The latency histogram of one API: a count for each bucket, and the sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms = 0


class RelayMetrics(Collector):
    """The metrics of all listeners together."""

    def __init__(self) -> None:
        self.bytes_to_brokers = 0
        self.bytes_from_brokers = 0
        self.brokers_not_reached = 0
        self.commits_relayed = 0
        self.authorizations_asked = 0
        self.consumer_group_heartbeats_deferred = 0
        self.authentications_refused = 0
        self.upstream_members: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns the numbers of upstream groups and members that sent requests here recently. Thread-safe."""
        self._latencies = {api: _Latencies() for api in (*_NAMED, None)}
        self._of_others = self._latencies[None]

    def answered(self, api_key: int, took_ms: int) -> None:
        """Count a response that began `took_ms` after its request was sent."""
        latencies = self._latencies.get(api_key, self._of_others)
        latencies.counts[bisect_left(BUCKETS_MS, took_ms)] += 1
        latencies.sum_ms += took_ms

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics for Prometheus."""
        for name, text, count in (
            ("muster_relayed_bytes_to_brokers", "Bytes sent to brokers on behalf of clients", self.bytes_to_brokers),
            (
                "muster_relayed_bytes_from_brokers",
                "Bytes read from brokers on behalf of clients",
                self.bytes_from_brokers,
            ),
            (
                "muster_brokers_not_reached",
                "Client connections whose broker could not be reached",
                self.brokers_not_reached,
            ),
            (
                "muster_commits_relayed",
                "Offset commits relayed for groups that Muster coordinates",
                self.commits_relayed,
            ),
            (
                "muster_consumer_group_heartbeats_deferred",
                "ConsumerGroupHeartbeats refused with a retriable error because the group has classic members here",
                self.consumer_group_heartbeats_deferred,
            ),
            (
                "muster_authentications_refused",
                "Clients refused by a broker",
                self.authentications_refused,
            ),
            (
                "muster_authorizations_asked",
                "Requests to brokers for the authorization of a client",
                self.authorizations_asked,
            ),
        ):
            yield CounterMetricFamily(name, text, value=count)
        groups, members = self.upstream_members()
        yield GaugeMetricFamily(
            "muster_upstream_groups",
            "Groups coordinated upstream with a member that was heard from here in the last minute",
            value=groups,
        )
        yield GaugeMetricFamily(
            "muster_upstream_members",
            "Members of these upstream groups that were heard from here in the last minute",
            value=members,
        )
        yield self._relay_seconds()

    def _relay_seconds(self) -> Metric:
        latency = HistogramMetricFamily(
            "muster_relay_seconds",
            "Time from relaying a request until the broker begins to respond; sampled once per reading of the socket",
            labels=("api",),
        )
        for api, latencies in self._latencies.items():
            counts = list(latencies.counts)
            limits = [*(str(limit / 1000) for limit in BUCKETS_MS), "+Inf"]
            buckets = list(zip(limits, accumulate(counts), strict=True))
            latency.add_metric((_OTHERS if api is None else _NAMED[api],), buckets, latencies.sum_ms / 1000)
        return latency
