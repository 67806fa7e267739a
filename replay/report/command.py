"""`muster replay report`: read the log, make the page, write it."""

import time
from contextlib import aclosing
from datetime import UTC, tzinfo
from pathlib import Path

import typer

from muster.events.ids import GroupId
from muster.replay.commands.asked import fail_outside, fail_unknown, start_of
from muster.replay.commands.opening import Source, opened, run
from muster.replay.commands.output_file import check_folder, refuse_to_replace, write_page
from muster.replay.form import View
from muster.replay.history.window import WHOLE, Window
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.logs.sources import items
from muster.replay.report.fold import ReportFold
from muster.replay.report.html import fitting
from muster.replay.report.page import Page
from muster.replay.text.grammar import plural, size_text
from muster.replay.text.printable import printable
from muster.replay.text.times import in_zone


def report(
    source: Source, group: str, out: Path, view: View, *, window: Window = WHOLE, page_zone: tzinfo = UTC
) -> None:
    """The command. `view`: its zone is used for times in errors."""
    check_folder(out)  # check this before reading a log that may be long

    async def read() -> None:
        async with opened(source) as reading:
            refuse_to_replace(reading.log, out)
            start = await start_of(reading, GroupId(group), window, view, quiet_ms=QUIET_MS, may_go_on=True)
            fold = ReportFold(
                start.group_id,
                start.checkpoint.group(start.group_id),
                at_ms=start.checkpoint.at_ms,
                missing=start.checkpoint.missing,
                window=window,
                life=start.life,
                clock=start.checkpoint.clock,
                times=start.times,
            )
            is_known = start.last is not None
            reads = items(reading, start)
            async with aclosing(reads):
                async for item in reads:
                    is_known = True
                    fold.feed(item)
                    if fold.is_over:
                        break
            if not is_known:
                await fail_unknown(reading, group)
            fold.end()
            if not fold.has_begun:
                await fail_outside(reading, start, window, view)
            text, page = fitting(
                fold,
                reading.log.location,
                made_ms=time.time_ns() // 1_000_000,
                zone=page_zone,
                damage=reading.damage,
            )
            write_page(out, text)
            _tell(out, len(text.encode()), page, view.zone)

    run(read())


def _tell(out: Path, size: int, page: Page, zone: tzinfo) -> None:
    """Report what was written, and what is not on the page."""
    is_file = out.is_file()  # otherwise the page itself may be on stdout
    told = f"{plural(page.incidents_told, 'incident')} with {plural(page.rebalances, 'rebalance')}"
    span = f"from {in_zone(page.begin, zone)} to {in_zone(page.end, zone)}"
    typer.echo(
        f"{printable(str(out))}: {told} of {printable(page.group_id)}, {span}; {size_text(size)}", err=not is_file
    )
    for each in page.left_out:
        typer.echo(f"  {each}", err=not is_file)
    if page.missing:
        told = plural(len(page.missing), "part")
        typer.echo(f"  {told} of the history missing or uncertain: the page lists them.", err=not is_file)
