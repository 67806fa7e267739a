"""The result of `whatif`: how many rebalances there would have been, then each of them with the reason."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.incidents.grade import Grade
from muster.replay.render import markdown
from muster.replay.render.tables import grid, table
from muster.replay.text.grammar import plural
from muster.replay.text.printable import printable, text
from muster.replay.text.times import Instant, clock_of, day_of, moment_of, zone_of, zone_of_all
from muster.replay.whatif.verdict import Additional, Line, Replayed, Verdict, WhatIf

_STYLES = {Verdict.WOULD_NOT: "green", Verdict.WOULD: "", Verdict.CANNOT_TELL: "yellow"}
_WORDS = {Verdict.WOULD_NOT: "would not", Verdict.WOULD: "would", Verdict.CANNOT_TELL: "cannot tell"}
_HEAD = ("Seq", "Rebalance, and whether it would have happened")


def print_whatif(result: WhatIf, console: Console) -> None:
    """Print the answer, then the details."""
    played_ms, recorded_ms = result.played.partition_ms or 0, result.recorded.partition_ms or 0
    is_dearer = played_ms > recorded_ms and bool(result.advice)
    console.print(text(_answer(result), "bold red" if is_dearer else "bold green" if result.would_not else "bold"))
    console.print(grid(_rows(result)))
    if not (result.rebalances or result.additional):
        return
    console.print()
    zone = _zone(result)
    made = table(_began(zone), *_HEAD, right=("Seq",))
    for each in _lines(result):
        style = _STYLES[each.verdict] if isinstance(each, Replayed) else "red"
        told = text(_what(each)).append("\n").append(text(_WORDS[each.verdict], f"bold {style}"))
        when = text(_when(each, has_zone=zone is None), "dim")
        made.add_row(when, text(each.seq), told.append(text(_reason(each), "dim")))
    console.print(made)


def whatif_in_markdown(result: WhatIf) -> str:
    """Return a heading, the settings and the counts, and a row for each rebalance."""
    told = f"## {markdown.escaped(_answer(result))}\n\n{markdown.facts(_rows(result))}"
    if not (result.rebalances or result.additional):
        return told
    zone = _zone(result)
    rows = [
        (
            markdown.escaped(_when(each, has_zone=zone is None)),
            markdown.escaped(each.seq),
            f"{markdown.escaped(_what(each))}: **{_WORDS[each.verdict]}**{markdown.escaped(_reason(each))}",
        )
        for each in _lines(result)
    ]
    return f"{told}\n{markdown.table((_began(zone), *_HEAD), rows)}"


def _lines(result: WhatIf) -> Iterator[Line]:
    yield from result.rebalances
    yield from result.additional


def _answer(result: WhatIf) -> str:
    recorded = result.would_not + result.would + result.cannot_tell
    where = "The log" if result.window is None else "This part of the log"
    group = printable(result.group_id)
    if not recorded:
        return f"{where} has no rebalance of {group}."
    told = f"{result.would_not} of {plural(recorded, 'rebalance')} of {group} would not have happened"
    if result.would == recorded:
        told = f"No rebalance of {group} would have been avoided"
    return f"{told}; {result.advice}" if result.advice else told


def _rows(result: WhatIf) -> Iterator[tuple[str, RenderableType]]:
    yield "With", Text("\n").join(text(f"{name}={value}") for name, value in result.settings.items())
    is_partial = result.cannot_tell or result.not_over
    of_those = ", of the rebalances that can be decided; the others are in neither sum" if is_partial else ""
    yield "Cost", text(f"{result.recorded} (as recorded{of_those})")
    yield "Would cost", text(f"{'at least ' if is_partial or result.besides_unknown else ''}{result.played}")
    if result.would:
        yield "Would have", text(plural(result.would, "rebalance"))
    if is_partial:
        which = [plural(result.cannot_tell, "rebalance")] if result.cannot_tell else []
        if result.not_over:
            which.append(f"the cost of {plural(result.not_over, 'rebalance')} that the log ends before")
        cost = f"at least {result.undecided} as recorded"
        yield "Cannot tell", text(f"{', and '.join(which)}: {cost}", "yellow")
    if result.besides:
        yield "Besides", text(f"{plural(result.besides, 'rebalance')} that the log does not have", "red")
    if result.besides_unknown:
        yield (
            "Perhaps",
            text(f"{plural(result.besides_unknown, 'rebalance')} more that the log does not have", "yellow"),
        )
    if result.left_out:
        yield "Not listed", text(f"the {result.left_out} before these: see --since and --until, or --format jsonl")
    for note in result.notes:
        yield "Not known", text(note, "yellow")


def _zone(result: WhatIf) -> str | None:
    return zone_of_all(map(_at, _lines(result)))


def _began(zone: str | None) -> str:
    return "Began" if zone is None else f"Began ({zone})"


def _at(each: Line) -> Instant:
    return each.started_at if isinstance(each, Replayed) else each.until


def _when(each: Line, *, has_zone: bool) -> str:
    at = _at(each)
    return moment_of(at) if has_zone else f"{day_of(at)} {clock_of(at)}"


def _what(each: Line) -> str:
    if isinstance(each, Replayed):
        return each.headline
    day = "" if day_of(each.since) == day_of(each.until) else f"{day_of(each.since)} "
    return f"not in the log; between {day}{_moment(each.since)} and {_moment(each.until)}"


def _moment(at: Instant) -> str:
    return f"{clock_of(at)} {zone_of(at)}"


def _reason(each: Replayed | Additional) -> str:
    grade = "" if each.grade is Grade.UNKNOWN else f" ({each.grade})"
    return f"{grade}: {each.reason}{_cost(each)}"


def _cost(each: Line) -> str:
    """Return the cost if it is known and differs from the recorded one."""
    recorded = each.recorded if isinstance(each, Replayed) else None
    if each.played is None:
        at_least = "" if each.is_cost_final else "at least "
        return "" if recorded is None else f"; as recorded {at_least}{recorded}"
    if each.played == recorded:
        return ""
    return f"; {each.played}" if recorded is None else f"; {each.played}; as recorded {recorded}"
