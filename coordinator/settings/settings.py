"""The settings of `muster serve`: each declared once, here or in sidecar.py, with its type, default and help.

Kafka's own settings keep Kafka's names: `group.max.size` on the command line (`--config`) and in the file's `[config]`
table, `MUSTER_GROUP_MAX_SIZE` in the environment. The sidecar's own settings are in sidecar.py. loading.py reads them
from their sources and checks them for contradictions. Nothing else reads the environment.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode, SettingsConfigDict

from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.coordinator.net.limits import FRAME_BYTES_MAX, ConnectionLimits
from muster.coordinator.settings.addresses import HostPort
from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS, KafkaSettings
from muster.coordinator.settings.options import EVENT_LOG, STANDALONE, WATCHING, Milliseconds, option
from muster.coordinator.settings.sidecar import EVENT_TOPIC, FRONTEND, Properties, SidecarSettings, split_list
from muster.coordinator.topics import BadTopic, Topic, declare_topic
from muster.events.kafka.security import KAFKA_CONFIG, KafkaSecurity, kafka_security

_LIMITS = ConnectionLimits()


def _topics(texts: list[str]) -> list[str]:
    names = set()
    for text in texts:
        try:
            name = declare_topic(text).name
        except BadTopic as bad:
            raise ValueError(str(bad)) from bad
        if name in names:
            raise ValueError(f"topic {name!r} is declared twice")
        names.add(name)
    return texts


class Settings(SidecarSettings, KafkaSettings):
    """Every setting of `muster serve`. Times in ms, given as durations or numbers of ms; sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", extra="forbid", frozen=True, hide_input_in_errors=True)

    listen: HostPort = option(
        "127.0.0.1:9092",
        "Where clients connect, HOST:PORT. Port 0 picks a free port. [::] means all IPv6 and IPv4 addresses of "
        "this machine, 0.0.0.0 all IPv4 addresses.",
        metavar="HOST:PORT",
    )
    advertise: HostPort | None = option(
        None, "The address advertised to clients, if it differs from --listen.", metavar="HOST:PORT"
    )
    frame_bytes_max: int = option(
        FRAME_BYTES_MAX,
        "The largest accepted request of any API, in bytes; most APIs have lower limits.",
        ge=1024,
        le=INT32_MAX,
    )
    queued_max_request_bytes: int = option(
        _LIMITS.queued_max_request_bytes,
        "Bytes of memory for requests and responses, beyond 16 KiB for each connection; above it, connections that "
        "use much of it are closed.",
        ge=1024,
    )
    connections_max: int = option(_LIMITS.connections_max, "Maximum number of simultaneous connections.", ge=1)
    connections_max_idle_ms: Milliseconds = option(
        _LIMITS.connections_max_idle_ms,
        "A connection is closed when no request begins or ends on it for this long, unless one of its joins or "
        "syncs is waiting.",
        ge=1_000,
    )
    unread_answers_max_ms: Milliseconds = option(
        _LIMITS.unread_answers_max_ms,
        "How long a client may leave responses unread before its connection is closed.",
        ge=1_000,
    )
    max_connections_per_ip: int = option(
        _LIMITS.max_connections_per_ip,
        "Maximum number of simultaneous connections from one address; clients behind one gateway share its address.",
        ge=1,
        le=INT32_MAX,
    )
    waiting_per_principal: int | None = option(
        None,
        "How many joins and syncs of one principal may wait at a time, or of one group if clients do not "
        "authenticate; more get a retriable error. [default: nine tenths of --connections-max]",
        ge=1,
    )
    member_metadata_max_bytes: int = option(
        1_048_576, "Maximum bytes of one member's metadata, over all its protocols; joins with more are refused.", ge=1
    )

    topic: Annotated[list[str], NoDecode, BeforeValidator(split_list), AfterValidator(_topics)] = option(
        list,
        "A topic that clients may subscribe to, e.g. orders:12; without :PARTITIONS it has one partition.",
        metavar="NAME:PARTITIONS",
        panel=STANDALONE,
    )
    node_id: int = option(
        1,
        "The node id that clients see. For a sidecar, which shows the brokers' node ids, the id among the "
        "processes that share its log; an edge without one picks a random id.",
        panel=STANDALONE,
        ge=0,
        le=INT32_MAX,
    )
    cluster_id: str = option(
        "muster", "The cluster id that clients see.", panel=STANDALONE, min_length=1, max_length=256
    )

    log: str = option(
        "sqlite:///muster.db",
        "The event log: sqlite:///FILE, kafka://HOST:PORT/TOPIC or memory:. With --upstream and without --log, the "
        f"topic {EVENT_TOPIC} there.",
        metavar="URL",
        panel=EVENT_LOG,
    )
    kafka_config: Properties = option(
        dict,
        "Client properties for the cluster of a Kafka event log, as in --upstream-config. A log on upstream's "
        "brokers uses those of --upstream-config by default.",
        metavar="KEY=VALUE",
        panel=EVENT_LOG,
        repr=False,
    )
    log_partitions: int | None = option(
        None, "Number of partitions of a new event log.", panel=EVENT_LOG, ge=1, le=10_000
    )
    log_replication: int | None = option(
        None, "Replication factor of a new event topic.", panel=EVENT_LOG, ge=1, le=100
    )
    answer_lease_ms: Milliseconds = option(
        2_000,
        "How long the owner of a Kafka event log answers after its last append proved that it still is the owner; "
        "a process that takes over changes nothing for as long. Must be the same for all processes of a log.",
        panel=EVENT_LOG,
        ge=200,
        le=60_000,
    )
    share_partitions: bool = option(
        default=False,
        help_="Share the partitions of a Kafka event log with the log's other processes, through a consumer group "
        "in its cluster: each process owns some, and others take over when one ends. Clients are sent to the "
        "owner of their group; sidecars forward to it. Each process needs its own --node-id.",
        panel=EVENT_LOG,
    )
    owner_session_timeout_ms: Milliseconds = option(
        10_000,
        "With --share-partitions: how long a process may be silent before others take over its partitions; must be "
        "within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms.",
        panel=EVENT_LOG,
        ge=1_000,
        le=1_800_000,
    )
    no_hot_standbys: bool = option(
        default=False,
        help_="With --share-partitions: do not follow the partitions of other processes. A process then keeps only "
        "its own groups in memory, but a takeover reads the whole history instead of only what is new.",
        panel=EVENT_LOG,
    )
    snapshots: Path | None = option(
        None,
        "A folder for snapshots of a Kafka event log: a start reads them and only newer events, instead of the "
        "whole history. A lost or unusable snapshot costs only time.",
        metavar="FOLDER",
        panel=EVENT_LOG,
    )
    snapshot_interval_ms: Milliseconds = option(
        60_000, "With --snapshots: how often each partition is saved.", panel=EVENT_LOG, ge=1_000, le=86_400_000
    )
    audit_window_ms: Milliseconds | None = option(
        None, "How long the event log keeps the whole history. [default: 7d for a new log]", panel=EVENT_LOG, ge=0
    )

    metrics: HostPort | None = option(
        None,
        "The address that serves /metrics (Prometheus), /healthz and /readyz.",
        metavar="HOST:PORT",
        panel=WATCHING,
    )
    metrics_groups: Annotated[list[str], NoDecode, BeforeValidator(split_list)] = option(
        list,
        "Groups that get metrics with their own labels: a pattern of group ids with * and ?; at most 1,000 groups.",
        metavar="PATTERN",
        panel=WATCHING,
    )
    log_level: Literal["debug", "info", "warning", "error"] = option("info", "The lowest level to log.", panel=WATCHING)
    log_format: Literal["auto", "console", "json"] = option(
        "auto", "auto: console on a terminal, JSON elsewhere.", panel=WATCHING
    )

    @property
    def stands_by(self) -> bool:
        """True if this process follows the partitions of others as a standby."""
        return self.share_partitions and self.role != FRONTEND and not self.no_hot_standbys

    def topics(self) -> list[Topic]:
        """Return the topics declared by `--topic`."""
        return [declare_topic(text) for text in self.topic]

    def log_security(self) -> KafkaSecurity:
        """Return the security of connections to a Kafka event log, and to its offsets topic. Raises BadSecurity.

        Upstream's credentials are used only for a log whose URL names one of upstream's brokers, never for another
        cluster.
        """
        if self._log_is_upstream and not self.kafka_config:
            return self.upstream_security().kafka_security()
        return kafka_security(self.kafka_config, KAFKA_CONFIG, lambda name: self.name_of("kafka_config", name))

    def without_idle_variables(self) -> "Settings":
        """Drop `kafka_config` if no Kafka log uses it: its variables may be for `muster members` and `replay`."""
        idle = self._log_is_upstream or not self.log.startswith("kafka:")
        return self.model_copy(update={"kafka_config": {}}) if idle else self

    @property
    def log_servers(self) -> str:
        """The brokers in the URL of a Kafka event log."""
        return self.log.removeprefix("kafka://").partition("/")[0]

    @property
    def _log_is_upstream(self) -> bool:
        return not set(self.log_servers.split(",")).isdisjoint((self.upstream or "").split(","))

    @property
    def waiting_requests_each_max(self) -> int:
        """The limit of parked joins and syncs of one principal, or group."""
        return self.waiting_per_principal or self._most_connections

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits of all connections, of each address, and of each principal."""
        return ConnectionLimits(
            connections_max=self.connections_max,
            connections_max_idle_ms=self.connections_max_idle_ms,
            unread_answers_max_ms=self.unread_answers_max_ms,
            max_connections_per_ip=self.max_connections_per_ip,
            connections_per_principal=self.connections_per_principal or self._most_connections,
            queued_max_request_bytes=self.queued_max_request_bytes,
        )

    @property
    def _most_connections(self) -> int:
        """The default limit of one principal: nine tenths, which leaves some for others."""
        return self.connections_max - self.connections_max // 10

    def group_settings(self) -> GroupSettings:
        """Return the settings of the rules."""
        return GroupSettings(
            offsets_are_upstream=self.upstream is not None,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            max_size=self.group_max_size,
            member_metadata_max_bytes=self.member_metadata_max_bytes,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_minutes=self.offsets_retention_minutes,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
        )

    def effective_group_settings(self) -> dict[str, str]:
        """Return the settings of the rules by Kafka's names, for the event log."""
        return {name: str(getattr(self, field)) for name, field in KAFKA_SETTINGS.items()}
