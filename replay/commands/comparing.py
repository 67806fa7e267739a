"""The commands that compare: `diff` two times, `whatif` a history with other settings, `verify` a log with the rules.

As in `reading.py`, each reads the log, folds it, renders the result. `verify` ends with exit code 3 if any part of the
log was unreadable, even a single record; otherwise with 1 if it found something.
"""

import math
from collections.abc import Iterator
from contextlib import aclosing
from typing import Final

import typer

from muster import terminal
from muster.events.ids import GroupId
from muster.replay.commands.asked import (
    fail_not_reached,
    fail_outside,
    fail_unknown,
    fail_unmatched,
    feed,
    start_of,
    times_of,
    when,
)
from muster.replay.commands.opening import CANNOT_READ, DAMAGED, NOT_FOUND, Source, fail, opened, run, say
from muster.replay.form import Format, View
from muster.replay.history.window import WHOLE, At, AtGeneration, Cut, Place, Window, bounds
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import Start, from_the_beginning, items
from muster.replay.render import render
from muster.replay.render.as_json import write_line
from muster.replay.results.diff import Diff, DiffFold
from muster.replay.results.surveys import times_in
from muster.replay.text.printable import printable
from muster.replay.text.times import in_zone, instant
from muster.replay.verify.finding import Check
from muster.replay.verify.verification import Verification
from muster.replay.whatif.addresses import SharedAddresses
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.answer import Counted
from muster.replay.whatif.limits import SettingRefused
from muster.replay.whatif.verdict import Line
from muster.replay.whatif.whatif import WhatIfFold

FOUND: Final = 1
"""The exit code if `verify` found something."""


# ---- diff ---------------------------------------------------------------------------------------


def diff(source: Source, group: str, view: View, *, before: At | AtGeneration, after: At | AtGeneration) -> None:
    """`muster replay diff`."""

    async def read() -> None:
        async with opened(source) as reading:
            start = from_the_beginning(GroupId(group))
            times = await times_of(reading, start.group_id, before, after)
            reading.notes.extend(times.texts)
            fold = DiffFold(start.group_id, reading.log.location, before, after, times)
            await feed(fold, reading, start)
            result = fold.result()
            if isinstance(result, Diff):
                render(result, view, terminal.stdout())
                return
            await fail_not_reached(reading, start, result, view)

    run(read())


# ---- whatif -------------------------------------------------------------------------------------


def whatif(source: Source, group: str, view: View, alterations: Alterations, *, window: Window = WHOLE) -> None:
    """`muster replay whatif`. JSON lines are written as verdicts arrive; other formats list the last rebalances."""

    try:
        run(_whatif(source, group, view, alterations, window))
    except SettingRefused as refused:
        fail(str(refused), CANNOT_READ)


async def _whatif(source: Source, group: str, view: View, alterations: Alterations, window: Window) -> None:
    async with opened(source) as reading:
        start = await start_of(reading, GroupId(group), window, view)
        before, clock = start.checkpoint.group(start.group_id), start.checkpoint.clock
        shared = await _shared(reading, start) if alterations.is_static else None
        fold, counted = WhatIfFold(start.group_id, alterations, before, shared, clock), Counted()
        out = terminal.stdout().file

        def take(lines: Iterator[Line]) -> None:
            for line in lines:
                counted.take(line)
                if view.form is Format.JSONL:
                    write_line(line, out)

        cut, is_known, is_within = Cut(window, start.life, start.times), start.last is not None, False
        reads = items(reading, start)
        async with aclosing(reads):
            async for item in reads:
                place, is_known = cut.place(item), True
                is_within = is_within or place is Place.WITHIN
                take(fold.feed(item, is_within=place is Place.WITHIN))
                if place is Place.AFTER and fold.is_over:
                    break
        if not is_known:
            await fail_unknown(reading, group)
        if not is_within:
            await fail_outside(reading, start, window, view)
        take(fold.end())
        if view.form is Format.JSONL:
            for note in fold.notes:
                say(f"not known: {note}")
            return
        location, span = reading.log.location, bounds(window)
        render(counted.result(start.group_id, location, alterations, fold.notes, span), view, terminal.stdout())


async def _shared(reading: Reading, start: Start) -> SharedAddresses:
    """Make the first of two passes, which finds processes that cannot be distinguished."""
    shared = SharedAddresses(start.checkpoint.group(start.group_id), start.checkpoint.clock)
    async for item in items(reading, start):
        shared.feed(item)
    shared.end()
    return shared


# ---- verify -------------------------------------------------------------------------------------


def verify(source: Source, view: View, *, window: Window = WHOLE, wanted: str | None = None) -> None:
    """`muster replay verify`."""

    async def read() -> int:
        async with opened(source) as reading:
            times = await times_in(reading, window, wanted)
            verification = Verification(
                reading.log.partitions, lambda: reading.damage, window=window, wanted=wanted, times=times
            )
            async for chunk in reading.all_chunks(range(reading.log.partitions)):
                for record in chunk:
                    verification.feed(record)
            verified = verification.result(reading.log.location)
            if not verified.events and not verified.found and not reading.damage:
                _fail_unverified(reading.log.location, verification, window, wanted, view)
            render(verified, view, terminal.stdout())
            if Check.READABLE in verified.advice:
                return DAMAGED
            return FOUND if verified.found else 0

    raise typer.Exit(run(read()))


def _fail_unverified(location: str, verification: Verification, window: Window, wanted: str | None, view: View) -> None:
    """End the command if the log has no record of the requested part, since nothing was verified."""
    if math.isfinite(verification.first_ms):
        first, last = (in_zone(instant(int(each)), view.zone) for each in (verification.first_ms, verification.last_ms))
        whose = "" if wanted is None else f" of groups that match {printable(wanted)!r}"
        fail(f"{location} has no events{whose}{when(window, view)}; it covers {first} to {last}", NOT_FOUND)
    if wanted is not None:
        fail_unmatched(location, wanted)
