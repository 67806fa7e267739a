"""Finds out where a setting came from: the name of its flag, variable or key in the file, for error messages.

pydantic-settings does not record which source has won, so the sources are searched again, in the same order.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.coordinator.settings.kafka_settings import KafkaSettings

PROPERTY_FIELDS: Final = frozenset({"upstream_config", "kafka_config"})
"""The fields that are tables of Kafka's client properties."""


def flag(field: str) -> str:
    """Return the flag of a field, such as `--broker-base-port`; for a setting of Kafka's, its name for `--config`."""
    if field in KafkaSettings.model_fields:
        return field.replace("_", ".")
    return "--" + field.replace("_", "-")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources' contents. `flags` and `table` (of the file) by field; flags for properties are `KEY=VALUE`."""

    flags: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    table: Mapping[str, Any] = {}
    file: Path | None = None

    def name_of(self, field: str, prop: str = "") -> str:
        """Return the name of the flag, variable or key in the file that set a field; the flag's name if nothing did.

        `prop`: a property, if the field is a table; without it, any property that was given.
        """
        return self._name_of(field, prop, or_flag=True) or ""

    def given_by(self, field: str, prop: str = "") -> str | None:
        """Return the same name; None if no source has set the field."""
        return self._name_of(field, prop, or_flag=False)

    def _name_of(self, field: str, prop: str, *, or_flag: bool) -> str | None:
        option = f"{flag(field)} {prop}".rstrip()
        variable = f"MUSTER_{field.upper()}"
        if field not in PROPERTY_FIELDS:
            of_flags, of_file = field in self.flags, field in self.table
            of_environment = self._variable(lambda name: name == variable)
        else:
            given = [text.partition("=")[0].strip() for text in self.flags.get(field, ())]
            of_flags, of_file = _has(given, prop), _has(self.table.get(field, {}), prop)
            variable += "_" + prop.replace(".", "_").upper()
            of_environment = self._variable(lambda name: name == variable if prop else name.startswith(variable))
        if of_flags:
            return option
        if of_environment is not None:
            return of_environment
        if of_file:
            return f"{self.file}: {option.removeprefix('--')}"
        return option if or_flag else None

    def _variable(self, is_meant: Callable[[str], bool]) -> str | None:
        return next((name for name in self.environment if is_meant(name.upper())), None)


def _has(properties: Mapping[str, Any] | list[str], prop: str) -> bool:
    return prop in properties if prop else bool(properties)
