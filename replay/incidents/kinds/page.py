"""The tables of docs/incidents.md, made from the kinds and the windows (`python -m` this module prints them)."""

from muster.replay.incidents import windows
from muster.replay.incidents.kinds import KINDS


def kinds_table() -> str:
    """A row for each kind, in order of precedence."""
    rows = [f"| `{kind.name}` | {kind.about} | {kind.culprits} |" for kind in KINDS]
    return "\n".join(["| kind | what happened | culprits |", "|---|---|---|", *rows])


def windows_table() -> str:
    """A row for each window and threshold."""
    rows = []
    for name, value in vars(windows).items():
        if name.isupper():
            shown = f"{value / 1_000:g} s" if name.endswith("_MS") else f"{value:.3g}"
            rows.append(f"| `{name}` | {shown} |")
    return "\n".join(["| window | value |", "|---|---|", *rows])


if __name__ == "__main__":
    print(f"{kinds_table()}\n\n{windows_table()}")
