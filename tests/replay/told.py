"""The tool's output for a history, or for a played harness."""

import io
from collections.abc import Iterable

from rich.console import Console

from muster.replay.form import Format, View
from muster.replay.history.transitions import Transitions
from muster.replay.history.window import AtSeq
from muster.replay.incidents.incident import Incident
from muster.replay.rebalances.rebalance import Happening, HappeningKind, MemberRef, Rebalance
from muster.replay.rebalances.timeline import Timeline
from muster.replay.render import Detail, Result, incident_stream, render, story_stream
from muster.replay.render.why_table import print_rebalance
from muster.replay.results.state import StateAt
from tests.coordinator.group.harness import Harness
from tests.replay.played import history_of
from tests.replay.whole import History, lines, rebalances, state_at


def console_of(out: io.StringIO, width: int) -> Console:
    """Return a terminal without colours."""
    return Console(file=out, width=width, highlight=False, force_terminal=True, color_system=None)


def printed(result: Result, form: Format = Format.TABLE, width: int = 100) -> str:
    out = io.StringIO()
    render(result, View(form=form), console_of(out, width))
    return out.getvalue()


def printed_history(history: History, width: int = 100) -> str:
    """Return the output of `history` on a terminal."""
    out = io.StringIO()
    stream = story_stream(history.group_id, history.log, None, View(), console_of(out, width))
    for line in lines(history):
        if not line.is_own_record:
            stream.feed(line)
    stream.end()
    return out.getvalue()


def printed_incidents(incidents: Iterable[Incident], form: Format = Format.TABLE, width: int = 100) -> str:
    """Return the output of `why --all`."""
    out = io.StringIO()
    reported = list(incidents)
    console = console_of(out, width)
    stream = incident_stream(reported[0].group_id, "memory", None, View(form=form), console)
    for incident in reported:
        stream.feed(incident, Detail.WHOLE)
    stream.end()
    return out.getvalue()


def printed_rebalances(reported: Iterable[Rebalance], width: int = 100) -> str:
    """Return each rebalance as `why --generation` prints it below its incident."""
    out = io.StringIO()
    for number, rebalance in enumerate(reported):
        out.write("\n" if number else "")
        print_rebalance(rebalance, console_of(out, width))
    return out.getvalue()


def rebalances_of(history: History) -> list[Rebalance]:
    return rebalances(history.group_id, history.items)


def last_rebalance(h: Harness) -> Rebalance:
    """Return the last rebalance."""
    return rebalances_of(history_of(h))[-1]


def since(history: History) -> tuple[Happening, ...]:
    """Return the happenings after the last rebalance."""
    timeline = Timeline()
    for step in Transitions(history.group_id).steps(history.items):
        timeline.feed(step)
    return () if timeline.is_running else timeline._happenings.happenings


def happenings(h: Harness, kind: HappeningKind) -> list[Happening]:
    """Return the happenings before the last rebalance, and since."""
    return [each for each in (*last_rebalance(h).avoided, *since(history_of(h))) if each.kind is kind]


def state_of(h: Harness) -> StateAt:
    state = state_at(history_of(h), AtSeq(h.events[-1].seq))
    assert state is not None
    return state


def names(members: Iterable[MemberRef]) -> list[str]:
    return [member.group_instance_id or member.member_id for member in members]
