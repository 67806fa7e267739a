"""The `MUSTER_*` environment variables: finds those that no command reads and probable typos; and errors of values.

Shared by the commands; knows nothing of what a variable is for.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

OF_COMMANDS: Final = ("AUDIT_WINDOW_MS", "BOOTSTRAP", "CONFIG_FILE", "LOG", "TABLES", "TZ")
"""The variables that commands other than `serve` read, without the prefix, and serve's file."""
OF_DEPLOYMENTS: Final = ("BASE_IMAGE", "GRAFANA_IMAGE", "IMAGE", "KAFKA_IMAGE", "PROMETHEUS_IMAGE")
"""The variables of compose.yaml, without the prefix."""
_ELSEWHERE: Final = ("UPSTREAM_CONFIG", "KAFKA_CONFIG", "TEST_")
_OF_SERVICES: Final = re.compile(
    r"MUSTER(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?|(?P<address>PORT))"
)
_PREFIX: Final = "MUSTER_"
_NEAR: Final = 0.85
"""The likeness of a typo, 1 at most, as difflib counts: one letter added, missing or changed, even in short names."""


def sets_nothing(environment: Mapping[str, str], names: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the variables that no command reads, each with the one that was probably meant.

    `names`: the settings, without the prefix. Left out are client properties, which are checked where they are read,
    the tests' own variables, and those that Kubernetes sets for services called muster or muster-...
    """
    known = [*(name.upper() for name in names), *OF_COMMANDS, *OF_DEPLOYMENTS]
    found: list[tuple[str, str | None]] = []
    for variable, value in environment.items():
        name = variable.upper().removeprefix(_PREFIX)
        if name in known or not variable.upper().startswith(_PREFIX) or name.startswith(_ELSEWHERE):
            continue
        if not _is_kubernetes(variable.upper(), value):
            near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
            found.append((variable, _PREFIX + near[0] if near else None))
    return found


def without_prefix(message: str) -> str:
    """Return pydantic's message about the value of an option or a setting without the prefix that explains nothing."""
    return message.removeprefix("Value error, ").removeprefix("Input ")


def _is_kubernetes(variable: str, value: str) -> bool:
    """Return whether Kubernetes or Docker's links set it; `MUSTER_PORT` is theirs only if its value is a URL."""
    form = _OF_SERVICES.fullmatch(variable)
    return form is not None and (form["address"] is None or "://" in value)


def mistyped(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables that are probably typos of a variable that a command other than `serve` reads, each with
    that one.
    """
    return [(variable, meant) for variable, meant in sets_nothing(environment, ()) if meant is not None]
