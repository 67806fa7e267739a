"""How the coordinator is set: flags, `MUSTER_*` variables, a TOML file, defaults; the first that names a setting.

Kafka's own settings keep Kafka's names: `group.max.size` on the command line (`--config`) and in the file's `[config]`
table, `MUSTER_GROUP_MAX_SIZE` in the environment. Everything is checked here, once; nobody else reads an environment.
What only a sidecar has stands in sidecar.py. Kafka's client properties (`--upstream-config`, `--kafka-config`)
come name by name from any source, `MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD` among them.
"""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from muster.coordinator.cluster import BadTopic, Topic, declare_topic
from muster.coordinator.group.settings import INT32_MAX, GroupSettings
from muster.coordinator.net.listening import FRAME_BYTES_MAX, ConnectionLimits
from muster.coordinator.settings.addresses import Address, HostPort
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS, Sources, flag
from muster.coordinator.settings.sidecar import EVENT_TOPIC, Properties, SidecarSettings, refusals, split_list
from muster.coordinator.settings.sidecar_tls import BadTls
from muster.events.log.kafka.client.security import (
    KAFKA_CONFIG,
    BadSecurity,
    KafkaSecurity,
    check_names,
    kafka_security,
    properties_of_environment,
    split_properties,
)

_LIMITS = ConnectionLimits()
INT64_MAX = 2**63 - 1


class BadSettings(Exception):
    """A setting cannot be used. The message names it, its value and the way out, one problem a line."""


