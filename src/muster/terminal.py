"""The console that commands print their tables on."""

from typing import Final

from rich.console import Console

UNWRAPPED: Final = 10_000
"""Columns of what is no terminal: a line stays a line, for grep, less and cut."""


def stdout() -> Console:
    """Return a console that knows whether there is a terminal, how wide it is, and NO_COLOR.

    COLUMNS is how wide a terminal is. Shells export it to whatever they start, so it says nothing of a pipe.
    """
    console = _Console(highlight=False)
    return console if console.is_terminal else _Console(highlight=False, width=UNWRAPPED)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, as of any other output; rich's own ends the process with exit code 1."""
        raise  # noqa: PLE0704 -- called while it is handled
