"""The extra that `muster fleet build` and the questions need, and how they end without it: one line, exit code 2."""

import importlib.util
from typing import Final, NoReturn

import typer

CANNOT: Final = 2


def fail(message: str) -> NoReturn:
    """End the command with one line."""
    typer.echo(f"muster fleet: {message}", err=True)
    raise typer.Exit(CANNOT)


def check_needs() -> None:
    """End the command unless the extra is there."""
    missing = [name for name in ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")
