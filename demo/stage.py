"""Prints the story: headings, sentences, the owners of partitions. Colours and a spinner only on a terminal.

Besides the screen there may be a tape, from which a picture of the demo is made for those who do not run it. The tape
is shorter: it has `why` for one rebalance where the screen has all.
"""

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH_MAX: Final = 100
INDENT: Final = 3
VERDICT_WIDTH: Final = 14
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
COLOURS: Final = ("cyan", "blue", "magenta", "green", "yellow")

PICTURE_THEME: Final = TerminalTheme(
    (16, 20, 30),
    (214, 220, 230),
    [
        (40, 46, 60),
        (255, 107, 107),
        (126, 211, 133),
        (245, 200, 95),
        (110, 160, 255),
        (208, 140, 255),
        (90, 210, 220),
        (214, 220, 230),
    ],
)


class Stage:
    """Where the story is printed. `record`: keep a tape too."""

    def __init__(self, *, record: bool = False) -> None:
        self._screen = Console(highlight=False)
        self._screen.width = min(self._screen.width, WIDTH_MAX) if self._screen.is_terminal else WIDTH_MAX
        self._tape: Console | None = None
        if record:
            self._tape = Console(
                record=True,
                width=WIDTH_MAX,
                file=io.StringIO(),
                force_terminal=True,
                color_system="truecolor",
                highlight=False,
            )
        self._colours: dict[str, str] = {}

    @property
    def width(self) -> int:
        """Columns."""
        return self._screen.width

    @property
    def records(self) -> bool:
        """True if a tape is kept."""
        return self._tape is not None

    def _print(self, shown: RenderableType = "") -> None:
        self._screen.print(shown)
        if self._tape is not None:
            self._tape.print(shown)

    def _print_typed(self, command: str) -> None:
        self._screen.print(_typed(command, self._screen.width))
        if self._tape is not None:
            self._tape.print(_typed(command, self._tape.width))

    def note(self, text: str) -> None:
        """Print something that is not part of the story."""
        self._print(Text(text, style="dim"))

    def title(self, text: str, command: str) -> None:
        """The first line, and the command that starts everything."""
        self._print(Text(text, style="bold"))
        self._print_typed(command)

    def step(self, number: int, heading: str, explanation: str) -> None:
        """A new step: the action."""
        self._print()
        self._print(Text.assemble((f"{number}  ", "bold cyan"), (heading, "bold"), f" {explanation}"))

    def rebalance(self, generation_id: int, shares: Mapping[str, Sequence[int]], moved: Mapping[str, set[int]]) -> None:
        """There was a rebalance, with this result; a member's new partitions are highlighted."""
        table = Table.grid(padding=(0, 4, 0, 0))
        table.add_column(width=VERDICT_WIDTH)
        names = (Text(name, style=self._colour(name)) for name in shares)
        table.add_row(Text("↻ rebalance", style="bold yellow"), *names)
        cells = (self._cell(name, shares[name], moved.get(name, set())) for name in shares)
        table.add_row(_generation(generation_id), *cells)
        self._print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def no_rebalance(self, generation_id: int, first: str, second: str) -> None:
        """There was none; two lines say what happened instead."""
        table = Table.grid(padding=(0, 4, 0, 0))
        table.add_column(width=VERDICT_WIDTH)
        table.add_row(Text("✓ no rebalance", style="bold green"), first)
        table.add_row(_generation(generation_id), second)
        self._print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def _colour(self, name: str) -> str:
        return self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])

    def _cell(self, name: str, partitions: Sequence[int], moved: set[int]) -> Text:
        styled = ((str(number), f"{self._colour(name)}{' bold' if number in moved else ''}") for number in partitions)
        return Text(" ").join(Text(number, style=style) for number, style in styled)

    def command(self, line: str, output: str, *, on_tape: tuple[str, str] | None = None) -> None:
        """A command and its output, in a terminal's colours; the tape may have another one."""
        self._show(self._screen, line, output)
        if self._tape is not None:
            self._show(self._tape, *(on_tape or (line, output)))

    @staticmethod
    def _show(console: Console, line: str, output: str) -> None:
        console.print()
        console.print(_typed(line, console.width))
        console.print(_trimmed(Text.from_ansi(output.rstrip())))

    def sum_up(self, first: str, second: str) -> None:
        """Print what the story has shown."""
        self._print()
        self._print(Text(first, style="bold"))
        self._print(Text(second))

    def go_on(self, how: str, *commands: str) -> None:
        """The last lines: what to do next."""
        self._print()
        self._print(Text(how))
        for command in commands:
            self._print_typed(command)

    def failure(self, text: str) -> None:
        """The last lines, if a claim did not hold."""
        Console(stderr=True).print(Text(f"\n{text}", style="bold red"), soft_wrap=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show what is awaited, on a terminal."""
        if not self._screen.is_terminal:
            yield
            return
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}"))
        with Progress(*columns, console=self._screen, transient=True) as progress:
            progress.add_task(what)
            yield

    def save_picture(self, path: Path, *, title: str) -> None:
        """Save the tape as SVG."""
        assert self._tape is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = self._tape.export_svg(title=title, theme=PICTURE_THEME)
        # Rich's fonts would be downloaded, which a picture in a README may not do.
        path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL), encoding="utf-8")


def _generation(generation_id: int) -> Text:
    return Text.assemble("  generation ", (str(generation_id), "bold"), style="dim")


def _typed(command: str, width: int) -> Text:
    """A command after its prompt; a long one is continued on the next line before an option, in shell syntax."""
    unbroken = re.sub(r"(--\S+) ", rf"\1{NO_BREAK}", command)
    lines = textwrap.wrap(unbroken, width - len("$  \\"), break_long_words=False, break_on_hyphens=False)
    return Text.assemble(("$ ", "dim"), (" \\\n    ".join(lines).replace(NO_BREAK, " "), "bold"))


def _trimmed(text: Text) -> Text:
    """Without the blanks that pad the lines of a table."""
    lines = text.split("\n")
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)
