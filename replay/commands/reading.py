"""The commands of `muster replay`: each reads the log, folds it, renders the result.

Errors end the command with one line: exit code 1 if the log is readable but lacks what was asked for, 2 if it cannot be
read. After a result, exit code 3 means that a part of the log was unreadable.
"""

import os
from contextlib import aclosing
from pathlib import Path
from typing import IO

import msgspec
import typer

from muster import terminal
from muster.events.ids import GroupId
from muster.replay.commands.asked import (
    fail_not_reached,
    fail_outside,
    fail_unknown,
    fail_unmatched,
    feed,
    moment,
    point,
    start_of,
    times_of,
    view_of,
    when,
    window_of,
)
from muster.replay.commands.opening import (
    CANNOT_READ,
    DAMAGED,
    NOT_FOUND,
    Source,
    fail,
    opened,
    run,
    source_of,
)
from muster.replay.commands.output_file import refuse_to_replace
from muster.replay.commands.why import AskedIncidents, why
from muster.replay.form import Format, Sort, View
from muster.replay.history.window import WHOLE, At, AtGeneration, AtTime, Cut, Place, Window, bounds, wall_ms_in
from muster.replay.logs.exports import FORM, Head, copy, export_to
from muster.replay.logs.pseudonyms import Pseudonyms
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import from_the_beginning, items
from muster.replay.render import render, state_stream, story_stream
from muster.replay.results.digest import DigestFold
from muster.replay.results.groups import SORTS, Overview, read_overview
from muster.replay.results.state import StateFold
from muster.replay.results.states import StatesFold
from muster.replay.results.story import StoryLines
from muster.replay.results.surveys import survey_all, times_in
from muster.replay.text.printable import printable
from muster.replay.text.times import Instant, in_zone, instant

__all__ = [
    "CANNOT_READ",
    "AskedIncidents",
    "AtGeneration",
    "digest",
    "export",
    "fail",
    "groups",
    "history",
    "moment",
    "point",
    "source_of",
    "state",
    "view_of",
    "why",
    "window_of",
]


# ---- the commands -------------------------------------------------------------------------------


def groups(source: Source, view: View, *, window: Window = WHOLE, wanted: str | None = None, sort: Sort) -> None:
    """`muster replay groups`."""

    async def read() -> None:
        async with opened(source) as reading:
            times = await times_in(reading, window, wanted)
            since_ms, until_ms = wall_ms_in(window)
            overview = Overview(since_ms=since_ms, until_ms=until_ms, wanted=wanted, times=times)
            await read_overview(reading, overview)
            result = overview.result(reading.log.location, bounds(window), SORTS[sort])
            reading.note_unreadable(overview.broken())
            if wanted is not None and not overview.names:
                fail_unmatched(reading.log.location, wanted)
            render(result, view, terminal.stdout())

    run(read())


def digest(source: Source, view: View, *, window: Window, wanted: str | None = None) -> None:
    """`muster replay digest`."""

    async def read() -> None:
        async with opened(source) as reading:
            fold = DigestFold(window, wanted, await times_in(reading, window, wanted))
            async for chunk in reading.chunks(range(reading.log.partitions)):
                fold.take(chunk)
            result = fold.result(reading.log.location, bounds(window))
            reading.note_unreadable(fold.unreadable)
            if not result.groups:
                _fail_without_groups(reading.log.location, fold.first_at, window, wanted, view)
            render(result, view, terminal.stdout())

    run(read())


def _fail_without_groups(location: str, first: Instant | None, window: Window, wanted: str | None, view: View) -> None:
    """End the command if no group existed yet, or none matches."""
    whose = "" if wanted is None else f" that matches {printable(wanted)!r}"
    if first is not None:
        begin = in_zone(first, view.zone)
        fail(f"{location} has no group{whose}{when(window, view)}; the first one begins at {begin}", NOT_FOUND)
    if wanted is not None:
        fail_unmatched(location, wanted)


