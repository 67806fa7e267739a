"""An incident as text: its headline, then what happened, what it cost, and what would have prevented it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from sys import maxsize
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.history.window import WindowEdge
from muster.replay.incidents.evidence.naming import NAMED_MAX, process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Cost, Incident, Statement
from muster.replay.incidents.runs import runs
from muster.replay.rebalances.rebalance import Outcome, Rebalance
from muster.replay.render.tables import grid
from muster.replay.text.grammar import listed, plural
from muster.replay.text.printable import text
from muster.replay.text.times import Instant, clock_beside, duration, moment_of, wall_ms_of

GRADE_STYLES = {Grade.RECORDED: "green", Grade.INFERRED: "yellow", Grade.UNKNOWN: "red"}
LISTED_MAX: Final = 6
"""Up to this many rebalances, or event numbers, are listed one by one; of more only the range is shown. JSON lists all.
"""
_CROSSINGS = {WindowEdge.SINCE: "it began before --since", WindowEdge.UNTIL: "it was still in progress at --until"}


class Detail(IntEnum):
    """The number of statements of an incident that are shown; JSON has all."""

    BRIEF = 4
    WHOLE = 12
    ALL = maxsize


def print_incident(incident: Incident, console: Console, detail: Detail = Detail.WHOLE) -> None:
    """Print one incident."""
    console.print(_title(incident))
    console.print(text(incident.headline, "bold"))
    console.print(grid(rows_of(incident, detail)))


def title_of(incident: Incident) -> str:
    """'2026-11-21 02:13:30.185 UTC, crash (recorded), rebalance took 3.2 s'."""
    return str(_title(incident))


def _title(incident: Incident) -> Text:
    title = text(f"{moment_of(incident.started_at)}, ", "dim").append(text(incident.kind, "bold cyan"))
    title.append(" ").append(text(f"({incident.grade})", GRADE_STYLES[incident.grade]))
    if incident.ended_at is None:
        return title.append(", ").append(text("not over", "yellow"))
    took_ms = wall_ms_of(incident.ended_at) - wall_ms_of(incident.started_at)
    return title.append(text(f", {_span_of(incident)} {duration(took_ms)}" if took_ms else "", "dim"))


def _span_of(incident: Incident) -> str:
    """Name the kind of span: an incident with rebalances is dated by these, although its members may have ended
    earlier.
    """
    if not incident.rebalances:
        return "took"
    return "rebalance took" if len(incident.rebalances) == 1 else "rebalances within"


def rows_of(incident: Incident, detail: Detail) -> Iterator[tuple[str, RenderableType]]:
    """Yield everything below the headline: labels, and texts."""
    if incident.crosses:
        yield "Window", _stacked(text(_CROSSINGS[edge], "yellow") for edge in incident.crosses)
    if incident.parent is not None:
        _, seq, kind = incident.parent.split("-", 2)
        yield "Within", text(f"{kind} (seq {seq})")
    for label, members in (("Culprits", incident.culprits), ("Affected", incident.affected)):
        # A replaced process is listed with its old and its new member id; its name is shown once.
        names = list(dict.fromkeys(map(process_name, members)))
        if max(len(names), len(members) // 2) > NAMED_MAX:  # the headline has no room for all of them
            yield label, text(listed(names))
    if incident.rebalances:
        yield "Rebalances", _rebalances(incident.rebalances)
    if incident.chain:
        yield "What happened", _chain(incident, detail)
    if incident.rebalances or incident.cost.restarts_absorbed or incident.cost.partition_ms != 0:
        yield "Cost", text(cost_text(incident.cost))
    if incident.advice:
        yield "Advice", _stacked(map(text, incident.advice))
    if incident.notes:
        yield "Missing", _stacked(text(note, "yellow") for note in incident.notes)


def _stacked(lines: Iterable[Text]) -> Text:
    return Text("\n").join(lines)


def _rebalances(rebalances: Sequence[Rebalance]) -> Text:
    """List a few rebalances one by one; if there are many, show the unbroken ranges of their generations."""
    if len(rebalances) <= LISTED_MAX:
        return Text(", ").join(map(_rebalance, rebalances))
    unbroken = runs(rebalances, lambda run, each: each.from_generation in (run[-1].from_generation, _reached(run[-1])))
    told = text("; ".join(map(_generations, unbroken)))
    ended = Counter(each.outcome for each in rebalances if each.outcome is not Outcome.STABLE)
    for outcome, times in ended.items():
        told.append(", ").append(text(f"{times} {outcome}", "yellow"))
    longest_ms = max((each.duration_ms or 0 for each in rebalances), default=0)
    return told.append(text(f" (the longest took {duration(longest_ms)})", "dim"))


def _generations(run: Sequence[Rebalance]) -> str:
    """'162 to 210, 48 rebalances'."""
    return f"{run[0].from_generation} to {_reached(run[-1])}, {plural(len(run), 'rebalance')}"


def _reached(rebalance: Rebalance) -> int:
    """Return the generation that the rebalance led to, or started from if it led to none."""
    return rebalance.from_generation if rebalance.to_generation is None else rebalance.to_generation


def _rebalance(rebalance: Rebalance) -> Text:
    reached = rebalance.to_generation
    line = text(f"{rebalance.from_generation} -> {'?' if reached is None else reached}")
    if rebalance.duration_ms is not None:
        line.append(text(f" ({duration(rebalance.duration_ms)})", "dim"))
    if rebalance.outcome is not Outcome.STABLE:
        line.append(" ").append(text(rebalance.outcome, "yellow"))
    return line


def _chain(incident: Incident, detail: Detail) -> Text:
    lines = [_statement(each, incident.started_at) for each in incident.chain[:detail]]
    if len(incident.chain) > detail:
        lines.append(text(f"... and {len(incident.chain) - detail} more; --format json has all of them", "dim"))
    return _stacked(lines)


def _statement(statement: Statement, head: Instant) -> Text:
    at = "" if statement.at is None else clock_beside(statement.at, head)
    line = text(f"{at:12}", "dim").append(" ").append(text(f"{statement.grade:8} ", GRADE_STYLES[statement.grade]))
    line.append(text(statement.text))
    if statement.seqs:
        line.append(text(f" (seq {_seqs(statement.seqs)})", "dim"))
    return line


def _seqs(seqs: Sequence[int]) -> str:
    """'18, 29'; of many '93 to 210, 48 events'."""
    if len(seqs) <= LISTED_MAX:
        return ", ".join(map(str, seqs))
    return f"{min(seqs)} to {max(seqs)}, {len(seqs)} events"


def cost_text(cost: Cost) -> str:
    """'2 rebalances, 4.3 s not Stable, 61.0 partition-seconds without a consumer, 4 partitions moved'."""
    parts = []
    if cost.rebalances:
        parts.append(plural(cost.rebalances, "rebalance"))
        if cost.rebalancing_ms is not None:
            parts.append(f"{duration(cost.rebalancing_ms)} not Stable")
    parts += _partition_time(cost)
    if cost.rebalances and cost.partitions_moved is not None:
        back = f", {cost.partitions_moved_back} of them needlessly" if cost.partitions_moved_back else ""
        parts.append(f"{plural(cost.partitions_moved, 'partition')} moved{back}")
    if cost.restarts_absorbed:
        parts.append(f"{plural(cost.restarts_absorbed, 'static restart')} without a rebalance")
    return ", ".join(parts) or "no rebalance"


def _partition_time(cost: Cost) -> Iterator[str]:
    """Yield the time of partitions without a consumer; 'at least' if only a part of it is known."""
    if not cost.rebalances and not cost.known_partition_ms and cost.partition_ms is not None:
        return
    if cost.partition_ms is None and not cost.known_partition_ms:
        yield "an unknown number of partition-seconds without a consumer"
        return
    at_least = "at least " if cost.partition_ms is None else ""
    time = f"{at_least}{_seconds(cost.known_partition_ms)} partition-seconds without a consumer"
    yield f"{time}{_outside_of_rebalances(cost)}"


def _outside_of_rebalances(cost: Cost) -> str:
    of = (
        (cost.silent_partition_ms, "a member was silent"),
        (cost.empty_partition_ms, "the group was empty"),
        (cost.unassigned_partition_ms, "no member was assigned their topic"),
    )
    told = ", ".join(
        f"{'an unknown time' if ms is None else _seconds(ms)} while {what}" for ms, what in of if ms is None or ms
    )
    return f" ({told})" if told else ""


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:.1f}"
