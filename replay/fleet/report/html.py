"""The values of the fleet's page -> one HTML document, which asks no host for anything and has no script.

Names are data: the template escapes them. What is too long for the limit of a group's page tells of fewer groups.
"""

import re
from datetime import UTC, tzinfo
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from jinja2 import PackageLoader, Template

from muster import DISTRIBUTION
from muster.replay.fleet.questions.queries import AskedRows
from muster.replay.fleet.report.facts import ROWS_MAX, FleetFacts, facts_of
from muster.replay.fleet.report.heat import LEVELS
from muster.replay.report.html import PAGE_BYTES_MAX, policy, style_and_script, templates, told_in
from muster.replay.report.page import shown
from muster.replay.times import Instant, duration, instant

NAMED: Final = 5
"""The groups of a storm that are named."""


def document(
    facts: FleetFacts, tables: str, *, made_ms: int, zone: tzinfo = UTC, asked: AskedRows | None = None
) -> str:
    """The document, however long. `zone`: in which it tells times; in UTC if the zone has no name."""
    template, style = _parts()

    def told(at: Instant) -> str:
        whole = told_in(at, zone)
        return f"{whole[:19]}{whole[23:]}"

    window = asked or AskedRows()
    return template.render(
        facts=facts,
        tables=tables,
        since=None if window.since_ms is None else instant(window.since_ms),
        until=None if window.until_ms is None else instant(window.until_ms),
        groups=window.groups,
        made=instant(made_ms),
        told=told,
        shown=shown,
        duration=duration,
        levels=LEVELS,
        named=NAMED,
        style=style,
        policy=policy(style),
        version=version(DISTRIBUTION),
    )


def fitting(
    folder: Path, asked: AskedRows, pattern: re.Pattern[str], *, made_ms: int, zone: tzinfo = UTC
) -> tuple[str, FleetFacts]:
    """The document of the tables with as many rows as there is room for, and its values. Raises NoTables."""
    rows = ROWS_MAX
    while True:
        facts = facts_of(folder, asked, pattern, rows=rows)
        text = document(facts, str(folder), made_ms=made_ms, zone=zone, asked=asked)
        if len(text.encode()) <= PAGE_BYTES_MAX or rows == 1:
            return text, facts
        rows //= 2


@cache
def _parts() -> tuple[Template, str]:
    """The template and the style."""
    loader = PackageLoader("muster.replay.fleet", "report")
    environment = templates(loader)
    own, _, _ = loader.get_source(environment, "fleet.css")
    return environment.get_template("fleet.html.j2"), style_and_script()[0] + own
