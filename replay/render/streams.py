"""The lines of `history`, and the groups of `state`, printed as they arrive: at most a page of a table is buffered."""

from typing import Protocol

import msgspec
from rich.console import Console

from muster.events.ids import GroupId
from muster.replay.form import Format, View
from muster.replay.history.window import Bounds
from muster.replay.render.as_json import JsonDocument, JsonLines
from muster.replay.render.markdown import escaped, moment, state_in_markdown
from muster.replay.render.tables import StoryTable, print_state
from muster.replay.results.state import StateAt
from muster.replay.results.story import Line
from muster.replay.text.printable import printable
from muster.replay.text.times import Instant, in_zone
from muster.replay.text.zones import told_in


class StoryStream(Protocol):
    """Prints the lines of a history as it gets them."""

    def feed(self, line: Line) -> None: ...

    def end(self) -> None: ...


def story_stream(
    group_id: GroupId, log: str, window: Bounds | None, view: View, console: Console, *, goes_on: bool = False
) -> StoryStream:
    """Return the stream for a format. A piped or followed table has one line per event, with date and zone."""
    match view.form:
        case Format.JSON:
            return JsonDocument({"group_id": group_id, "log": log, "window": window}, "lines", console.file)
        case Format.JSONL:
            return JsonLines(console.file)
        case Format.MD:
            return _MarkdownStory(group_id, view, console)
        case Format.TABLE if goes_on or not console.is_terminal:
            return _PlainStory(group_id, view, console)
        case Format.TABLE:
            return StoryTable(group_id, view.zone, console)


class _PlainStory:
    """Writes one unwrapped line for each event, for grep and cut."""

    def __init__(self, group_id: GroupId, view: View, console: Console) -> None:
        self._out = console.file
        self._zone = view.zone
        self._head: str | None = f"What happened to {printable(group_id)}"

    def feed(self, line: Line) -> None:
        at = in_zone(line.at, self._zone)
        if self._head is not None:
            self._out.write(f"{'Time':{len(at)}}  {'Seq':>8}  {'Gen':>6}  {self._head}\n")
            self._head = None
        seq, generation = ("" if each is None else each for each in (line.seq, line.generation))
        self._out.write(f"{at}  {seq:>8}  {generation:>6}  {printable(line.text)}\n")

    def end(self) -> None:
        """Do nothing: nothing follows the last line."""


class _MarkdownStory:
    def __init__(self, group_id: GroupId, view: View, console: Console) -> None:
        self._out = console.file
        self._zone = view.zone
        self._head: str | None = f"| Time | Seq | Generation | What happened to {escaped(group_id)} |\n"

    def feed(self, line: Line) -> None:
        if self._head is not None:
            self._out.write(f"{self._head}| --- | ---: | ---: | --- |\n")
            self._head = None
        cells = (moment(in_zone(line.at, self._zone)), *map(escaped, (line.seq, line.generation, line.text)))
        self._out.write(f"| {' | '.join(cells)} |\n")

    def end(self) -> None:
        """Do nothing: nothing follows the last line."""


# ---- all groups at a given time -----------------------------------------------------------------


class StateStream(Protocol):
    """Takes the states of groups."""

    def feed(self, state: StateAt) -> None: ...

    def end(self) -> None: ...


def state_stream(log: str, at: Instant, view: View, console: Console) -> StateStream:
    """Return the stream for a format."""
    match view.form:
        case Format.JSON:
            return JsonDocument({"log": log, "at": at}, "groups", console.file)
        case Format.JSONL:
            return JsonLines(console.file)
        case Format.MD | Format.TABLE:
            return _StatePages(view, console)


class _StatePages:
    """Writes one page for each group, one below the other."""

    def __init__(self, view: View, console: Console) -> None:
        self._view = view
        self._console = console
        self._is_first = True

    def feed(self, state: StateAt) -> None:
        told, console = told_in(state, self._view.zone), self._console
        if not self._is_first:
            console.file.write("\n")
        self._is_first = False
        if self._view.form is Format.MD:
            console.file.write(state_in_markdown(told))
        else:
            print_state(msgspec.structs.replace(told, asked_for=None), console)

    def end(self) -> None:
        """Do nothing: nothing follows the last group."""
