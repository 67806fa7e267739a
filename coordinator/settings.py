"""How the coordinator is set: flags, `MUSTER_*` variables, a TOML file, defaults; the first that names a setting.

Kafka's own settings keep Kafka's names: `group.max.size` on the command line (`--config`) and in the file's `[config]`
table, `MUSTER_GROUP_MAX_SIZE` in the environment. Everything is checked here, once; nobody else reads an environment.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from coordinator.cluster import BadTopic, Topic, declare_topic
from coordinator.group.settings import INT32_MAX, GroupSettings

FRAME_BYTES_MAX = 100 * 1024 * 1024
INT64_MAX = 2**63 - 1


class BadSettings(Exception):
    """A setting cannot be used. The message names it, its value and the way out, one problem a line."""


class Address(str):
    """HOST:PORT, checked."""

    __slots__ = ()

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("should be HOST:PORT, for example 127.0.0.1:9092")
    return Address(text)


def _split(value: Any) -> Any:  # noqa: ANN401 -- whatever a source gives
    """In the environment several topics are separated by commas."""
    return [text.strip() for text in value.split(",") if text.strip()] if isinstance(value, str) else value


def _topics(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            declare_topic(text)
        except BadTopic as bad:
            raise ValueError(str(bad)) from bad
    return texts


HostPort = Annotated[str, AfterValidator(_address)]


class Settings(BaseSettings):
    """Every setting of `muster serve`. Times in ms, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", extra="forbid", frozen=True)

    listen: HostPort = Field("127.0.0.1:9092", description="Where clients connect, HOST:PORT; port 0 takes a free one.")
    advertise: HostPort | None = Field(None, description="The address that clients are told, if it is another one.")
    log: str = Field(
        "sqlite:///muster.db", description="The event log: sqlite:///FILE, kafka://HOST:PORT/TOPIC, memory:"
    )
    topic: Annotated[list[str], NoDecode, BeforeValidator(_split), AfterValidator(_topics)] = Field(
        default_factory=list, description="A topic that clients may subscribe to, NAME:PARTITIONS."
    )
    node_id: int = Field(1, ge=0, le=INT32_MAX, description="The node id that clients see.")
    cluster_id: str = Field("muster", min_length=1, max_length=256, description="The cluster id that clients see.")
    metrics: HostPort | None = Field(None, description="Where Prometheus finds /metrics, /healthz and /readyz.")
    frame_bytes_max: int = Field(FRAME_BYTES_MAX, ge=1024, le=INT32_MAX, description="The largest request taken.")
    connections_max: int = Field(10_000, ge=1, description="Connections served at a time.")
    connections_max_idle_ms: int = Field(600_000, ge=1_000, description="A connection silent for longer is closed.")
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

    def group_settings(self) -> GroupSettings:
        """What the rules need."""
        return GroupSettings(
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            max_size=self.group_max_size,
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
    table = _read_file(file) if file is not None else {}

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
            from_file.init_kwargs = table
            return init_settings, env_settings, from_file

    try:
        settings = FromHere(**given)
    except ValidationError as error:
        raise BadSettings("\n".join(_problem(dict(detail)) for detail in error.errors())) from error
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise BadSettings(
            f"group.min.session.timeout.ms={settings.group_min_session_timeout_ms} is above "
            f"group.max.session.timeout.ms={settings.group_max_session_timeout_ms}"
        )
    return settings


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
    unknown = sorted(set(flat) - set(Settings.model_fields))
    if unknown:
        raise BadSettings(f"{file}: there is no setting {unknown[0]!r}; known are {', '.join(Settings.model_fields)}")
    return flat | {_field_of(name, str(file)): value for name, value in config.items()}


def _problem(detail: Mapping[str, Any]) -> str:
    field = str(detail["loc"][0]) if detail["loc"] else "settings"
    names = {ours: kafkas for kafkas, ours in KAFKA_SETTINGS.items()}
    name = names.get(field, "--" + field.replace("_", "-"))
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{name}={detail['input']}: {message[0].lower()}{message[1:]}"
