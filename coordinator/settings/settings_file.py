"""The file of settings (`--config-file`): reads the TOML and checks the names in it."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.problems import Problems, Unusable
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS, flag
from muster.coordinator.settings.settings import Settings
from muster.events.kafka.security import check_names


def field_of(name: str, where: str) -> str:
    """Return the field of a setting by Kafka's name. Raises Unusable."""
    field = KAFKA_SETTINGS.get(name)
    if field is None:
        raise Unusable(f"{where}: {_unknown(name, KAFKA_SETTINGS)}")
    return field


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "muster serve --help lists them"
    return f"there is no setting {name!r}; {hint}"


def _misplaced(name: str, value: Any) -> str:  # noqa: ANN401 -- whatever a file has
    """Explain what is wrong with a name at the top of the file."""
    kafkas = next((each for each in _dotted({name: value}) if each in KAFKA_SETTINGS), None)
    if kafkas is not None:
        return f"{kafkas} belongs in the table [config]"
    return _unknown(name, [flag(each).removeprefix("--") for each in Settings.model_fields])


def read_file(file: Path, problems: Problems) -> dict[str, Any]:
    """Read the file, by field; unusable parts are omitted and noted. Raises Unusable if it is not TOML."""
    table = _parsed(file)
    config = table.pop("config", {})
    if not isinstance(config, dict):
        problems.add(f"{file}: [config] should be a table of Kafka's settings")
        config = {}
    known = {name: value for name, value in table.items() if name.replace("-", "_") in Settings.model_fields}
    for name in table.keys() - known.keys():
        problems.add(f"{file}: {_misplaced(name, table[name])}")
    flat = {name.replace("-", "_"): value for name, value in known.items()}
    if isinstance(upstream := flat.get("upstream"), dict):
        properties = flat["upstream_config"] = _dotted(upstream)
        flat["upstream"] = properties.pop("bootstrap.servers", None)
    for name in PROPERTY_FIELDS & flat.keys():
        if (of_client := _properties_of(flat.pop(name), name, file, problems)) is not None:
            flat[name] = of_client
    given = {name: value for name, value in flat.items() if value is not None}
    for name, value in _dotted(config).items():
        with problems.noted():
            given[field_of(name, str(file))] = value
    return {name: value for name, value in given.items() if not _is_misused_switch(name, value, file, problems)}


def _parsed(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- only with a file

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"cannot read {_as_given(file)}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        twice = "Cannot overwrite a value" in str(error) and "[upstream]" in file.read_text(encoding="utf-8")
        hint = "; the addresses of [upstream] are its bootstrap.servers" if twice else ""
        raise Unusable(f"{file} is not a TOML file: {error}{hint}") from error
    except RecursionError as error:
        raise Unusable(f"{file} cannot be read: its values are nested too deeply") from error


def _properties_of(value: Any, name: str, file: Path, problems: Problems) -> dict[str, Any] | None:  # noqa: ANN401
    """Return a table of client properties; None if it is unusable, which is noted."""
    if not isinstance(value, dict):
        problems.add(f"{file}: [{name.replace('_', '-')}] should be a table of Kafka's client properties")
        return None
    properties = _dotted(value)
    before = len(problems.lines)
    for key in properties:
        with problems.noted():
            check_names([key], str(file))
    return None if len(problems.lines) > before else properties


def _is_misused_switch(name: str, value: Any, file: Path, problems: Problems) -> bool:  # noqa: ANN401
    """Return whether a setting other than a switch is true or false, and note it: true would be read as 1."""
    if not isinstance(value, bool) or Settings.model_fields[name].annotation is bool:
        return False
    told = next((kafkas for kafkas, field in KAFKA_SETTINGS.items() if field == name), name.replace("_", "-"))
    problems.add(f"{file}: {told}={str(value).lower()}: only a flag may be true or false")
    return True


def _as_given(file: Path) -> str:
    """Return the file, the option or variable that named it, and the directory that a relative path starts from."""
    source = "MUSTER_CONFIG_FILE" if os.environ.get("MUSTER_CONFIG_FILE") == str(file) else "--config-file"
    return f"{source} {file}" + ("" if file.is_absolute() else f" in {Path.cwd()}")


def _dotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested tables to Kafka's names: in TOML `group.max.size = 3` is a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = _dotted(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{rest}".removesuffix("."): each for rest, each in inner.items()}
    return flat
