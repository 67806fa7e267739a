"""The count by kind and family, an addition to the judge's own table."""

from collections.abc import Sequence
from typing import Final

from tests.judge.count import Verdict
from tests.judge.real.given import Family
from tests.judge.table import misses

COLUMN: Final = 16

Judged = tuple[Family, Verdict]


def by_family(judged: Sequence[Judged]) -> str:
    """A row for each kind, a column for each family: right of all, then how many abstained, and how many were wrong."""
    lines = [_line("kind", [*Family, "all"])]
    kinds = sorted({verdict.kind for _, verdict in judged})
    lines += [_row(kind, [each for each in judged if each[1].kind == kind]) for kind in kinds]
    lines.append(_row("all", judged))
    return "\n".join(lines)


def _row(kind: str, judged: Sequence[Judged]) -> str:
    cells = [_cell([verdict for of, verdict in judged if of is family]) for family in Family]
    return _line(kind, [*cells, _cell([verdict for _, verdict in judged])])


def _line(kind: str, cells: Sequence[str]) -> str:
    return f"{kind:<22}" + "".join(f"{cell:>{COLUMN}}" for cell in cells)


def _cell(verdicts: Sequence[Verdict]) -> str:
    """'4/5 1a 0w': right of those that count, abstained and not right, wrong; false ones by the judge's word."""
    counted = [each for each in verdicts if each.counts]
    false = sum(each.is_false for each in verdicts)
    if not counted and not false:
        return "-"
    right = sum(each.is_right for each in counted)
    abstained = sum(each.has_abstained and not each.is_right for each in counted)
    wrong = len(counted) - right - abstained
    return f"{right}/{len(counted)} {abstained}a {wrong}w {false}f"


def missed_goals(judged: Sequence[Judged]) -> list[str]:
    """The judge's goals that are missed."""
    return misses(verdict for _, verdict in judged)
