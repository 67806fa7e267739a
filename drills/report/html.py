"""Makes one HTML page of the values and the lanes, with the style, the script and the policy of replay's report.

The page loads nothing from the network. Names of processes and groups are data: the template escapes them.
"""

from datetime import UTC
from typing import Final

from muster.drills.report.making import PHASE_NAMES, Recorded, phases
from muster.drills.report.result import Result
from muster.drills.report.table import (
    at_most_text,
    compared_lines,
    headline,
    load_text,
    measured_text,
)
from muster.drills.report.timeline import KINDS, lanes, members_waits, moments
from muster.replay.html.chart import Drawing, Mark, SpanOnPage
from muster.replay.html.document import kit, shown, told_in
from muster.replay.text.times import duration, instant, wall_ms_of

TAKEOVERS_MAX: Final = 200
WORDS: Final = {"none": "not there", "unit": "partition", "silent": "waiting for an answer"}
"""The words that the script uses for the lanes."""


def document(result: Result, recorded: Recorded, *, made_ms: int) -> str:
    """Return the page."""
    fault_ms, over_ms = wall_ms_of(result.fault_at), wall_ms_of(result.over_at)
    waited = members_waits(recorded.asked, fault_ms=fault_ms, end_ms=recorded.ended_ms)
    drawn = lanes(recorded, waited)
    told = moments(result, drawn)
    drawing = Drawing(
        begin=recorded.began_ms,
        end=recorded.ended_ms,
        lanes=drawn,
        bands=(),
        unstable=(SpanOnPage(fault_ms, over_ms),),
        takeovers=tuple(Mark(each.ready_at_ms, shown(each.owner, 120)) for each in result.takeovers),
        missing=(),
        incidents=tuple((each.begin_ms, each.end_ms, each.lanes) for each in told),
        words=WORDS,
    )
    return kit("muster.drills", "drill.html.j2", "drill.css").document(
        drawing,
        result=result,
        headline=headline(result),
        load=load_text(result),
        compared=list(compared_lines(result)),
        moments=told,
        kinds=[(kind, count) for kind in KINDS if (count := sum(each.kind == kind for each in told))],
        lanes=drawn,
        members=waited,
        members_drawn=sum(lane.is_member for lane in drawn),
        takeovers=result.takeovers[:TAKEOVERS_MAX],
        phase_names=PHASE_NAMES,
        phases=lambda each: {phase.name: ms for phase, ms in phases(each)},
        measured=measured_text,
        at_most=at_most_text,
        duration=duration,
        told=lambda at: told_in(at, UTC),
        made=instant(made_ms),
    )