def history(
    source: Source, group: str, view: View, *, window: Window = WHOLE, goes_on: bool = False, everything: bool = False
) -> None:
    """`muster replay history`. JSON always has every event, regardless of `everything`."""
    is_whole = everything or view.form in (Format.JSON, Format.JSONL)

    async def read() -> None:
        async with opened(source, waits=goes_on) as reading:
            group_id = GroupId(group)
            start = await start_of(reading, group_id, window, view, goes_on=goes_on)
            cut, lines = Cut(window, start.life, start.times), StoryLines(start.checkpoint.group(start.group_id))
            console = terminal.stdout()
            stream = story_stream(group_id, reading.log.location, bounds(window), view, console, goes_on=goes_on)
            is_known, is_told = start.last is not None, False
            reads = items(reading, start, goes_on=goes_on)
            async with aclosing(reads):
                async for item in reads:
                    is_known, line, place = True, lines.feed(item), cut.place(item)
                    if place is Place.AFTER:
                        break
                    if place is Place.WITHIN:
                        is_told = True
                        if is_whole or not line.is_own_record:
                            stream.feed(line)
                        if goes_on:
                            console.file.flush()
            if not is_known:
                await fail_unknown(reading, group)
            if not is_told:
                await fail_outside(reading, start, window, view)
            stream.end()

    run(read())


def state(source: Source, group: str | None, view: View, *, at: At | AtGeneration, wanted: str | None = None) -> None:
    """`muster replay state`: of one group, or of all groups that match a pattern."""

    async def read() -> None:
        async with opened(source) as reading:
            if group is None:
                assert isinstance(at, AtTime)
                await _states(reading, view, at, wanted)
                return
            times = await times_of(reading, GroupId(group), at)
            start = msgspec.structs.replace(from_the_beginning(GroupId(group)), times=times)
            fold = StateFold(start.group_id, reading.log.location, at, times)
            await feed(fold, reading, start)
            result = fold.result()
            if result is None:
                await fail_not_reached(reading, start, fold, view)
            else:
                render(result, view, terminal.stdout())

    run(read())


async def _states(reading: Reading, view: View, at: AtTime, wanted: str | None) -> None:
    """Show the state of all groups that match."""
    location, is_any = reading.log.location, False
    fold = StatesFold(location, at, wanted, await survey_all(reading, wanted))
    async for chunk in reading.chunks(range(reading.log.partitions)):
        fold.take(chunk)
    stream = state_stream(location, instant(at.wall_ms), view, terminal.stdout())
    for each in fold.states():
        stream.feed(each)
        is_any = True
    reading.note_unreadable(fold.unreadable)
    if not is_any:
        fail(f"{location} has no such group at {in_zone(instant(at.wall_ms), view.zone)}", NOT_FOUND)
    stream.end()


def export(
    source: Source, to: Path, *, window: Window = WHOLE, wanted: str | None = None, keyfile: Path | None
) -> None:
    """`muster replay export`."""
    pseudonyms = None if keyfile is None else _pseudonyms(keyfile)

    async def read(file: IO[bytes]) -> None:
        async with opened(source) as reading:
            log = reading.log
            refuse_to_replace(log, to)
            location = log.location if pseudonyms is None else "an event log"
            head = Head(form=FORM, log=location, identity=log.identity, partitions=log.partitions)
            times = await times_in(reading, window, wanted)
            written, is_any = await copy(
                reading, export_to(to, file, head), window, wanted, pseudonyms=pseudonyms, times=times
            )
            if not is_any and wanted is not None:
                fail_unmatched(log.location, wanted)
            typer.echo(f"{written} records of {log.location} were written to {to}")

    beside = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            run(read(file), writes=str(to))
        beside.replace(to)
    except typer.Exit as ended:
        if ended.exit_code == DAMAGED:  # the file has all that could be read
            beside.replace(to)
        raise
    except (OSError, ValueError) as error:
        if isinstance(error.__context__, typer.Exit):  # already reported; closing the file has failed, too
            raise error.__context__ from error
        fail(f"{to} cannot be written: {error}", CANNOT_READ)
    finally:
        beside.unlink(missing_ok=True)


def _pseudonyms(keyfile: Path) -> Pseudonyms:
    try:
        return Pseudonyms(keyfile.read_bytes().strip())
    except (OSError, ValueError) as error:
        fail(f"--pseudonyms {keyfile}: {error}", CANNOT_READ)
