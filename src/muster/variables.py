"""The `MUSTER_*` variables of the environment: which of them are probably typos.

What belongs here: what the commands share. What it must not know: what a variable is for.
"""

import difflib
from collections.abc import Iterable
from typing import Final

OF_COMMANDS: Final = ("AUDIT_WINDOW_MS", "BOOTSTRAP", "CONFIG_FILE", "LOG", "TABLES", "TZ")
"""The variables that commands other than `serve` read, without the prefix, and serve's file."""
_PREFIX: Final = "MUSTER_"
_NEAR: Final = 0.85
"""The likeness of a typo, 1 at most, as difflib counts: one letter added, missing or changed, even in short names."""


def mistyped(environment: Iterable[str], names: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return the variables that are probably typos, each with the variable that was meant.

    `names`: those that are known beside OF_COMMANDS. Other unknown variables are fine: Kubernetes sets MUSTER_PORT and
    MUSTER_SERVICE_HOST for a service of that name.
    """
    known = [*(name.upper() for name in names), *OF_COMMANDS]
    found = []
    for variable in environment:
        name = variable.upper().removeprefix(_PREFIX)
        if name in known or not variable.upper().startswith(_PREFIX):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        found += [(variable, _PREFIX + meant) for meant in near]
    return found
