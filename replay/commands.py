"""The commands of `muster replay`: each reads the log, calls one pure function, renders the result.

Errors end the command with one line: exit code 1 when the log is well, but what was asked for is not in it, 2 when the
log cannot be read.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import NoReturn, TypeVar

import msgspec
import typer

from muster import terminal
from muster.events.ids import GroupId
from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import EventLog, LogError
from muster.events.log.url import open_log
from muster.events.records import EventsError
from muster.events.strangers import Strangers
from muster.replay.form import Format
from muster.replay.groups import Groups, Overview
from muster.replay.history import History
from muster.replay.progress import watched
from muster.replay.render import Result, render
from muster.replay.render.printable import printable
from muster.replay.sources import Take, read_histories, read_log
from muster.replay.state import AtTime, read_at, state_at
from muster.replay.story import story
from muster.replay.times import FORMS_OF_AT, instant
from muster.replay.why import generations_of
from muster.replay.why import why as why_of

T = TypeVar("T")

NOT_FOUND = 1
CANNOT_READ = 2


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Which log, and how to reach it."""

    url: str
    security: KafkaSecurity


def source_of(url: str, kafka_config: Sequence[str]) -> Source:
    """Make a source from the options of a command."""
    try:
        return Source(url=url, security=security_given(kafka_config, os.environ))
    except BadSecurity as error:
        fail(str(error), CANNOT_READ)


def groups(source: Source, form: Format) -> None:
    """`muster replay groups`."""
    _print(_overview(source), form)


def history(source: Source, group: str, form: Format) -> None:
    """`muster replay history`."""
    _print(story(history_of(source, group)), form)


def why(source: Source, group: str, form: Format, *, generation: int | None, everything: bool) -> None:
    """`muster replay why`."""
    history = history_of(source, group)
    result = why_of(history, generation=generation, everything=everything)
    if generation is not None and not result.answers:
        fail(f"no rebalance of {group} led to generation {generation} in {history.log}; {_known(history)}", NOT_FOUND)
    _print(result, form)


def state(source: Source, group: str, form: Format, *, at: str) -> None:
    """`muster replay state`."""
    history = history_of(source, group)
    moment = read_at(at, now_ms=time.time_ns() // 1_000_000)
    if moment is None:
        fail(f"--at {printable(at)!r} is none of these: {FORMS_OF_AT}", CANNOT_READ)
    result = state_at(history, moment)
    if result is None:
        when = instant(moment.wall_ms) if isinstance(moment, AtTime) else at
        fail(f"{history.log} does not tell of {group} at {when}; {_extent(history)}", NOT_FOUND)
    _print(result, form)


# ---- reading ------------------------------------------------------------------------------------


def _overview(source: Source) -> Groups:
    overview = Overview()
    return overview.result(_run(_read_all(source, overview.take)))


async def _read_all(source: Source, take: Take) -> str:
    strangers = Strangers()
    async with _opened(source) as log:
        with watched(f"reading {log.location}") as watch:
            await read_log(log, take, watch=watch, strangers=strangers)
        _tell_of(strangers, log.location)
        return log.location


def history_of(source: Source, group: str) -> History:
    """The group's history; ends the command if there is none, naming groups of similar names."""
    history = _run(_read_one(source, GroupId(group)))
    if history is None:
        fail(_unknown(group, _overview(source)), NOT_FOUND)
    return history


def _unknown(group: str, groups: Groups) -> str:
    message = f"there is no group {printable(group)!r} in {groups.log}"
    near = get_close_matches(group, [line.group_id for line in groups.groups], n=3)
    return f"{message}; did you mean {' or '.join(map(printable, near))}?" if near else message


async def _read_one(source: Source, group: GroupId) -> History | None:
    strangers = Strangers()
    async with _opened(source) as log:
        with watched(f"reading {log.location}") as watch:
            histories = await read_histories(log, group=group, watch=watch, strangers=strangers)
        _tell_of(strangers, log.location)
        return histories.get(group)


def _tell_of(strangers: Strangers, location: str) -> None:
    if strangers.records:
        typer.echo(f"muster replay: {strangers.report(location)}", err=True)


@asynccontextmanager
async def _opened(source: Source) -> AsyncIterator[EventLog]:
    log = open_log(source.url, read_only=True, security=source.security)
    await log.open()
    try:
        yield log
    finally:
        await log.close()
    for warning in log.warnings:
        typer.echo(f"muster replay: {warning}", err=True)


def _run(reading: Coroutine[None, None, T]) -> T:
    """Read; whatever is wrong with the log is one line."""
    try:
        return asyncio.run(reading)
    except (LogError, EventsError) as error:
        fail(str(error), CANNOT_READ)


# ---- answering ----------------------------------------------------------------------------------


def _print(result: Result, form: Format) -> None:
    render(result, form, terminal.stdout())


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr."""
    typer.echo(f"muster replay: {message}", err=True)
    raise typer.Exit(code)


def _known(history: History) -> str:
    generations = generations_of(history)
    if not generations:
        return "it tells of no rebalance"
    return f"it tells of {', '.join(map(str, generations))}"


def _extent(history: History) -> str:
    events = list(history.events)
    if not events:
        return "none of its events can be read"
    first, last = events[0], events[-1]
    return (
        f"it tells of seq {first.event.seq} to {last.event.seq}, from {instant(first.at_ms)} to {instant(last.at_ms)}"
    )
