"""The declaration of a setting: its type, default, limits and help, and how `--help` shows it.

    metrics: HostPort | None = option(None, "The address of /metrics.", metavar="HOST:PORT", panel=WATCHING)

Does not depend on typer.
"""

from typing import Annotated, Any, Final

import msgspec
from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from muster.durations import DURATION_OR_MS, BadDuration, read_duration_or_ms, written

# Headings of `muster serve --help`, in this order.
GENERAL: Final = "Options"
STANDALONE: Final = "Standalone"
SIDECAR: Final = "Sidecar"
TLS: Final = "TLS towards clients (sidecar)"
PEERS: Final = "Several sidecars"
EVENT_LOG: Final = "Event log"
WATCHING: Final = "Metrics and logs"
PANELS: Final = (GENERAL, STANDALONE, SIDECAR, TLS, PEERS, EVENT_LOG, WATCHING)


def _milliseconds(value: object) -> object:
    try:
        return read_duration_or_ms(value) if isinstance(value, str) else value
    except BadDuration as bad:
        raise ValueError(DURATION_OR_MS) from bad


_IN_MS: Final = BeforeValidator(_milliseconds)
Milliseconds = Annotated[int, _IN_MS]
"""The type of a setting whose name ends in `_ms`: given as a duration, such as 5m, or as a number of ms."""


class Shown(msgspec.Struct, frozen=True):
    """How `--help` shows an option. `metavar`: None shows the name of its type."""

    metavar: str | None
    panel: str


def option(
    default: Any,  # noqa: ANN401 -- of the field's type
    help_: str,
    *,
    metavar: str | None = None,
    panel: str = GENERAL,
    **others: Any,  # noqa: ANN401 -- pydantic's
) -> Any:  # noqa: ANN401 -- as pydantic's Field
    """Declare a setting's field. If the default is a function, it is called for the value. `others`: for `Field`."""
    given: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    shown: dict[str, Any] = {"metavar": metavar, "panel": panel}
    return Field(**given, description=help_, json_schema_extra=shown, **others)


def shown_of(field: FieldInfo) -> Shown:
    """Return how `--help` shows the field, as declared."""
    assert isinstance(field.json_schema_extra, dict)
    return msgspec.convert(field.json_schema_extra, Shown)


def default_of(field: FieldInfo) -> str:
    """Return the setting's default in the form of the command line; empty for None, "" and other empty values."""
    default = field.get_default(call_default_factory=True)
    if isinstance(default, list):
        default = ", ".join(default)
    elif _IN_MS in field.metadata:
        default = written(default)
    return "" if default in (None, "", {}, False) else f"{default}"


def help_of(field: FieldInfo) -> str:
    """Return the setting's help, with its default."""
    default = default_of(field)
    return f"{field.description}" + (default and f" [default: {default}]")
