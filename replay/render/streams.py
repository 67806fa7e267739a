"""The lines of `history` and the answers of `why`, printed as they come: what is kept is a page of a table at most.

JSON of answers alone is kept whole, since the number of rebalances stands before them.
"""

from typing import Final, Protocol

import msgspec
from rich.console import Console

from muster import terminal
from muster.events.ids import GroupId
from muster.replay.form import Format, View
from muster.replay.render.markdown import escaped, facts, moment
from muster.replay.render.printable import printable, text
from muster.replay.render.tables import StoryTable
from muster.replay.render.why_table import print_answer, rows_of
from muster.replay.story import Line
from muster.replay.times import in_zone
from muster.replay.why import Answer, Why
from muster.replay.window import Bounds
from muster.replay.zones import told_in

_INDENT: Final = "    "


class StoryStream(Protocol):
    """Takes the lines of a history."""

    def feed(self, line: Line) -> None: ...

    def end(self) -> None: ...


def story_stream(
    group_id: GroupId, log: str, window: Bounds | None, view: View, console: Console, *, goes_on: bool = False
) -> StoryStream:
    """The stream for a form; a table that is piped, or goes on, has a line for each event, with day and zone."""
    match view.form:
        case Format.JSON:
            return _JsonStory(group_id, log, window, console)
        case Format.JSONL:
            return _JsonLines(console)
        case Format.MD:
            return _MarkdownStory(group_id, view, console)
        case Format.TABLE if goes_on or console.width >= terminal.UNWRAPPED:
            return _PlainStory(group_id, view, console)
        case Format.TABLE:
            return StoryTable(group_id, view.zone, console)


class _JsonLines:
    def __init__(self, console: Console) -> None:
        self._out = console.file

    def feed(self, line: Line) -> None:
        self._out.write(msgspec.json.encode(line).decode() + "\n")

    def end(self) -> None:
        self._out.flush()


class _JsonStory:
    """One document, as `as_json.py` would write it."""

    def __init__(self, group_id: GroupId, log: str, window: Bounds | None, console: Console) -> None:
        self._out = console.file
        head = msgspec.json.encode({"group_id": group_id, "log": log, "window": window})
        self._head = msgspec.json.format(head, indent=2).decode().removesuffix("\n}")
        self._is_first = True

    def feed(self, line: Line) -> None:
        told = msgspec.json.format(msgspec.json.encode(line), indent=2).decode()
        self._out.write(f'{self._head},\n  "lines": [\n' if self._is_first else ",\n")
        self._is_first = False
        self._out.write(_INDENT + told.replace("\n", "\n" + _INDENT))

    def end(self) -> None:
        self._out.write(f'{self._head},\n  "lines": []\n}}\n' if self._is_first else "\n  ]\n}\n")


class _PlainStory:
    """A line for each event, whole, for grep and cut."""

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
        self._out.flush()


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
        self._out.flush()


class AnswerStream(Protocol):
    """Takes the answers of `why`, oldest first."""

    def feed(self, answer: Answer) -> None: ...

    def end(self) -> None: ...


def answer_stream(
    group_id: GroupId,
    log: str,
    window: Bounds | None,
    view: View,
    console: Console,
    *,
    rebalances: int | None = None,
) -> AnswerStream:
    """The stream for a form. `rebalances`: how many the log tells of, where that is not the number of answers."""
    match view.form:
        case Format.JSON:
            return _JsonAnswers(group_id, log, window, console, rebalances)
        case Format.JSONL:
            return _AnswerLines(console)
        case Format.MD:
            return _MarkdownAnswers(group_id, view, console)
        case Format.TABLE:
            return _AnswerTable(group_id, view, console)


class _JsonAnswers:
    def __init__(
        self, group_id: GroupId, log: str, window: Bounds | None, console: Console, rebalances: int | None
    ) -> None:
        self._rebalances = rebalances
        self._why = Why(group_id=group_id, log=log, rebalances=0, answers=(), window=window)
        self._answers: list[Answer] = []
        self._console = console

    def feed(self, answer: Answer) -> None:
        self._answers.append(answer)

    def end(self) -> None:
        counted = len(self._answers) if self._rebalances is None else self._rebalances
        why = msgspec.structs.replace(self._why, answers=tuple(self._answers), rebalances=counted)
        self._console.file.write(msgspec.json.format(msgspec.json.encode(why), indent=2).decode() + "\n")


class _AnswerLines:
    def __init__(self, console: Console) -> None:
        self._out = console.file

    def feed(self, answer: Answer) -> None:
        self._out.write(msgspec.json.encode(answer).decode() + "\n")

    def end(self) -> None:
        self._out.flush()


class _AnswerTable:
    def __init__(self, group_id: GroupId, view: View, console: Console) -> None:
        self._group_id = group_id
        self._zone = view.zone
        self._console = console
        self._is_first = True

    def feed(self, answer: Answer) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False
        print_answer(told_in(answer, self._zone), self._console)

    def end(self) -> None:
        if self._is_first:
            self._console.print(text(f"The log tells of no rebalance of {self._group_id}.", "bold"))


class _MarkdownAnswers:
    def __init__(self, group_id: GroupId, view: View, console: Console) -> None:
        self._group_id = group_id
        self._zone = view.zone
        self._out = console.file
        self._is_first = True

    def feed(self, answer: Answer) -> None:
        self._out.write(f"{'' if self._is_first else chr(10)}## {escaped(answer.headline)}\n\n")
        self._is_first = False
        self._out.write(facts(rows_of(told_in(answer, self._zone))))

    def end(self) -> None:
        if self._is_first:
            self._out.write(f"The log tells of no rebalance of {escaped(self._group_id)}.\n")
