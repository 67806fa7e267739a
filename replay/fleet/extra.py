"""The extra that the fleet's commands need: is it there?"""

import importlib.util

from muster.replay.commands.opening import CANNOT_READ, fail


def check_needs(*names: str) -> None:
    """End the command unless these packages of the extra are there; without names all that a build needs."""
    missing = [name for name in names or ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout", CANNOT_READ)
