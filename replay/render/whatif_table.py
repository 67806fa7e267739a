"""The result of `whatif`: how many rebalances there would have been, then each of them with the reason."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.wording import plural
from muster.replay.render.printable import text
from muster.replay.render.tables import grid, table
from muster.replay.times import clock_of, day_of, duration
from muster.replay.whatif.verdict import Additional, Replayed, Verdict, WhatIf

_STYLES = {Verdict.WOULD_NOT: "green", Verdict.WOULD: "", Verdict.CANNOT_TELL: "yellow"}
_WORDS = {Verdict.WOULD_NOT: "would not", Verdict.WOULD: "would", Verdict.CANNOT_TELL: "cannot tell"}


def print_whatif(result: WhatIf, console: Console) -> None:
    """The answer first."""
    recorded = len(result.rebalances)
    if not recorded:
        console.print(text(f"The log tells of no rebalance of {result.group_id}.", "bold"))
    else:
        avoided = f", {duration(result.avoided_ms)} less" if result.avoided_ms else ""
        told = f"{result.would_not} of {plural(recorded, 'rebalance')} would not have happened{avoided}"
        console.print(text(told, "bold green" if result.would_not else "bold"))
    console.print(grid(_rows(result)))
    if not (result.rebalances or result.additional):
        return
    console.print()
    made = table("UTC", "Seq", "Rebalance", right=("Seq",))
    for each in result.rebalances:
        made.add_row(_when(each), text(each.seq), _replayed(each))
    for additional in result.additional:
        made.add_row(text(clock_of(additional.until), "dim"), text(additional.seq), _additional(additional))
    console.print(made)


def _rows(result: WhatIf) -> Iterator[tuple[str, RenderableType]]:
    yield "With", Text("\n").join(text(f"{name}={value}") for name, value in result.settings.items())
    if result.would:
        yield "Would have", text(f"{plural(result.would, 'rebalance')}")
    if result.cannot_tell:
        yield "Cannot tell", text(f"{plural(result.cannot_tell, 'rebalance')}", "yellow")
    if result.additional:
        yield "Besides", text(f"{plural(len(result.additional), 'rebalance')} that the log does not have", "red")
    for note in result.notes:
        yield "Not known", text(note, "yellow")


def _when(each: Replayed) -> Text:
    return text(f"{day_of(each.started_at)} {clock_of(each.started_at)}", "dim")


def _replayed(each: Replayed) -> Text:
    line = text(each.headline).append("\n")
    return line.append(text(_WORDS[each.verdict], f"bold {_STYLES[each.verdict]}")).append(_reason(each))


def _additional(each: Additional) -> Text:
    since = text(f"not in the log; between {clock_of(each.since)} and {clock_of(each.until)}").append("\n")
    return since.append(text(_WORDS[each.verdict], "bold red")).append(_reason(each))


def _reason(each: Replayed | Additional) -> Text:
    grade = "" if each.grade is Grade.UNKNOWN else f" ({each.grade})"
    return text(f"{grade}: {each.reason}", "dim")
