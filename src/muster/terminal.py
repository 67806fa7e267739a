"""The console that commands print their tables on."""

import os
import sys
from typing import Any, Final

from rich.console import Console

PIPED_COLUMNS: Final = 120
"""The width of what nobody reads on a terminal, as in a cron job or a container: sentences have room."""


def stdout() -> Console:
    """Return a console that knows whether there is a terminal, how wide it is, and NO_COLOR.

    COLUMNS says how wide it is. Without it a pipe is as wide as the terminal that the command was started on, on which
    `less` shows it. JSON and Markdown are not wrapped: they are not printed on the console.
    """
    return _Console(highlight=False, width=None if _knows_its_width() else PIPED_COLUMNS)


def _knows_its_width() -> bool:
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)  # one that was closed is None
    return "COLUMNS" in os.environ or any(each is not None and not each.closed and each.isatty() for each in streams)


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 -- what rich prints
        """Print; where there is no terminal, without the blanks that fill up the cells of a table."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))

    def on_broken_pipe(self) -> None:
        """Leave it to the command, as of any other output; rich's own ends the process with exit code 1."""
        raise  # noqa: PLE0704 -- called while it is handled
