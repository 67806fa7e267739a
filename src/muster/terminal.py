"""The console that commands print their tables on."""

import os
from typing import Final

from rich.console import Console

UNWRAPPED: Final = 10_000
"""Columns of what is no terminal: a line stays a line, for grep, less and cut."""


def stdout() -> Console:
    """It knows whether there is a terminal, how wide it is, and NO_COLOR."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=UNWRAPPED)
    return console
