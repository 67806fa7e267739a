"""Implements `muster fleet report`: query the tables, build the page, write it."""

import re
import time
from pathlib import Path

import typer

from muster.replay.commands.opening import CANNOT_READ, fail
from muster.replay.commands.output_file import check_folder, write_page
from muster.replay.fleet.questions.commands import Asking, Given
from muster.replay.text.grammar import plural, size_text
from muster.replay.text.printable import printable
from muster.replay.text.zones import zone_named


def report(given: Given, out: Path, team_pattern: str) -> None:
    """Write the page."""
    asking = Asking(given)
    check_folder(out)
    try:
        pattern = re.compile(team_pattern)
    except re.error as error:
        fail(f"--team-pattern {printable(team_pattern)!r} is no regular expression: {error}", CANNOT_READ)
    from muster.replay.fleet.report.html import fitting  # noqa: PLC0415 -- an extra

    zone = zone_named("UTC") if given.tz is None else asking.view.zone
    made_ms = time.time_ns() // 1_000_000
    text, facts = asking.told(lambda: fitting(given.tables, asking.asked, pattern, made_ms=made_ms, zone=zone))
    write_page(out, text)
    numbers = f"{plural(facts.extent['rebalances'], 'rebalance')} of {plural(facts.extent['groups'], 'group')}"
    is_file = out.is_file()  # else the page may have gone to stdout
    typer.echo(f"{printable(str(out))}: {numbers}; {size_text(len(text.encode()))}", err=not is_file)
