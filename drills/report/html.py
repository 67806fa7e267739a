"""The values and the lanes -> one HTML page, on the parts of replay's report: its style, its script, its policy.

The page asks no host for anything. Names of processes and groups are data: the template escapes them.
"""

from datetime import UTC
from functools import cache
from importlib.metadata import version
from typing import Final

import msgspec
from jinja2 import PackageLoader, Template

from muster import DISTRIBUTION
from muster.drills.report.making import PHASE_NAMES, Recorded, phases
from muster.drills.report.result import Result
from muster.drills.report.table import (
    at_most_text,
    compared_lines,
    headline,
    load_text,
    measured_text,
)
from muster.drills.report.timeline import KINDS, DrillLane, lanes, members_waits, moments
from muster.replay.report.html import in_script, policy, style_and_script, templates, told_in
from muster.replay.report.page import Mark, SpanOnPage, shown
from muster.replay.text.times import duration, instant, wall_ms_of

TAKEOVERS_MAX: Final = 200
WORDS: Final = {"none": "not there", "unit": "partition", "silent": "waiting for an answer"}
"""The script's words for what lanes show."""


class _Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the chart, for the script; the fields are those of replay's report."""

    begin: int
    end: int
    lanes: tuple[DrillLane, ...]
    bands: tuple[()] = ()
    unstable: tuple[SpanOnPage, ...]
    takeovers: tuple[Mark, ...]
    missing: tuple[()] = ()
    incidents: tuple[tuple[int, int, tuple[int, ...]], ...]
    words: dict[str, str]


def document(result: Result, recorded: Recorded, *, made_ms: int) -> str:
    """The page."""
    fault_ms, over_ms = wall_ms_of(result.fault_at), wall_ms_of(result.over_at)
    waited = members_waits(recorded.asked, fault_ms=fault_ms, end_ms=recorded.ended_ms)
    drawn = lanes(recorded, waited)
    told = moments(result, drawn)
    drawing = _Drawing(
        begin=recorded.began_ms,
        end=recorded.ended_ms,
        lanes=drawn,
        unstable=(SpanOnPage(fault_ms, over_ms),),
        takeovers=tuple(Mark(each.ready_at_ms, shown(each.owner, 120)) for each in result.takeovers),
        incidents=tuple((each.begin_ms, each.end_ms, each.lanes) for each in told),
        words=WORDS,
    )
    template, style, script = _parts()
    return template.render(
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
        style=style,
        script=script,
        data=in_script(drawing),
        policy=policy(style, script),
        version=version(DISTRIBUTION),
    )


@cache
def _parts() -> tuple[Template, str, str]:
    """The template, the style and the script."""
    loader = PackageLoader("muster.drills", "report")
    environment = templates(loader)
    own, _, _ = loader.get_source(environment, "drill.css")
    style, script = style_and_script()
    return environment.get_template("drill.html.j2"), style + own, script
