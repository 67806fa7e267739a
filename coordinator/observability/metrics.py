"""The metrics of the process, for Prometheus; docs/metrics.md lists them all.

Each request only increments plain integers, which are converted at each scrape: the library's own counters take a lock
and look up labels each time. Metrics of appends and rebalances, which are less frequent, use the library's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique

from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.api import Fault, Offered
from muster.events.causes import TRIGGERS

REGISTRY = CollectorRegistry()
"""The registry of the process, in which the assembly registers collectors."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # no extra _created series

_REBALANCE_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 900)
_TAKEOVER_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)

APPEND_SECONDS = Histogram(
    "muster_append_seconds",
    "Time from handing events to the event log until they are durable",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
    registry=REGISTRY,
)
APPEND_FAILURES = PrometheusCounter(
    "muster_append_failures",
    "Failed appends of events, and refused transitions",
    ["kind"],
    registry=REGISTRY,
)
TRANSITIONS_APPENDED = PrometheusCounter("muster_transitions_appended", "Transitions made durable", registry=REGISTRY)
REBALANCES = PrometheusCounter("muster_rebalances", "Rebalances started", ["cause"], registry=REGISTRY)
REBALANCE_SECONDS = Histogram(
    "muster_rebalance_seconds",
    "Time from the start of a rebalance until the group is Stable or Empty, or another rebalance starts",
    ["ended"],
    buckets=_REBALANCE_BUCKETS,
    registry=REGISTRY,
)
REBALANCE_PHASE_SECONDS = Histogram(
    "muster_rebalance_phase_seconds",
    "Duration of each phase of a rebalance: join (until all have joined) and sync (until the leader's assignment "
    "arrives)",
    ["phase"],
    buckets=_REBALANCE_BUCKETS,
    registry=REGISTRY,
)
GROUP_REBALANCES = PrometheusCounter(
    "muster_group_rebalances",
    "Rebalances started, of the groups that --metrics-groups names",
    ["group", "cause"],
    registry=REGISTRY,
)
TAKEOVER_SECONDS = Histogram(
    "muster_takeover_seconds",
    "Time from the claim of a partition until its groups are served, at a start and at a takeover",
    buckets=_TAKEOVER_BUCKETS,
    registry=REGISTRY,
)
TAKEOVER_PHASE_SECONDS = Histogram(
    "muster_takeover_phase_seconds",
    "Duration of each phase of a takeover: claim (and fence), read, offsets, ready (the record of it), resume (the "
    "groups)",
    ["phase"],
    buckets=_TAKEOVER_BUCKETS,
    registry=REGISTRY,
)
PARTITIONS_LOST = PrometheusCounter(
    "muster_partitions_lost",
    "Partitions that this process stopped serving, other than by a clean stop or hand-over",
    ["reason"],
    registry=REGISTRY,
)
PAUSES = PrometheusCounter(
    "muster_pauses",
    "Timers of a partition that fired a second or more late, so that its sessions were extended",
    registry=REGISTRY,
)
UPSTREAM_ERRORS = PrometheusCounter(
    "muster_upstream_errors",
    "Failed requests of Muster's own to brokers, and failed connections to them",
    ["kind"],
    registry=REGISTRY,
)
GROUPS_LEFT_UPSTREAM = PrometheusCounter(
    "muster_groups_not_taken",
    "Joins to a group that Muster could not take: it has members upstream, another Muster's shadow, or Muster may "
    "not look",
    ["reason"],
    registry=REGISTRY,
)
GROUPS_LOST_UPSTREAM = PrometheusCounter(
    "muster_groups_lost_upstream",
    "Groups that a member joined past the sidecar, so that all members rejoin upstream",
    registry=REGISTRY,
)
STATIC_RESTARTS = PrometheusCounter(
    "muster_static_restarts", "Static members that rejoined under a new member id", registry=REGISTRY
)
INSTANCE_FENCES = PrometheusCounter(
    "muster_instance_fences",
    "Requests of a process that had lost its instance id to another process",
    registry=REGISTRY,
)
INSTANCE_DUELS = PrometheusCounter(
    "muster_instance_duels",
    "Times that two live processes took one instance id from each other in turn",
    registry=REGISTRY,
)
JOINS_REFUSED = PrometheusCounter(
    "muster_joins_refused",
    "Joins that were refused with a fatal error: their clients stop, or retry in vain",
    ["reason"],
    registry=REGISTRY,
)
SUBSCRIPTIONS_NOT_ASSIGNED = PrometheusCounter(
    "muster_subscriptions_not_assigned",
    "Static members that rejoined with another subscription and kept their assignments without a rebalance",
    registry=REGISTRY,
)
UNASSIGNED_PARTITIONS = Gauge(
    "muster_unassigned_partitions",
    "Partitions of subscribed topics that have been unassigned for six minutes in stable groups: see muster status",
    registry=REGISTRY,
)
TOPICS_NOT_DECLARED = PrometheusCounter(
    "muster_topics_not_declared",
    "Requests to a standalone server for a topic that is not declared (--topic)",
    registry=REGISTRY,
)
FOREIGN_RECORDS = PrometheusCounter(
    "muster_strangers_records",
    "Records in the event log that Muster did not write, and skips",
    registry=REGISTRY,
)
LOG_FLAWS = Gauge(
    "muster_event_log_flaws",
    "Problems of the event topic that appeared while it was served: muster status and the log name them",
    registry=REGISTRY,
)
ENTITIES_REWRITTEN = PrometheusCounter(
    "muster_entities_rewritten",
    "Entities and offsets written again because a record that Muster did not write had replaced them",
    registry=REGISTRY,
)
OFFSETS_EXPIRED = PrometheusCounter(
    "muster_offsets_expired", "Committed offsets deleted because they expired", registry=REGISTRY
)
GROUPS_EXPIRED = PrometheusCounter(
    "muster_groups_expired", "Empty groups deleted because they expired", registry=REGISTRY
)
SIGNS_OF_LIFE_FAILED = PrometheusCounter(
    "muster_signs_of_life_failed",
    "Liveness records that could not be written, or read at a takeover",
    registry=REGISTRY,
)
LOOP_LATE_SECONDS = Histogram(
    "muster_loop_late_seconds",
    "How late the event loop runs a timer, measured ten times a second",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30),
    registry=REGISTRY,
)
LOOP_HOLDS = PrometheusCounter(
    "muster_loop_holds", "Times that the event loop was blocked for a second or longer", registry=REGISTRY
)


