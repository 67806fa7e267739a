"""Opens the log of a command, and ends a command early with one line on stderr and an exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NoReturn, TypeVar

import msgspec
import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import EventLog, LogDenied, LogError, LogReplaced
from muster.events.records import EventsError
from muster.replay.commands.speaking import PROGRAM
from muster.replay.garbage import collected_seldom
from muster.replay.logs.opening import open_for_reading
from muster.replay.logs.reading import Reading
from muster.replay.logs.waiting import LogWait
from muster.replay.progress import watched
from muster.replay.text.printable import printable

T = TypeVar("T")

NOT_FOUND: Final = 1
CANNOT_READ: Final = 2
DAMAGED: Final = 3
"""The exit codes. DAMAGED: the readable part was shown, but there is an unreadable part, or a single unreadable
record.
"""
ENOUGH: Final = 128 + signal.SIGPIPE
"""The exit code if the reader of the output closes it, as `head` does: that of a process killed by SIGPIPE."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The log, and the settings to connect to it."""

    url: str
    security: KafkaSecurity


def source_of(url: str, kafka_config: Sequence[str] | None) -> Source:
    """Make a source from the options of a command."""
    try:
        return Source(url=url, security=security_given(kafka_config, os.environ))
    except BadSecurity as error:
        fail(str(error), CANNOT_READ)


@asynccontextmanager
async def opened(source: Source, *, waits: bool = False) -> AsyncIterator[Reading]:
    """Open the log for reading. At the end, print notes and damage found while reading; damage sets the exit code.

    `waits`: wait while the log is unavailable, now or later.
    """
    waiting = LogWait(source.url, say) if waits else None
    log = await (_open(source) if waiting is None else waiting.answer(partial(_open, source), unless=LogDenied))
    reading = Reading(log=log, waiting=waiting)
    try:
        with watched(f"reading {log.location}") as watch:
            reading = msgspec.structs.replace(reading, watch=watch)
            yield reading
    except typer.Exit as ended:
        if ended.exit_code != NOT_FOUND or not reading.lacks:  # the unreadable part may have what was not found
            raise
    finally:
        await log.close()
        if reading.foreign_records.records:
            say(str(reading.foreign_records.report(log.location)))
        for note in reading.notes:
            say(note)
        for lack in reading.lacks:
            if waiting is None or lack not in waiting.told:
                say(lack)
    if reading.lacks:
        raise typer.Exit(DAMAGED)


async def _open(source: Source) -> EventLog:
    log = open_for_reading(source.url, security=source.security)
    await log.open()
    return log


def run(reading: Coroutine[None, None, T], writes: str = "the answer") -> T:
    """Run the coroutine; print any error of the log, or of the output (named by `writes`), as one line."""
    try:
        try:
            with collected_seldom():
                return asyncio.run(reading)
        finally:
            sys.stdout.flush()
    except LogReplaced as error:  # its message has advice for the log's owner
        fail(f"{error.what}. The output ends there; run the command again to read the current log", CANNOT_READ)
    except (LogError, EventsError) as error:
        fail(str(error), CANNOT_READ)
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush when the interpreter exits
        raise typer.Exit(ENOUGH) from error
    except OSError as error:
        fail(f"{writes} cannot be written: {error.strerror}", CANNOT_READ)


def say(message: str) -> None:
    """Print one line on stderr, escaped: text quoted in it may come from a client, or from an untrusted file."""
    typer.echo(f"{PROGRAM.get()}: {printable(message)}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr, and end the command."""
    say(message)
    raise typer.Exit(code)
