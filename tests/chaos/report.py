"""Prints what a run has shown, as a table: by kind of fault, how often, and what clients noticed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from tests.chaos.run import Outcome


def print_report(outcomes: Sequence[Outcome], *, seed: int, mode: str) -> None:
    """Print the table, and each violation with the seed and the number of its fault."""
    console = Console(width=150)
    table = Table("Fault", "times", "longest wait", "whole after, at most", "rebalances", "noticed", box=None)
    of_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        of_kind[_without_length(outcome.fault)].append(outcome)
    for fault, its in sorted(of_kind.items()):
        whole = [each.whole_ms for each in its if each.whole_ms is not None]
        table.add_row(
            fault,
            str(len(its)),
            _seconds(max(each.longest_wait_ms for each in its)),
            _seconds(max(whole)) if len(whole) == len(its) else "never",
            str(sum(each.generations for each in its)),
            _counted(each.noticed for each in its),
        )
    console.print(table)
    bad = [(outcome, text) for outcome in outcomes for text in outcome.violations]
    console.print(f"{len(outcomes)} faults ({mode}, seed {seed}), {len(bad)} violations")
    for outcome, text in bad:
        console.print(f"  seed {seed}, fault {outcome.number} ({outcome.fault}): {text}", markup=False)


def _without_length(fault: str) -> str:
    return fault.rpartition(", ")[0].partition(" by ")[0]


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def _counted(noticed: Iterable[dict[str, int]]) -> str:
    total: Counter[str] = Counter()
    for each in noticed:
        total.update(each)
    return ", ".join(f"{count} x {error}" for error, count in total.most_common()) or "nothing"
