"""Loads settings from flags, `MUSTER_*` variables and a TOML file, and checks them for contradictions.

The first source that has a setting wins: flag, variable, file. Kafka's client properties (`--upstream-config`,
`--kafka-config`) are merged by name from all sources, e.g. `MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD`.

The settings themselves are declared in settings.py and sidecar.py.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, TomlConfigSettingsSource

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.settings.addresses import Address
from muster.coordinator.settings.problems import Problems, Unusable
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS, Sources, flag
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.settings_file import field_of, read_file
from muster.coordinator.settings.sidecar import EVENT_TOPIC, FRONTEND, NODE_IDS_BY_CHANCE, refusals
from muster.events.kafka.security import BadSecurity, properties_of_environment, split_properties
from muster.variables import without_prefix


class BadSettings(Exception):
    """Some settings cannot be used. The message has a line for each problem: the setting, its value and what to do."""


def load_settings(flags: Mapping[str, Any], config: Sequence[str], file: Path | None) -> Settings:
    """Load the settings from flags (None: not given), `--config` entries, environment and file. Raises BadSettings.

    Checks everything, even after a problem was found, including certificate files.
    """
    problems = Problems()
    given = {name: value for name, value in flags.items() if value is not None and value != []}
    for entry in config:
        with problems.noted():
            given |= dict([_split_config(entry)])
    table: dict[str, Any] = {}
    if file is not None:
        with problems.noted():
            table = read_file(file, problems)
    sources = Sources(flags=given, environment=os.environ, table=table, file=file)
    settings = _validated(_Given(given, table, problems), sources, problems)
    if settings is not None:
        if "kafka_config" not in {*given, *table}:
            settings = settings.without_idle_variables()
        if not problems.add_all(_contradictions(settings)):
            # Files are read now, not when the first client connects.
            for read_files in (settings.upstream_security, settings.log_security, settings.client_tls):
                with problems.noted():
                    read_files()
        with problems.noted():
            _check_log(settings)
    if problems or settings is None:
        raise BadSettings("\n".join(problems.lines))
    return settings


class _Given:
    """The flags and properties for pydantic, as far as they can be parsed."""

    def __init__(self, given: Mapping[str, Any], table: Mapping[str, Any], problems: Problems) -> None:
        self.table = table
        self.flags = {
            **given,
            **{name: _properties(given[name], name, problems) for name in PROPERTY_FIELDS if name in given},
        }
        self.properties = {name: _from_environment(name, problems) for name in PROPERTY_FIELDS}


def _properties(entries: Sequence[str], name: str, problems: Problems) -> dict[str, str]:
    """Parse flags with client properties; note those that cannot be parsed."""
    properties: dict[str, str] = {}
    for entry in entries:
        with problems.noted():
            ((key, value),) = split_properties([entry], flag(name)).items()
            if key in properties:
                raise BadSecurity(f"{flag(name)} {key} is given twice")
            properties[key] = value
    return properties


def _from_environment(name: str, problems: Problems) -> dict[str, str]:
    """Read client properties from variables; if any variable is invalid, note that and return none."""
    prefix, environment, is_bad = f"MUSTER_{name.upper()}_", dict(os.environ), False
    while True:
        try:
            found = properties_of_environment(environment, prefix)
        except BadSecurity as error:
            is_bad = True
            problems.add(str(error))
            environment.pop(str(error).partition(":")[0])
        else:
            return {} if is_bad else found


def _validated(given: _Given, sources: Sources, problems: Problems) -> Settings | None:
    """Create the settings. An invalid field is noted as a problem and replaced by its default."""
    try:
        settings = _gathered(given.flags, given)
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors()]
        for detail in details:
            problems.add(_problem(detail, sources))
        failed = {str(detail["loc"][0]) for detail in details if detail["loc"]} & Settings.model_fields.keys()
        problems.mute(sources.name_of(field) for field in failed)
        defaults = {name: Settings.model_fields[name].get_default(call_default_factory=True) for name in failed}
        try:
            settings = _gathered({**given.flags, **defaults}, given)
        except ValidationError:
            return None
    settings.came_from(sources)
    if settings.upstream is not None and "log" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log": f"kafka://{settings.upstream}/{EVENT_TOPIC}"})
    if settings.share_partitions and settings.role == FRONTEND and "node_id" not in settings.model_fields_set:
        settings = settings.model_copy(
            update={"node_id": secrets.randbelow(NODE_IDS_BY_CHANCE) + INT32_MAX - NODE_IDS_BY_CHANCE}
        )
    return settings


def _check_log(settings: Settings) -> None:
    """Check the URL of the event log, without opening it. Raises Unusable."""
    from muster.events.log.url import InvalidLogUrl, open_log  # noqa: PLC0415 -- `--help` needs no logs

    try:
        open_log(settings.log, partitions=settings.log_partitions)
    except InvalidLogUrl as error:
        raise Unusable(f"{settings.name_of('log')}: {error}") from error


def _gathered(flags: Mapping[str, Any], given: _Given) -> Settings:
    """Merge all sources; client properties are merged by name. Raises ValidationError."""
    from_environment = {name: properties for name, properties in given.properties.items() if properties}

    class FromHere(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- pydantic's names; so below
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            from_file = TomlConfigSettingsSource(settings_cls, toml_file=None)
            from_file.init_kwargs = dict(given.table)
            properties = InitSettingsSource(settings_cls, init_kwargs=from_environment)
            return init_settings, env_settings, properties, from_file

    return FromHere(**flags)


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
    yield from _sharing_refusals(settings)
    yield from _snapshot_refusals(settings)
    setting = "listen" if settings.advertise is None else "advertise"
    if Address(settings.advertise or settings.listen).is_wildcard:
        where = f"{name_of(setting)} {settings.advertise or settings.listen}"
        yield f"{where}: clients cannot be told that address; give --advertise HOST:PORT"
    listen, metrics = Address(settings.listen), None if settings.metrics is None else Address(settings.metrics)
    if metrics is not None and metrics.shares_port_with(listen):
        yield f"{name_of('metrics')} {metrics}: {name_of('listen')} {listen} has that port"
    yield from refusals(settings, settings.model_fields_set, listen, metrics)


def _snapshot_refusals(settings: Settings) -> Iterator[str]:
    snapshots, given = settings.name_of("snapshots"), settings.model_fields_set
    if settings.snapshots is None:
        if "snapshot_interval_ms" in given:
            yield f"{settings.name_of('snapshot_interval_ms')} is for {snapshots}, which is not given"
    elif not settings.log.startswith("kafka:"):
        yield f"{snapshots} needs an event log in Kafka, and {settings.name_of('log')} is {settings.log}"


def _sharing_refusals(settings: Settings) -> Iterator[str]:
    share, given = settings.name_of("share_partitions"), settings.model_fields_set
    if settings.upstream is not None and settings.processes > 1:
        return  # see settings/peers.py
    if not settings.share_partitions:
        for setting in ("owner_session_timeout_ms", "no_hot_standbys"):
            if setting in given:
                yield f"{settings.name_of(setting)} is for {share}, which is not given"
        return
    if not settings.log.startswith("kafka:"):
        yield f"{share} needs an event log in Kafka, and {settings.name_of('log')} is {settings.log}"
    if "node_id" not in given and settings.role != FRONTEND:
        yield f"{share} needs {settings.name_of('node_id')}, another one for each process of the log"


def _split_config(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals:
        raise Unusable(f"--config {entry!r} should be KEY=VALUE, for example group.max.size=100")
    return field_of(name.strip(), f"--config {entry}"), value.strip()


def _problem(detail: Mapping[str, Any], sources: Sources) -> str:
    field, *inside = detail["loc"] or ("settings",)
    message = without_prefix(str(detail["msg"]))
    message = f"{message[0].lower()}{message[1:]}"
    if detail["type"].startswith("int_"):
        message = "should be a whole number"
    if field in PROPERTY_FIELDS:
        # Only the name is shown: the value may be a secret.
        return f"{sources.name_of(field, '.'.join(inside))}: {message}"
    given = ",".join(map(str, detail["input"])) if isinstance(detail["input"], list) else detail["input"]
    return f"{sources.name_of(field)}={given}: {message}"
