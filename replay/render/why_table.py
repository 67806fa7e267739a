"""One rebalance as text: its headline, then everything else that is known about it."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from muster.events.causes import Cause
from muster.replay.rebalances.planned import configs_text
from muster.replay.rebalances.rebalance import (
    Actor,
    Happening,
    HappeningKind,
    JoinPhase,
    MemberRef,
    Movement,
    Occurrence,
    Outcome,
    Planned,
    Rebalance,
    Requester,
    SyncPhase,
)
from muster.replay.rebalances.wording import JOIN_ENDS, headline, host, move_text, name
from muster.replay.render.tables import grid
from muster.replay.text.grammar import listed, plural
from muster.replay.text.printable import text
from muster.replay.text.times import Instant, clock_beside, duration, moment_of, setting

Row = tuple[str, RenderableType]

_OUTCOME_STYLES = {
    Outcome.STABLE: "green",
    Outcome.EMPTIED: "green",
    Outcome.SUPERSEDED: "yellow",
    Outcome.RUNNING: "yellow",
    Outcome.UNKNOWN: "red",
}
FOLDED_SHOWN = 40
"""The number of folded causes in a table."""
MOVES_SHOWN = 12
"""The number of moves in a table; JSON has all."""


def print_rebalance(rebalance: Rebalance, console: Console) -> None:
    """Print one rebalance."""
    console.print(text(headline(rebalance), f"bold {_OUTCOME_STYLES[rebalance.outcome]}"))
    console.print(grid(rows_of_rebalance(rebalance)))


def rows_of_rebalance(rebalance: Rebalance) -> Iterator[Row]:
    """Yield everything below the headline: labels, and texts."""
    yield "When", _when(rebalance)
    yield from _trigger(rebalance.trigger, rebalance.started_at)
    yield from _stacked("Folded in", _folded(rebalance))
    phase = rebalance.join_phase
    has_nobody = rebalance.outcome is Outcome.EMPTIED and phase.ended_by is Cause.ALL_JOINED
    if phase.duration_ms or not has_nobody:  # when the last member leaves, there is no member to wait for
        yield "Join phase", _join_phase(phase, rebalance.started_at, is_initial=rebalance.initial)
    if rebalance.sync_phase is not None:
        yield "Sync phase", _sync_phase(rebalance.sync_phase)
    yield "Members", _members(rebalance)
    if rebalance.movement is not None:
        yield "Moved", movement_text(rebalance.movement)
    yield from _stacked("Meanwhile", (_happening(each, rebalance.started_at) for each in rebalance.meanwhile))
    yield from _stacked("Before", (_happening(each, rebalance.started_at) for each in rebalance.avoided))
    yield from _stacked("Missing", (text(note, "yellow") for note in rebalance.notes))


def _folded(rebalance: Rebalance) -> Iterator[Text]:
    shown = rebalance.folded[:FOLDED_SHOWN]
    yield from (_at(seen.at, rebalance.started_at, seen.text) for seen in shown)
    more = len(rebalance.folded) + rebalance.folded_left_out - len(shown)
    if more:
        yield text(f"... and {more:,} more; --format json has the first and the latest of them", "dim")


def _stacked(label: str, lines: Iterable[Text]) -> Iterator[Row]:
    lines = list(lines)
    if lines:
        yield label, Text("\n").join(lines)


def _at(at: Instant, head: Instant, content: str) -> Text:
    return text(clock_beside(at, head), "dim").append(" ").append(text(content, "default"))


def _when(rebalance: Rebalance) -> Text:
    when = text(moment_of(rebalance.started_at))
    if rebalance.duration_ms is not None:
        when.append(text(f", took {duration(rebalance.duration_ms)}"))
    when.append(", ").append(text(rebalance.outcome, _OUTCOME_STYLES[rebalance.outcome]))
    return when.append(text(f" (seq {rebalance.first_seq} to {rebalance.last_seq})", "dim"))


def _trigger(trigger: Occurrence, head: Instant) -> Iterator[Row]:
    lines = [text(trigger.cause, "bold")]
    lines.extend(_actor(member, head) for member in trigger.who)
    if trigger.request is not None and not trigger.who:
        lines.append(_requester(trigger.request))
    yield "Trigger", Text("\n").join(lines)
    if trigger.planned is not None:
        yield from _stacked("Planned", _planned(trigger.planned))


def _requester(request: Requester) -> Text:
    return text(f"{host(request.client_host or '')}, client {request.client_id}, {request.principal}", "dim")


def _planned(planned: Planned) -> Iterator[Text]:
    """Yield all names; the sentence above them shows only the first few."""
    told = {
        "joined": _names(planned.came),
        "did not join": listed(planned.did_not_come),
        "left": _names(planned.went),
        "removed": _names(planned.removed),
        "stay": _names(planned.stay),
        "promoted": _names(planned.promoted),
        "configs": configs_text(planned.configs) if planned.configs else "",
    }
    return (text(f"{what}: {names}") for what, names in told.items() if names)


def _actor(member: Actor, head: Instant) -> Text:
    line = text("member id ", "dim").append(text(member.member_id or "(none)"))
    line.append("\n").append(text(f"{host(member.client_host)}, client {member.client_id}, {member.principal}", "dim"))
    if member.last_seen is not None and member.silence_ms:
        seen = clock_beside(member.last_seen, head)
        line.append("\n").append(text(f"last seen {seen}, {duration(member.silence_ms)} before"))
        if member.longest_silence_ms:
            line.append(text(f"; longest silence until then {duration(member.longest_silence_ms)}"))
    return line


def _join_phase(phase: JoinPhase, head: Instant, *, is_initial: bool) -> Text:
    lines = [text(_join_duration(phase, is_initial=is_initial))]
    if phase.last_to_join is not None and phase.last_to_join.after_ms:
        last = phase.last_to_join
        lines.append(text(f"last to join: {name(last.member)}, after {duration(last.after_ms)}"))
    lines.extend(_at(seen.at, head, seen.text) for seen in phase.dropped)
    if phase.absent:
        lines.append(
            text(f"did not rejoin and kept their places, as static members do: {_names(phase.absent)}", "yellow")
        )
    if phase.awaited:
        lines.append(text(f"still waiting for {_names(phase.awaited)}", "yellow"))
    return Text("\n").join(lines)


def _join_duration(phase: JoinPhase, *, is_initial: bool) -> str:
    """Describe how long the join phase took, and its limit. Joins extend an initial delay up to the rebalance timeout
    (KIP-134).
    """
    allowed = setting(phase.timeout_ms)
    if is_initial and phase.ended_by != Cause.INITIAL_DELAY_ELAPSED:
        delay = f"the initial rebalance delay of {allowed}, which joins extend up to the rebalance timeout"
        if phase.duration_ms is None or phase.ended_by is None:
            return f"waiting for {delay}"
        return f"{duration(phase.duration_ms)} of {delay}, until {JOIN_ENDS.get(phase.ended_by, phase.ended_by)}"
    if phase.duration_ms is None or phase.ended_by is None:
        return f"of up to {allowed}"
    if phase.ended_by == Cause.INITIAL_DELAY_ELAPSED:
        again = [each.member for each in phase.arrivals if 0 < each.after_ms < phase.duration_ms - phase.timeout_ms]
        begun_again = f"; it restarted as {_names(again)} joined" if again else ""
        return f"{duration(phase.duration_ms)}, until the initial rebalance delay of {allowed} was over{begun_again}"
    return f"{duration(phase.duration_ms)} of up to {allowed}, until {JOIN_ENDS.get(phase.ended_by, phase.ended_by)}"


def _sync_phase(phase: SyncPhase) -> Text:
    leader = f"the leader {name(phase.leader)}" if phase.leader is not None else "the leader"
    if phase.duration_ms is None:
        return text(f"waiting for {leader}", "yellow")
    return text(f"{duration(phase.duration_ms)}, waiting for {leader}")


def _members(rebalance: Rebalance) -> Text:
    before = {member.identity: member for member in rebalance.members_before}
    after = {member.identity: member for member in rebalance.members_after}
    line = text(f"{len(before)} -> {len(after)}")
    for sign, ours, theirs in (("+", after, before), ("-", before, after)):
        changed = [member for identity, member in ours.items() if identity not in theirs]
        if changed:
            line.append(text(f"  {sign} {_names(changed)}"))
    if rebalance.held:
        line.append(text(f"  (without partitions: {_names(rebalance.held)})"))
    if rebalance.protocol_name is not None:
        line.append(text(f"  ({rebalance.protocol_type}, {rebalance.protocol_name})", "dim"))
    return line


def _names(members: Sequence[MemberRef]) -> str:
    return listed([name(member) for member in members])


def movement_text(movement: Movement) -> Text:
    """Show the numbers of moved partitions, then the moves between members."""
    counts = {
        "changed owner": movement.moved,
        "newly owned": movement.gained,
        "without owner": movement.lost,
        "stayed": movement.stayed,
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    lines = [text(f"partitions: {', '.join(told)}" if told else "no partitions")]
    lines.extend(text(move_text(move)) for move in movement.moves[:MOVES_SHOWN])
    if len(movement.moves) > MOVES_SHOWN:
        lines.append(text(f"... and {len(movement.moves) - MOVES_SHOWN} more; --format json has all of them", "dim"))
    if movement.undecodable:
        lines.append(text(f"no consumer assignment can be read from {_names(movement.undecodable)}", "yellow"))
    return Text("\n").join(lines)


def _happening(happening: Happening, head: Instant) -> Text:
    error = f" ({happening.error})" if happening.error is not None else ""
    counted = happening.times > 1 and happening.kind is not HappeningKind.JOINS_GATHERED
    times = f", {plural(happening.times, 'time')}" if counted else ""
    if counted and happening.until is not None:
        times += f" until {clock_beside(happening.until, head)}"
    return _at(happening.at, head, f"{happening.text}{error}{times}")
