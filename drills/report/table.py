"""The values of a report as tables: first the verdict, then the measurements that it is based on."""

import statistics
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from muster.drills.measuring.answers import Noticed, Waits
from muster.drills.measuring.takeovers import Takeover
from muster.drills.names import member_name, short
from muster.drills.report.making import PHASES, times
from muster.drills.report.result import GoalMet, Result
from muster.replay.render.tables import table
from muster.replay.text.grammar import plural
from muster.replay.text.printable import text
from muster.replay.text.times import clock_of, duration

ROWS_MAX = 12


def print_result(result: Result, console: Console) -> None:
    """Print the report."""
    console.print(text(headline(result), f"bold {'green' if result.is_met else 'red'}"))
    console.print(text(f"{load_text(result)}, on {result.service}", "dim"))
    for each in result.done:
        console.print(text(f"  {clock_of(each.at)} UTC  {each.text}"))
    console.print()
    _print_goals(result.goals, console)
    _print_waits(result, console)
    _print_takeovers(result.takeovers, console)
    _print_noticed("Errors that members saw", result.noticed, console)
    _print_noticed("Errors that clients handled themselves", result.hidden, console)
    _print_rebalances(result, console)
    console.print(text("Compared", "bold"))
    for line in compared_lines(result):
        console.print(text(f"  {line}"))
    for line in result.left:
        console.print(text(f"Not cleaned up: {line}", "red"))


def headline(result: Result) -> str:
    """Return the verdict as a sentence."""
    if result.is_met:
        return f"{result.drill}: all goals are met, and no member noticed"
    missed = [each.name for each in result.goals if not each.is_met]
    return f"{result.drill}: {plural(len(missed), 'goal')} not met: {', '.join(missed)}"


def load_text(result: Result) -> str:
    """Describe the load."""
    groups = f"{plural(result.groups, 'group')} ({result.static_groups} static)"
    return f"{groups} with {plural(result.members, 'member')}"


def measured_text(goal: GoalMet) -> str:
    """Format the measured figure, with its unit."""
    if goal.measured is None:
        return "nothing"
    return duration(goal.measured) if goal.is_time else f"{goal.measured:,}"


def at_most_text(goal: GoalMet) -> str:
    """Format the goal's limit, with its unit."""
    if goal.is_time:
        return f"at most {duration(goal.at_most)}"
    return "none" if goal.at_most == 0 else f"at most {goal.at_most:,}"


def compared_lines(result: Result) -> Iterator[str]:
    """Yield sentences about what was acknowledged, and which of it is missing."""
    compared = result.compared
    lacks = [*compared.places_missing, *compared.history_missing]
    said = f"{compared.joins:,} joins were acknowledged, with {compared.places:,} different places and assignments"
    yield f"{said}: {_missing(lacks, 'all of them are in the log')}"
    said = f"{compared.commits:,} commits were acknowledged, of {plural(compared.committed_partitions, 'partition')}"
    lost = [
        f"{each.group_id}, partition {each.partition}: {each.acknowledged} was acknowledged, "
        f"{'nothing' if each.found is None else each.found} is there"
        for each in compared.commits_missing
    ]
    yield f"{said}: {_missing(lost, 'the last of each is there')}"


def longest_text(waits: Waits, run: str) -> str:
    """Name the member whose request waited longest."""
    if waits.longest_group is None or waits.longest_member is None:
        return "-"
    return member_name(waits.longest_group, waits.longest_member, run)


def slowest(takeovers: Iterable[Takeover]) -> Takeover | None:
    """Return the takeover that took longest."""
    return max(takeovers, key=lambda each: each.total_ms, default=None)


def _missing(lacks: Sequence[str], none: str) -> str:
    if not lacks:
        return none
    more = f" and {len(lacks) - ROWS_MAX} more" if len(lacks) > ROWS_MAX else ""
    return f"{len(lacks)} missing: {'; '.join(lacks[:ROWS_MAX])}{more}"


def _print_goals(goals: Iterable[GoalMet], console: Console) -> None:
    made = table("Goal", "Measured", "Wanted", "", right=("Measured",))
    for each in goals:
        verdict = Text("met", "green") if each.is_met else Text("not met", "red")
        made.add_row(text(each.name), text(measured_text(each)), text(at_most_text(each)), verdict)
    console.print(made)
    console.print()


def _print_waits(result: Result, console: Console) -> None:
    columns = ("Time without an answer", "before: p50", "longest", "since the fault: p50", "p99", "the longest", "of")
    made = table(*columns, right=columns[1:-1])
    for each in result.waits:
        cells = (each.before_p50_ms, each.before_longest_ms, each.p50_ms, each.p99_ms, each.longest_ms)
        never = f" ({each.unanswered} never)" if each.unanswered else ""
        made.add_row(
            text(f"{each.kind} ({each.before + each.asked:,})"),
            *(text("-" if ms is None else duration(ms)) for ms in cells),
            text(f"{longest_text(each, result.run)}{never}"),
        )
    console.print(made)
    console.print()


def _print_takeovers(takeovers: Sequence[Takeover], console: Console) -> None:
    if not takeovers:
        console.print(text("No partition was taken over."))
        console.print()
        return
    named = f"Takeovers ({plural(len(takeovers), 'partition')})"
    made = table(named, "median", "longest", right=("median", "longest"))
    for phase in PHASES:
        if took := times(takeovers, phase):
            made.add_row(text(phase.name), text(duration(round(statistics.median(took)))), text(duration(max(took))))
    totals = [each.total_ms for each in takeovers]
    made.add_row(text("all phases"), text(duration(round(statistics.median(totals)))), text(duration(max(totals))))
    console.print(made)
    console.print()


def _print_noticed(title: str, errors: Sequence[Noticed], console: Console) -> None:
    if not errors:
        console.print(text(f"{title}: nothing."))
        console.print()
        return
    made = table(title, "error", "times", "members", "groups", right=("times", "members", "groups"))
    for each in errors:
        made.add_row(*(text(cell) for cell in (each.kind, each.error, each.times, each.members, each.groups)))
    console.print(made)
    console.print()


def _print_rebalances(result: Result, console: Console) -> None:
    if not result.rebalances:
        return
    made = table("Rebalance of", "at (UTC)", "generation", "took", "why", right=("took",))
    for each in result.rebalances[:ROWS_MAX]:
        took = "-" if each.took_ms is None else duration(each.took_ms)
        cells = (
            short(each.group_id, result.run),
            clock_of(each.at),
            each.generations,
            took,
            f"{each.incident}: {each.why}",
        )
        made.add_row(*map(text, cells))
    console.print(made)
    if len(result.rebalances) > ROWS_MAX:
        console.print(text(f"and {len(result.rebalances) - ROWS_MAX} more; --format json has all", "dim"))
    console.print()
