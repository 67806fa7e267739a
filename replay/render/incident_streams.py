"""The incidents of `why`, printed as they arrive."""

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from muster.events.ids import GroupId
from muster.replay.form import Format, View
from muster.replay.history.window import Bounds
from muster.replay.incidents.incident import Incident
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.wording import headline
from muster.replay.render.as_json import JsonDocument, JsonLines
from muster.replay.render.incident_table import Detail, print_incident, rows_of, title_of
from muster.replay.render.markdown import escaped, facts
from muster.replay.render.why_table import print_rebalance, rows_of_rebalance
from muster.replay.text.printable import text
from muster.replay.text.zones import told_in


class IncidentStream(Protocol):
    """Takes the incidents of `why`, in the order to show them."""

    def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
        """Show the next incident, with the given rebalances in full. JSON always has all rebalances in full."""

    def note(self, sentence: str) -> None:
        """Show a sentence between incidents; JSON leaves it out."""

    def end(self) -> None: ...


def incident_stream(group_id: GroupId, log: str, window: Bounds | None, view: View, console: Console) -> IncidentStream:
    """Return the stream for a format."""
    match view.form:
        case Format.JSON:
            head = {"group_id": group_id, "log": log, "window": window}
            return _JsonStream(JsonDocument(head, "incidents", console.file))
        case Format.JSONL:
            return _JsonStream(JsonLines(console.file))
        case Format.MD:
            return _MarkdownStream(view, console)
        case Format.TABLE:
            return _TableStream(view, console)


class _JsonStream:
    def __init__(self, out: JsonDocument | JsonLines) -> None:
        self._out = out

    def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
        del detail, rebalances
        self._out.feed(incident)

    def note(self, sentence: str) -> None:
        del sentence

    def end(self) -> None:
        self._out.end()


class _TableStream:
    def __init__(self, view: View, console: Console) -> None:
        self._zone = view.zone
        self._console = console
        self._is_first = True

    def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
        self._space()
        shown = detail if self._console.is_terminal else Detail.ALL
        print_incident(told_in(incident, self._zone), self._console, shown)
        for rebalance in rebalances:
            self._space()
            print_rebalance(told_in(rebalance, self._zone), self._console)

    def note(self, sentence: str) -> None:
        self._space()
        self._console.print(text(sentence, "bold"))

    def end(self) -> None:
        """Do nothing: nothing follows the last incident."""

    def _space(self) -> None:
        if not self._is_first:
            self._console.print()
        self._is_first = False


class _MarkdownStream:
    def __init__(self, view: View, console: Console) -> None:
        self._zone = view.zone
        self._out = console.file
        self._is_first = True

    def feed(self, incident: Incident, detail: Detail, rebalances: Sequence[Rebalance] = ()) -> None:
        told = told_in(incident, self._zone)
        self._write(f"## {escaped(told.headline)}\n\n{escaped(title_of(told))}\n\n{facts(rows_of(told, detail))}")
        for rebalance in rebalances:
            rows = facts(rows_of_rebalance(told_in(rebalance, self._zone)))
            self._write(f"### {escaped(headline(rebalance))}\n\n{rows}")

    def note(self, sentence: str) -> None:
        self._write(f"{escaped(sentence)}\n")

    def end(self) -> None:
        """Do nothing: nothing follows the last incident."""

    def _write(self, content: str) -> None:
        self._out.write(content if self._is_first else f"\n{content}")
        self._is_first = False
