"""The extra that the fleet's commands need, and how they all end that cannot go on: one line, exit code 2."""

import importlib.util
from typing import Final, NoReturn

import typer

CANNOT: Final = 2


def say(message: str) -> None:
    """Say something beside the answer."""
    typer.echo(f"muster fleet: {message}", err=True)


def fail(message: str, code: int = CANNOT) -> NoReturn:
    """End the command with one line."""
    say(message)
    raise typer.Exit(code)


def check_needs(*names: str) -> None:
    """End the command unless these packages of the extra are there; without names all that a build needs."""
    missing = [name for name in names or ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")