for _cause in sorted(TRIGGERS):
    REBALANCES.labels(_cause.value)  # each exists from the start, so that the first one counts as an increase


@unique
class AppendFailure(StrEnum):
    """The kind of a failed append. The values are labels of a metric."""

    DEPOSED = "deposed"
    UNAVAILABLE = "unavailable"
    DENIED = "denied"
    OTHER = "other"
    """The log is damaged, gone, or not the one that was opened."""
    TOO_LARGE = "too-large"
    """Only this transition is refused; its group continues."""


@unique
class UpstreamErrorKind(StrEnum):
    """The kind of an error of Muster's own requests to brokers. The values are labels of a metric."""

    UNREACHABLE = "unreachable"
    """Nothing was sent, or it had no effect: it is retried."""
    ANSWER_LOST = "answer-lost"
    """It was sent, but it is unknown if it had an effect."""
    REFUSED = "refused"
    """A retry cannot help: credentials, ACLs, versions."""


@unique
class TakeoverPhase(StrEnum):
    """The phases of a takeover, in order. The values are labels of a metric."""

    CLAIM = "claim"
    READ = "read"
    OFFSETS = "offsets"
    READY = "ready"
    RESUME = "resume"


for _append in AppendFailure:
    APPEND_FAILURES.labels(_append.value)
for _upstream in UpstreamErrorKind:
    UPSTREAM_ERRORS.labels(_upstream.value)


@unique
class RefusedConnection(StrEnum):
    """The limit that a client's connection exceeded. The values are labels of a metric."""

    ALL = "all"
    ADDRESS = "address"
    PRINCIPAL = "principal"


