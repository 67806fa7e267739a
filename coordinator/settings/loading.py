"""Settings from flags, `MUSTER_*` variables and a TOML file: gathered, and checked against each other.

What belongs here: the precedence of sources, and the errors about settings that cannot be used. What it must not know:
which settings there are (settings.py, sidecar.py).

The first source that names a setting wins: a flag, a variable, the file. Kafka's client properties
(`--upstream-config`, `--kafka-config`) come name by name from any source, `MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD` among
them.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, TomlConfigSettingsSource

from muster.coordinator.settings.addresses import Address
from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS, Sources, flag
from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import EVENT_TOPIC, refusals
from muster.coordinator.settings.sidecar_tls import BadTls
from muster.events.kafka.security import (
    BadSecurity,
    check_names,
    properties_of_environment,
    split_properties,
)


class BadSettings(Exception):
    """A setting cannot be used. The message names it, its value and the way out, one problem a line."""


def load_settings(flags: Mapping[str, Any], config: Sequence[str], file: Path | None) -> Settings:
    """Load the settings from flags (None: not given), `--config` entries, environment and file. Raises BadSettings."""
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
    """Merge all sources; client properties name by name. Raises ValidationError and BadSecurity."""
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
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- pydantic's names; so below
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
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
    yield from _sharing_refusals(settings)
    yield from _snapshot_refusals(settings)
    metrics = None if settings.metrics is None else Address(settings.metrics)
    yield from refusals(settings, settings.model_fields_set, Address(settings.listen), metrics)
    setting = "listen" if settings.advertise is None else "advertise"
    if Address(settings.advertise or settings.listen).is_wildcard:
        where = f"{name_of(setting)} {settings.advertise or settings.listen}"
        yield f"{where}: clients cannot be told that address; give --advertise HOST:PORT"


def _snapshot_refusals(settings: Settings) -> Iterator[str]:
    snapshots, given = settings.name_of("snapshots"), settings.model_fields_set
    if settings.snapshots is None:
        if "snapshot_interval_ms" in given:
            yield f"{settings.name_of('snapshot_interval_ms')} is for {snapshots}, which is not given"
    elif not settings.log.startswith("kafka:"):
        yield f"{snapshots} needs an event log in Kafka, and {settings.name_of('log')} is {settings.log}"


def _sharing_refusals(settings: Settings) -> Iterator[str]:
    share, given = settings.name_of("share_partitions"), settings.model_fields_set
    if not settings.share_partitions:
        for setting in ("owner_session_timeout_ms", "no_hot_standbys"):
            if setting in given:
                yield f"{settings.name_of(setting)} is for {share}, which is not given"
        return
    if not settings.log.startswith("kafka:"):
        yield f"{share} needs an event log in Kafka, and {settings.name_of('log')} is {settings.log}"
    if "node_id" not in given:
        yield f"{share} needs {settings.name_of('node_id')}, another one for each process of the log"


def _split_config(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals:
        raise BadSettings(f"--config {entry!r} should be KEY=VALUE, for example group.max.size=100")
    return _field_of(name.strip(), f"--config {entry}"), value.strip()


def _field_of(name: str, where: str) -> str:
    field = KAFKA_SETTINGS.get(name)
    if field is None:
        raise BadSettings(f"{where}: {_unknown(name, KAFKA_SETTINGS)}")
    return field


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "muster serve --help lists them"
    return f"there is no setting {name!r}; {hint}"


def _misplaced(name: str, value: Any) -> str:  # noqa: ANN401 -- whatever a file has
    """Explain what is wrong with a name at the top of the file."""
    kafkas = next((each for each in _dotted({name: value}) if each in KAFKA_SETTINGS), None)
    if kafkas is not None:
        return f"{kafkas} belongs into the table [config]"
    return _unknown(name, [flag(each).removeprefix("--") for each in Settings.model_fields])


def _read_file(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- only with a file

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read {_as_given(file)}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        twice = "Cannot overwrite a value" in str(error) and "[upstream]" in file.read_text(encoding="utf-8")
        hint = "; the addresses of [upstream] are its bootstrap.servers" if twice else ""
        raise BadSettings(f"{file} is no TOML file: {error}{hint}") from error
    except RecursionError as error:
        raise BadSettings(f"{file} cannot be read: its values are nested too deeply") from error
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
    for name, value in table.items():
        if name.replace("-", "_") not in Settings.model_fields:
            raise BadSettings(f"{file}: {_misplaced(name, value)}")
    given = {name: value for name, value in flat.items() if value is not None}
    given |= {_field_of(name, str(file)): value for name, value in _dotted(config).items()}
    for name, value in given.items():
        if isinstance(value, bool) and Settings.model_fields[name].annotation is not bool:  # else true would be 1
            told = next((kafkas for kafkas, field in KAFKA_SETTINGS.items() if field == name), name.replace("_", "-"))
            raise BadSettings(f"{file}: {told}={str(value).lower()}: only a switch may be true or false")
    return given


def _as_given(file: Path) -> str:
    """The file, who named it, and where a path that is not absolute begins."""
    source = "MUSTER_CONFIG_FILE" if os.environ.get("MUSTER_CONFIG_FILE") == str(file) else "--config-file"
    return f"{source} {file}" + ("" if file.is_absolute() else f" in {Path.cwd()}")


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested tables into Kafka's names: in TOML `group.max.size = 3` is a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = _dotted(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{rest}".removesuffix("."): each for rest, each in inner.items()}
    return flat


def _problem(detail: Mapping[str, Any], sources: Sources) -> str:
    field, *inside = detail["loc"] or ("settings",)
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    message = f"{message[0].lower()}{message[1:]}"
    if detail["type"].startswith("int_"):
        message = "should be a whole number"
    if field in PROPERTY_FIELDS:
        # Only the name is shown: the value may be a secret.
        return f"{sources.name_of(field, '.'.join(inside))}: {message}"
    given = ",".join(map(str, detail["input"])) if isinstance(detail["input"], list) else detail["input"]
    return f"{sources.name_of(field)}={given}: {message}"
