"""Where a setting came from: the name by which whoever gave it can find it.

What belongs here: what an error has to name. What it must not know: what is wrong with the setting.

pydantic-settings keeps no record of which source has won, so the sources are looked at again, in the same order.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

PROPERTY_FIELDS: Final = frozenset({"upstream_config", "kafka_config"})
"""The fields that are tables of Kafka's client properties."""


def flag(field: str) -> str:
    """`--broker-base-port`; for a setting of Kafka's its name there, which `--config` takes."""
    if field.startswith(("group_", "offset_", "offsets_")):
        return field.replace("_", ".")
    return "--" + field.replace("_", "-")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` and `table` (of the file) by field; of properties the flags are texts, `NAME=VALUE`."""

    flags: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    table: Mapping[str, Any] = {}
    file: Path | None = None

    def name_of(self, field: str, prop: str = "") -> str:
        """The option, the variable, or the file's key; the option too for what nobody gave.

        `prop`: of a table of properties, that one; without it whichever was given.
        """
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
        return f"{self.file}: {option.removeprefix('--')}" if of_file else option

    def _variable(self, is_meant: Callable[[str], bool]) -> str | None:
        return next((name for name in self.environment if is_meant(name.upper())), None)


def _has(properties: Mapping[str, Any] | list[str], prop: str) -> bool:
    return prop in properties if prop else bool(properties)
