"""The values of the fleet's page -> one HTML document, without scripts and without requests to any host.

Names are data: the template escapes them. The size limit is that of a group's page; a page that exceeds it is rendered
again with fewer groups.
"""

import re
from datetime import UTC, tzinfo
from pathlib import Path
from shlex import quote
from typing import Final

from muster.replay.fleet.questions.queries import AskedRows
from muster.replay.fleet.questions.show import partition_time
from muster.replay.fleet.report.facts import ROWS_MAX, STORIES_OF_GROUP, FleetFacts, facts_of
from muster.replay.fleet.report.heat import LEVELS
from muster.replay.html.document import PAGE_BYTES_MAX, kit, shown, told_in
from muster.replay.incidents.families import Family, family_of
from muster.replay.text.times import Instant, duration, instant

CULPRITS_MAX: Final = 20
NAMED: Final = 5
"""How many culprits of a story, and how many groups of a storm, are named."""


def document(
    facts: FleetFacts, tables: str, *, made_ms: int, zone: tzinfo = UTC, asked: AskedRows | None = None
) -> str:
    """The document, of any length. `zone`: for all times; UTC if the zone has no name."""

    def told(at: Instant) -> str:
        whole = told_in(at, zone)
        return f"{whole[:19]}{whole[23:]}"

    window = asked or AskedRows()
    return kit("muster.replay.fleet", "fleet.html.j2", "fleet.css").document(
        facts=facts,
        tables=tables,
        since=None if window.since_ms is None else instant(window.since_ms),
        until=None if window.until_ms is None else instant(window.until_ms),
        groups=window.groups,
        made=instant(made_ms),
        told=told,
        shown=shown,
        duration=duration,
        partition_time=partition_time,
        levels=LEVELS,
        named=NAMED,
        family=family_of,
        families=[each for each in Family if each in {family_of(row["kind"]) for row in facts.causes}],
        command=_command,
        per_group=STORIES_OF_GROUP,
        culprits=CULPRITS_MAX,
    )


def _command(group_id: str, started_at: Instant) -> str:
    """The command that shows an incident in full, quoted for a shell."""
    return shown(f"muster replay why {quote(group_id)} --at {started_at}")


def fitting(
    folder: Path, asked: AskedRows, pattern: re.Pattern[str], *, made_ms: int, zone: tzinfo = UTC
) -> tuple[str, FleetFacts]:
    """The document with as many rows as fit, and its values. Raises NoTables."""
    rows = ROWS_MAX
    while True:
        facts = facts_of(folder, asked, pattern, rows=rows)
        text = document(facts, str(folder), made_ms=made_ms, zone=zone, asked=asked)
        if len(text.encode()) <= PAGE_BYTES_MAX or rows == 1:
            return text, facts
        rows //= 2
