"""Where a setting came from: the name by which whoever gave it can find it.

What belongs here: what an error has to name. What it must not know: what is wrong with the setting.

pydantic-settings keeps no record of which source has won. So errors are written with the names of options, and here
each is replaced by the variable, or the file's key, unless it was given on the command line.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.events.log.kafka.client.security import PROPERTIES

PROPERTY_FIELDS: Final = frozenset({"upstream_config", "kafka_config"})
"""The fields that are tables of Kafka's client properties."""

_PROPERTY: Final = "|".join(re.escape(name) for name in sorted(PROPERTIES, key=len, reverse=True))
_NAMES: Final = re.compile(
    rf"(?<![\w/.-])--(?P<option>[a-z][a-z-]*)(?: (?P<property>{_PROPERTY}))?"
    r"|(?<![\w/.-])(?P<kafkas>(?:group|offsets?)(?:\.[a-z]+)+)"
)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` and `table` (of the file) by field; of properties the flags are texts, `NAME=VALUE`."""

    flags: Mapping[str, Any]
    environment: Mapping[str, str]
    table: Mapping[str, Any] = {}
    file: Path | None = None

    def named(self, message: str) -> str:
        """The message, with what was really given in place of options that were not."""
        return _NAMES.sub(self._name, message)

    def _name(self, found: re.Match[str]) -> str:
        field = re.sub("[-.]", "_", found["option"] or found["kafkas"])
        if field in PROPERTY_FIELDS:
            return self._name_of_property(found, field, found["property"] or "")
        rest = f" {found['property']}" if found["property"] else ""
        if field in self.flags:
            return found[0]
        if (variable := self._variable(f"MUSTER_{field.upper()}")) is not None:
            return variable + rest
        return self._in_file(found) if field in self.table else found[0]

    def _name_of_property(self, found: re.Match[str], field: str, name: str) -> str:
        of_flags = [text.partition("=")[0].strip() for text in self.flags.get(field, ())]
        if name in of_flags or (of_flags and not name):
            return found[0]
        prefix = f"MUSTER_{field.upper()}_"
        if (variable := self._variable(prefix + name.replace(".", "_").upper(), is_prefix=not name)) is not None:
            return variable
        of_file = self.table.get(field, {})
        return self._in_file(found) if name in of_file or (of_file and not name) else found[0]

    def _variable(self, name: str, *, is_prefix: bool = False) -> str | None:
        variables = (each for each in self.environment if each.upper().startswith(name))
        return next((each for each in variables if is_prefix or each.upper() == name), None)

    def _in_file(self, found: re.Match[str]) -> str:
        return f"{self.file}: {found[0].removeprefix('--')}"
