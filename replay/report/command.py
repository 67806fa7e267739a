"""`muster replay report`: read the log, make the page, write it."""

import time
from pathlib import Path

import typer

from muster.replay.commands import CANNOT_READ, Source, fail, history_of
from muster.replay.rebalances.wording import plural
from muster.replay.render.printable import printable
from muster.replay.report.fold import ReportFold
from muster.replay.report.html import fitting


def report(source: Source, group: str, out: Path) -> None:
    """The command."""
    history = history_of(source, group)
    fold = ReportFold(history.group_id)
    for item in history.items:
        fold.feed(item)
    fold.end()
    document = fitting(fold, history.log, made_ms=time.time_ns() // 1_000_000)
    name = printable(str(out))
    try:
        out.write_text(document, encoding="utf-8")
    except OSError as error:
        fail(f"{name} cannot be written: {error.strerror}", CANNOT_READ)
    told = f"{plural(fold.incidents, 'incident')} with {plural(fold.rebalances, 'rebalance')}"
    typer.echo(f"{name}: {told} of {printable(group)}")
