"""A case as text: what was done, and the ground truth."""

from collections.abc import Iterator
from datetime import UTC, datetime

from muster.replay.fleet.simulation.world.truth import Range, Truth
from tests.judge.case import Case


def clock(at_ms: int) -> str:
    """The time of day, UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S.%f}"[:-3]


def shown(case: Case) -> str:
    """The case in text: the deeds, and the truth."""
    lines = [f"seed {case.seed}: {case.scenario} ({case.sort.value})", f"  {case.setting}"]
    lines.extend(f"  {clock(at_ms)}  {text}" for at_ms, text in case.notes)
    lines.append(f"  {clock(case.until_ms)}  the case ends")
    for number, truth in enumerate(case.truths):
        lines.extend(_truth(number, truth))
    return "\n".join(lines)


def _truth(number: int, truth: Truth) -> Iterator[str]:
    optional = ", need not be told" if truth.is_optional else ""
    within = "" if truth.parent is None else f", within {truth.parent}"
    yield f"  truth {number}: {' or '.join(truth.kinds)} ({truth.knowable.value}{within}{optional})"
    if truth.culprits is not None:
        yield f"    culprits: {', '.join(sorted(truth.culprits)) or 'none of the members'}"
    yield f"    from {_ranges(truth.starts)} to {_ranges(truth.ends)}"
    yield f"    rebalances to generations {_generations(truth.must)}" + (
        f", perhaps {_generations(truth.may)}" if truth.may else ""
    )


def _ranges(ranges: tuple[Range, ...]) -> str:
    return " or ".join(
        clock(from_ms) if from_ms == to_ms else f"({clock(from_ms)} .. {clock(to_ms)})" for from_ms, to_ms in ranges
    )


def _generations(rebalances: frozenset[tuple[int, int]]) -> str:
    return ", ".join(str(generation) for _, generation in sorted(rebalances)) or "none"
