"""The table of a count, and what it comes to."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from muster.replay.fleet.simulation.world.truth import Knowable
from tests.judge.count import Verdict

GOALS: Final = {Knowable.RECORDED: 1.0, Knowable.INFERRED: 0.95}
"""The share of right answers. And no false one."""

_COLUMNS: Final[tuple[tuple[str, Callable[[Verdict], bool]], ...]] = (
    ("right", lambda each: each.is_right),
    ("kind", lambda each: each.kind_is_right),
    ("culprits", lambda each: each.culprits_are_exact),
    ("span", lambda each: each.span_is_right),
    ("merged", lambda each: each.is_merged),
    ("split", lambda each: each.is_split),
    ("abstained", lambda each: each.has_abstained),
    ("missed", lambda each: each.is_missed),
    ("overclaimed", lambda each: each.is_overclaimed),
)


def table(verdicts: Sequence[Verdict]) -> str:
    """One line for each kind and how well it can be known, and the totals. False ones are counted of all tellings."""
    lines = [_line("kind", "known", "cases", *(name for name, _ in _COLUMNS), "false")]
    rows = sorted({(each.kind, each.knowable) for each in verdicts})
    for kind, knowable in rows:
        theirs = [each for each in verdicts if (each.kind, each.knowable) == (kind, knowable)]
        lines.append(_row(kind, knowable, theirs))
    for known in Knowable:
        lines += [_row("all", known, [each for each in verdicts if each.knowable is known])]
    return "\n".join(lines)


def _row(kind: str, knowable: Knowable, verdicts: Sequence[Verdict]) -> str:
    counted = [each for each in verdicts if each.counts]
    numbers = [sum(holds(each) for each in counted) for _, holds in _COLUMNS]
    return _line(kind, knowable.value, len(counted), *numbers, sum(each.is_false for each in verdicts))


def _line(kind: str, known: str, *cells: object) -> str:
    return f"{kind:<20} {known:<11}" + "".join(f"{cell!s:>12}" for cell in cells)


def markdown(verdicts: Sequence[Verdict]) -> str:
    """The count for readers: a row for each kind and how well it can be known."""
    lines = ["| kind | known | cases | right | missed | false |", "|---|---|---|---|---|---|"]
    for kind, knowable in sorted({(each.kind, each.knowable) for each in verdicts}):
        theirs = [each for each in verdicts if (each.kind, each.knowable) == (kind, knowable)]
        lines.append(_markdown_row(f"`{kind}`", knowable, theirs))
    lines += [_markdown_row("all", known, [each for each in verdicts if each.knowable is known]) for known in Knowable]
    return "\n".join(lines)


def _markdown_row(kind: str, knowable: Knowable, verdicts: Sequence[Verdict]) -> str:
    counted = [each for each in verdicts if each.counts]
    right, missed = sum(each.is_right for each in counted), sum(each.is_missed for each in counted)
    false = sum(each.is_false for each in verdicts)
    return f"| {kind} | {knowable.value} | {len(counted)} | {right} | {missed} | {false} |"


def misses(verdicts: Iterable[Verdict]) -> list[str]:
    """The goals that are missed."""
    every = list(verdicts)
    missed = []
    for knowable, goal in GOALS.items():
        counted = [each for each in every if each.counts and each.knowable is knowable]
        right = sum(each.is_right for each in counted)
        if right < goal * len(counted):
            missed.append(f"{right} of {len(counted)} that are {knowable.value} are right, {goal:.0%} should be")
    wrong = sum(each.is_false for each in every)
    if wrong:
        missed.append(f"{wrong} are false, none should be")
    return missed


def failures(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Those that are not right, the false ones first."""
    failed = [each for each in verdicts if each.is_false or (each.counts and not each.is_right)]
    return sorted(failed, key=lambda each: (not each.is_false, each.seed))


def described(verdict: Verdict) -> str:
    """One failure in a line."""
    wrong = (
        ("false", verdict.is_false),
        ("missed", verdict.is_missed),
        ("abstained", verdict.has_abstained),
        ("overclaimed", verdict.is_overclaimed),
        ("merged", verdict.is_merged),
        ("split", verdict.is_split),
        ("kind", not verdict.kind_is_right),
        ("culprits", not verdict.culprits_are_exact),
        ("span", not verdict.span_is_right),
        ("parent", not verdict.parent_is_right),
    )
    if verdict.truth is None:
        return f"seed {verdict.seed} ({verdict.scenario}): false, nothing like it was done: {verdict.told}"
    names = "missed" if verdict.is_missed else ", ".join(name for name, holds in wrong if holds) or "rebalances"
    text = f": {verdict.told}" if verdict.told else ""
    return f"seed {verdict.seed} ({verdict.scenario}), truth {verdict.truth}, {verdict.kind}: {names}{text}"
