"""The tables of docs/incidents.md, made from the kinds and the windows.

`python -m tests.replay.incidents.docs_tables` prints them.
"""

import ast
import inspect
from collections.abc import Iterator

from muster.replay.incidents import windows
from muster.replay.incidents.kinds import KINDS


def kinds_table() -> str:
    """Return a table with a row for each kind, in order of precedence."""
    rows = [f"| `{kind.name}` | {kind.about} | {kind.culprits} |" for kind in KINDS]
    return "\n".join(["| kind | what happened | culprits |", "|---|---|---|", *rows])


def windows_table() -> str:
    """Return a table with a row for each window and threshold, and the sentence from the module."""
    return "\n".join(
        ["| window | value | meaning |", "|---|---|---|", *_rows(ast.parse(inspect.getsource(windows)).body)]
    )


def _rows(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the rows; several values may share a sentence, which follows the last of them."""
    names: list[str] = []
    for each in statements:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            names.append(each.target.id)
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and names:
            yield from (f"| `{name}` | {_shown(name)} | {each.value.value!s} |" for name in names)
            names = []
    yield from (f"| `{name}` | {_shown(name)} | |" for name in names)


def _shown(name: str) -> str:
    value: float = getattr(windows, name)
    return f"{value / 1_000:g} s" if name.endswith("_MS") else f"{value:,}" if value >= 1 else f"{value:.3g}"


if __name__ == "__main__":
    print(f"{kinds_table()}\n\n{windows_table()}")
