"""The output of `muster config check`: each setting, its value, and its source; secrets are hidden."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from muster import terminal
from muster.coordinator.client.commands.view import print_json, printable
from muster.coordinator.settings.options import PANELS, shown_of
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS, flag
from muster.coordinator.settings.settings import Settings
from muster.events.kafka.security import is_secret
from muster.variables import sets_nothing

HIDDEN: Final = "(hidden)"
DEFAULT: Final = "default"


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in effect. `given_by`: the flag, the variable, the key in the file, or `default`."""

    name: str
    value: str
    given_by: str


def effective(settings: Settings) -> Iterator[Effective]:
    """Yield each setting, in the order of `muster serve --help`; client properties by name."""
    fields = sorted(Settings.model_fields.items(), key=lambda each: PANELS.index(shown_of(each[1]).panel))
    for field, _ in fields:
        name, value = flag(field).removeprefix("--"), getattr(settings, field)
        if field in PROPERTY_FIELDS:
            for prop, each in value.items():
                shown = HIDDEN if is_secret(prop) else str(each)
                given_by = settings.given_by(field, prop) or DEFAULT
                yield Effective(name=f"{name} {prop}", value=shown, given_by=given_by)
        else:
            yield Effective(name=name, value=_text(value), given_by=settings.given_by(field) or DEFAULT)


def _text(value: Any) -> str:  # noqa: ANN401 -- of any setting
    """Return the value in the form of the command line; empty for None."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(str, value))
        case Mapping():
            return ",".join(f"{key}={each}" for key, each in value.items())
    return str(value)


def show_settings(settings: Settings, *, as_json: bool) -> None:
    """Print all settings, and warn of environment variables that set nothing."""
    for variable, meant in sets_nothing(os.environ, Settings.model_fields.keys() - PROPERTY_FIELDS):
        hint = "" if meant is None else f": did you mean {meant}?"
        print(f"muster: {variable} sets nothing{hint}", file=sys.stderr)
    console, found = terminal.stdout(), [*effective(settings)]
    if as_json:
        print_json({"settings": msgspec.to_builtins(found)}, console)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 1, 0, 0))
    for column in ("Setting", "Value", "Given by"):
        table.add_column(column, overflow="fold")
    for each in found:
        style = "dim" if each.given_by == DEFAULT else "bold"
        table.add_row(*(Text(printable(text), style=style) for text in (each.name, each.value, each.given_by)))
    console.print(table)