class ServerMetrics(Collector):
    """The counters of one server, to be registered with `REGISTRY`, or with a test's own registry."""

    def __init__(self, apis: Mapping[int, Offered]) -> None:
        self._apis = apis
        self.requests: Counter[tuple[int, int]] = Counter()  # by API key and version
        self.fast_heartbeats = 0
        self.protocol_errors: Counter[Fault] = Counter()
        self.bytes_received = 0
        self.bytes_sent = 0
        self.bytes_rejected = 0
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused: Counter[RefusedConnection] = Counter()
        self.connections_idle_closed = 0
        self.connections_unread_closed = 0
        self.waiting_refused = 0
        self._held_bytes: Callable[[], int] = lambda: 0
        self.connections_closed_for_memory = 0

    def offer(self, apis: Mapping[int, Offered]) -> None:
        """Set the APIs that are offered from now on."""
        self._apis = apis

    def ask_held_bytes(self, held_bytes: Callable[[], int]) -> None:
        """Set the function that returns the bytes held by requests and responses; it must be thread-safe."""
        self._held_bytes = held_bytes

    @property
    def held_bytes(self) -> int:
        """The bytes held by requests and responses now."""
        return self._held_bytes()

    def api_name(self, api_key: int) -> str:
        """Return Kafka's name of an API, or its key if it is not offered."""
        api = self._apis.get(api_key)
        return f"API key {api_key}" if api is None else api.name

    def count_request(self, api_key: int, api_version: int) -> None:
        """Count a request, unless its API or version is not offered: clients can send any numbers."""
        api = self._apis.get(api_key)
        if api is not None and api_version in api.versions:
            self.requests[api_key, api_version] += 1

    def _decoded_heartbeats(self) -> int:
        return sum(count for (key, _), count in list(self.requests.items()) if key == heartbeat.KEY)

    def collect(self) -> Iterable[Metric]:
        """Yield the counters as metrics."""
        requests = CounterMetricFamily("muster_requests", "Requests decoded", labels=("api", "version"))
        for (key, version), count in list(self.requests.items()):  # collected in another thread
            requests.add_metric((self._apis[key].name, str(version)), count)
        yield requests
        errors = CounterMetricFamily(
            "muster_protocol_errors", "Connections closed because of an invalid request or response", labels=("fault",)
        )
        for fault in Fault:
            errors.add_metric((fault.value,), self.protocol_errors[fault])
        yield errors
        refused = CounterMetricFamily(
            "muster_connections_refused",
            "Client connections closed immediately because a limit was reached",
            labels=("limit",),
        )
        for limit in RefusedConnection:
            refused.add_metric((limit.value,), self.connections_refused[limit])
        yield refused
        yield GaugeMetricFamily(
            "muster_held_bytes",
            "Bytes of memory of requests and responses, on connections that use over 16 KiB",
            value=self.held_bytes,
        )
        yield GaugeMetricFamily("muster_connections", "Open client connections", value=self.connections)
        for name, text, count in (
            (
                "muster_fast_heartbeats",
                "Heartbeats answered without being decoded (the fast path)",
                self.fast_heartbeats,
            ),
            ("muster_decoded_heartbeats", "Heartbeats that were decoded", self._decoded_heartbeats()),
            ("muster_received_bytes", "Bytes read from clients", self.bytes_received),
            ("muster_sent_bytes", "Bytes sent to clients", self.bytes_sent),
            ("muster_rejected_bytes", "Bytes discarded with closed connections", self.bytes_rejected),
            ("muster_connections_accepted", "Client connections accepted", self.connections_accepted),
            (
                "muster_connections_closed_for_memory",
                "Client connections closed because requests and responses exceeded queued.max.request.bytes",
                self.connections_closed_for_memory,
            ),
            (
                "muster_waiting_refused",
                "Joins and syncs refused with a retriable error: too many of one principal or group are waiting",
                self.waiting_refused,
            ),
            (
                "muster_connections_idle_closed",
                "Client connections closed because they were idle",
                self.connections_idle_closed,
            ),
            (
                "muster_connections_unread_closed",
                "Client connections closed because the client did not read its responses",
                self.connections_unread_closed,
            ),
        ):
            yield CounterMetricFamily(name, text, value=count)
