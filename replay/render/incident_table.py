"""An incident for eyes: the sentence first; below it what happened, what it cost, and what would have spared it."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Cost, Incident, Statement
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.rebalances.wording import plural
from muster.replay.render.printable import text
from muster.replay.render.tables import grid
from muster.replay.times import clock_of, day_of, duration, wall_ms_of

GRADE_STYLES = {Grade.RECORDED: "green", Grade.INFERRED: "yellow", Grade.UNKNOWN: "red"}
REBALANCES_SHOWN = 8
STATEMENTS_SHOWN = 12
"""A table shows so many of each; JSON has all."""


def print_incident(incident: Incident, console: Console) -> None:
    """One incident."""
    console.print(_title(incident))
    console.print(text(incident.headline, "bold"))
    console.print(grid(_rows(incident)))


def _title(incident: Incident) -> Text:
    when = f"{day_of(incident.started_at)} {clock_of(incident.started_at)} UTC"
    title = (
        text(incident.kind, "bold cyan").append(" ").append(text(f"({incident.grade})", GRADE_STYLES[incident.grade]))
    )
    title.append("  ").append(text(when))
    if incident.ended_at is None:
        return title.append(", ").append(text("not over", "yellow"))
    took_ms = wall_ms_of(incident.ended_at) - wall_ms_of(incident.started_at)
    return title.append(text(f", {duration(took_ms)}" if took_ms else ""))


def _rows(incident: Incident) -> Iterator[tuple[str, RenderableType]]:
    if incident.parent is not None:
        yield "Within", text(incident.parent)
    if incident.rebalances:
        yield "Rebalances", _rebalances(incident.rebalances)
    if incident.chain:
        yield "What happened", _lines(incident.chain)
    if incident.rebalances:
        yield "Cost", text(cost_text(incident.cost))
    if incident.advice:
        yield "Advice", Text("\n").join(map(text, incident.advice))
    if incident.notes:
        yield "Missing", Text("\n").join(text(note, "yellow") for note in incident.notes)


def _rebalances(rebalances: tuple[Rebalance, ...]) -> Text:
    shown = [_rebalance(each) for each in rebalances[:REBALANCES_SHOWN]]
    if len(rebalances) > REBALANCES_SHOWN:
        shown.append(text(f"and {plural(len(rebalances) - REBALANCES_SHOWN, 'other')}", "dim"))
    return Text(", ").join(shown)


def _rebalance(rebalance: Rebalance) -> Text:
    reached = rebalance.to_generation
    line = text(f"{rebalance.from_generation} -> {'?' if reached is None else reached}")
    if rebalance.duration_ms is not None:
        line.append(text(f" ({duration(rebalance.duration_ms)})", "dim"))
    if rebalance.outcome is not Outcome.STABLE:
        line.append(" ").append(text(rebalance.outcome, "yellow"))
    return line


def _lines(chain: tuple[Statement, ...]) -> Text:
    lines = [_line(each) for each in chain[:STATEMENTS_SHOWN]]
    if len(chain) > STATEMENTS_SHOWN:
        lines.append(text(f"... and {len(chain) - STATEMENTS_SHOWN} more; --format json has all of them", "dim"))
    return Text("\n").join(lines)


def _line(statement: Statement) -> Text:
    at = clock_of(statement.at) if statement.at is not None else " " * 12
    line = text(at, "dim").append(" ").append(text(f"{statement.grade:8} ", GRADE_STYLES[statement.grade]))
    line.append(text(statement.text))
    if statement.seqs:
        line.append(text(f" (seq {', '.join(map(str, statement.seqs))})", "dim"))
    return line


def cost_text(cost: Cost) -> str:
    """'2 rebalances, 4.3 s not Stable, 61 partition-seconds without a consumer, 4 partitions moved'."""
    parts = [plural(cost.rebalances, "rebalance")]
    if cost.rebalancing_ms is not None:
        parts.append(f"{duration(cost.rebalancing_ms)} not Stable")
    if cost.partition_ms is not None:
        parts.append(f"{cost.partition_ms / 1_000:.1f} partition-seconds without a consumer")
    if cost.partitions_moved is not None:
        parts.append(f"{plural(cost.partitions_moved, 'partition')} moved")
    return ", ".join(parts)