def _topics(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            declare_topic(text)
        except BadTopic as bad:
            raise ValueError(str(bad)) from bad
    return texts


class Settings(SidecarSettings):
    """Every setting of `muster serve`. Times in ms, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", extra="forbid", frozen=True, hide_input_in_errors=True)

    listen: HostPort = Field("127.0.0.1:9092", description="Where clients connect, HOST:PORT; port 0 takes a free one.")
    advertise: HostPort | None = Field(None, description="The address that clients are told, if it is another one.")
    log: str = Field(
        "sqlite:///muster.db",
        description="The event log: sqlite:///FILE, kafka://HOST:PORT/TOPIC, memory:. With --upstream, unless it is "
        f"given, the topic {EVENT_TOPIC} there.",
    )
    kafka_config: Properties = Field(
        default_factory=dict,
        repr=False,
        description="How to reach the cluster of a Kafka event log, as in --upstream-config, which also counts for a "
        "log on the upstream's brokers.",
    )
    topic: Annotated[list[str], NoDecode, BeforeValidator(split_list), AfterValidator(_topics)] = Field(
        default_factory=list, description="A topic that clients may subscribe to, NAME:PARTITIONS."
    )
    node_id: int = Field(1, ge=0, le=INT32_MAX, description="The node id that clients see.")
    cluster_id: str = Field("muster", min_length=1, max_length=256, description="The cluster id that clients see.")
    metrics: HostPort | None = Field(None, description="Where Prometheus finds /metrics, /healthz and /readyz.")
    frame_bytes_max: int = Field(
        FRAME_BYTES_MAX, ge=1024, le=INT32_MAX, description="The largest request of any API; most have lower bounds."
    )
    queued_max_request_bytes: int = Field(
        _LIMITS.queued_max_request_bytes,
        ge=1024,
        description="Bytes that requests and answers may hold in memory, but for 16 KiB of each connection; beyond "
        "that connections that hold much are closed.",
    )
    connections_max: int = Field(_LIMITS.connections_max, ge=1, description="Connections served at a time.")
    connections_max_idle_ms: int = Field(
        _LIMITS.connections_max_idle_ms,
        ge=1_000,
        description="A connection on which no request begins or ends for longer is closed, unless it waits for an "
        "answer.",
    )
    unread_answers_max_ms: int = Field(
        _LIMITS.unread_answers_max_ms, ge=1_000, description="How long a client may leave answers unread."
    )
    max_connections_per_ip: int = Field(
        _LIMITS.max_connections_per_ip,
        ge=1,
        le=INT32_MAX,
        description="Connections of one address served at a time; clients behind one gateway share its address.",
    )
    waiting_per_principal: int | None = Field(
        None,
        ge=1,
        description="Joins and syncs of one principal that may wait at a time, or of one group where clients do not "
        "authenticate; more are told to try again. [default: nine tenths of --connections-max]",
    )
    member_metadata_max_bytes: int = Field(
        1_048_576, ge=1, description="Metadata of one member, for all its protocols; a join with more is refused."
    )
    log_partitions: int | None = Field(None, ge=1, le=10_000, description="Partitions of an event log that is made.")
    log_replication: int | None = Field(None, ge=1, le=100, description="Replicas of an event topic that is made.")
    audit_window_ms: int | None = Field(
        None, ge=0, description="How long the event log keeps the whole history; 7 days in a new log."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged at least.")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: console on a terminal, else JSON."
    )

    group_initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, le=INT32_MAX, description="How long a group that was empty waits for more members (KIP-134)."
    )
    group_min_session_timeout_ms: int = Field(
        6_000, ge=1, le=INT32_MAX, description="The shortest session.timeout.ms a consumer may ask for."
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=1, le=INT32_MAX, description="The longest session.timeout.ms a consumer may ask for."
    )
    group_max_size: int = Field(INT32_MAX, ge=1, le=INT32_MAX, description="Members of a group at most (KIP-389).")
    offset_metadata_max_bytes: int = Field(
        4_096, ge=0, le=INT32_MAX, description="The longest metadata string of a committed offset."
    )
    offsets_retention_minutes: int = Field(
        10_080,
        ge=1,
        le=INT32_MAX,
        description="How long committed offsets are kept after the group is empty, or after the commit where nobody "
        "subscribes the topic or the group never had members.",
    )
    offsets_retention_check_interval_ms: int = Field(
        600_000,
        ge=1,
        le=INT64_MAX,
        description="How often expired offsets are looked for, and empty groups without offsets, which go at once.",
    )

    def topics(self) -> list[Topic]:
        """The declared topics."""
        return [declare_topic(text) for text in self.topic]

    def log_security(self) -> KafkaSecurity:
        """How the cluster of a Kafka event log is reached, that of its offsets too. Raises BadSecurity.

        What was given for the upstream is shown to no other cluster: only to a log that names one of its brokers.
        """
        if self._log_is_upstream and not self.kafka_config:
            return self.upstream_security().kafka_security()
        return kafka_security(self.kafka_config, KAFKA_CONFIG, lambda name: self.name_of("kafka_config", name))

    def without_idle_variables(self) -> "Settings":
        """Variables for `--kafka-config` alone may be there for `muster members` and `muster replay`."""
        idle = self._log_is_upstream or not self.log.startswith("kafka:")
        return self.model_copy(update={"kafka_config": {}}) if idle else self

    @property
    def _log_is_upstream(self) -> bool:
        servers = self.log.removeprefix("kafka://").partition("/")[0].split(",")
        return not set(servers).isdisjoint((self.upstream or "").split(","))

    @property
    def waiting_requests_each_max(self) -> int:
        """How many joins and syncs of one principal, or group, may wait at a time."""
        return self.waiting_per_principal or self._most_connections

    def connection_limits(self) -> ConnectionLimits:
        """Of all connections, of those of one address, and of those of one principal."""
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
        """What one may have, with some left for others: nine tenths."""
        return self.connections_max - self.connections_max // 10

    def group_settings(self) -> GroupSettings:
        """What the rules need."""
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
        """By Kafka's names, for the event log."""
        return {name: str(getattr(self, field)) for name, field in KAFKA_SETTINGS.items()}


KAFKA_SETTINGS: Mapping[str, str] = {
    field.replace("_", "."): field
    for field in Settings.model_fields
    if field.startswith(("group_", "offset_", "offsets_"))
}
"""Kafka's names of the settings that `--config` takes, and our fields for them."""


def load_settings(flags: Mapping[str, Any], config: Sequence[str], file: Path | None) -> Settings:
    """Settings from flags (None: not given), `--config NAME=VALUE`, the environment and a file. Raises BadSettings."""
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    given |= dict(_split_config(entry) for entry in config)
    try:
        table = _read_file(file) if file is not None else {}
    except BadSecurity as error:
        raise BadSettings(str(error)) from error
    sources = Sources(flags=given, environment=os.environ, table=table, file=file)
    try:
        settings = _gathered(given, table)
        settings.came_from(sources)
        if settings.upstream is not None and "log" not in settings.model_fields_set:
            settings = settings.model_copy(update={"log": f"kafka://{settings.upstream}/{EVENT_TOPIC}"})
        if "kafka_config" not in {*given, *table}:
            settings = settings.without_idle_variables()
        problems = [*_contradictions(settings)]
        if not problems:
            # Files are looked at now, and not when the first client comes.
            settings.upstream_security()
            settings.log_security()
            settings.client_tls()
    except ValidationError as error:
        raise BadSettings("\n".join(_problem(dict(detail), sources) for detail in error.errors())) from None
    except (BadSecurity, BadTls) as error:
        raise BadSettings(str(error)) from error
    if problems:
        raise BadSettings("\n".join(problems))
    return settings


def _gathered(given: Mapping[str, Any], table: Mapping[str, Any]) -> Settings:
    """From all sources. Properties are gathered name by name. Raises ValidationError and BadSecurity."""
    split = {name: split_properties(given[name], flag(name)) for name in PROPERTY_FIELDS if name in given}
    prefixes = {name: f"MUSTER_{name.upper()}_" for name in PROPERTY_FIELDS}
    named = {name: properties_of_environment(os.environ, prefix) for name, prefix in prefixes.items()}
    from_environment = {name: properties for name, properties in named.items() if properties}

    class FromHere(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            from_file = TomlConfigSettingsSource(settings_cls, toml_file=None)
            from_file.init_kwargs = dict(table)
            properties = InitSettingsSource(settings_cls, init_kwargs=from_environment)
            return init_settings, env_settings, properties, from_file

    return FromHere(**{**given, **split})


def _contradictions(settings: Settings) -> Iterator[str]:
    name_of = settings.name_of
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        yield (
            f"{name_of('group_min_session_timeout_ms')}={settings.group_min_session_timeout_ms} is above "
            f"{name_of('group_max_session_timeout_ms')}={settings.group_max_session_timeout_ms}"
        )
    if settings.queued_max_request_bytes * 3 < settings.frame_bytes_max * 4:
        yield (
            f"{name_of('queued_max_request_bytes')}={settings.queued_max_request_bytes}, a quarter of it for answers,"
            f" leaves less than {name_of('frame_bytes_max')}={settings.frame_bytes_max}:"
            " the largest request could not be taken"
        )
    if settings.kafka_config and not settings.log.startswith("kafka:"):
        kafka_config, log = name_of("kafka_config"), name_of("log")
        yield f"{kafka_config} is for an event log in Kafka, and {log} is {settings.log}: leave it out"
    metrics = None if settings.metrics is None else Address(settings.metrics)
    yield from refusals(settings, settings.model_fields_set, Address(settings.listen), metrics)
    told = "listen" if settings.advertise is None else "advertise"
    if Address(settings.advertise or settings.listen).is_wildcard:
        where = f"{name_of(told)} {settings.advertise or settings.listen}"
        yield f"{where}: clients cannot be told that address; give --advertise HOST:PORT"


def _split_config(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals:
        raise BadSettings(f"--config {entry!r} should be NAME=VALUE, for example group.max.size=100")
    return _field_of(name.strip(), f"--config {entry}"), value.strip()


def _field_of(name: str, where: str) -> str:
    field = KAFKA_SETTINGS.get(name)
    if field is None:
        near = difflib.get_close_matches(name, KAFKA_SETTINGS, n=1)
        known = f"did you mean {near[0]}?" if near else f"known are {', '.join(KAFKA_SETTINGS)}"
        raise BadSettings(f"{where}: there is no setting {name!r}; {known}")
    return field


def _read_file(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- only with a file

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file} is no TOML file: {error}") from error
    config = table.pop("config", {})
    if not isinstance(config, dict):
        raise BadSettings(f"{file}: [config] should be a table of Kafka's settings")
    flat = {name.replace("-", "_"): value for name, value in table.items()}
    if isinstance(upstream := flat.get("upstream"), dict):
        properties = flat["upstream_config"] = _dotted(upstream)
        flat["upstream"] = properties.pop("bootstrap.servers", None)
    for name in PROPERTY_FIELDS & flat.keys():
        if not isinstance(flat[name], dict):
            raise BadSettings(f"{file}: [{name.replace('_', '-')}] should be a table of Kafka's client properties")
        flat[name] = _dotted(flat[name])
        check_names(flat[name], str(file))
    unknown = sorted(set(flat) - set(Settings.model_fields))
    if unknown:
        raise BadSettings(f"{file}: there is no setting {unknown[0]!r}; known are {', '.join(Settings.model_fields)}")
    given = {name: value for name, value in flat.items() if value is not None}
    return given | {_field_of(name, str(file)): value for name, value in _dotted(config).items()}


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """In TOML `group.max.size = 3` is a table in a table; Kafka's names are flat."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = _dotted(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{rest}".removesuffix("."): each for rest, each in inner.items()}
    return flat


def _problem(detail: Mapping[str, Any], sources: Sources) -> str:
    field, *inside = detail["loc"] or ("settings",)
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = f"{message[0].lower()}{message[1:]}"
    if field in PROPERTY_FIELDS:
        # Only the name is shown: the value may be a secret.
        return f"{sources.name_of(field, '.'.join(inside))}: {message}"
    given = ",".join(map(str, detail["input"])) if isinstance(detail["input"], list) else detail["input"]
    return f"{sources.name_of(field)}={given}: {message}"
