"""The log of a command, opened; and what ends a command early: one line on stderr, and an exit code."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn, TypeVar

import msgspec
import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import LogError
from muster.events.records import EventsError
from muster.replay.logs.archives import open_archive
from muster.replay.logs.sources import Reading
from muster.replay.progress import watched

T = TypeVar("T")

NOT_FOUND: Final = 1
CANNOT_READ: Final = 2
DAMAGED: Final = 3
"""The exit codes; DAMAGED: what could be read was shown, and there is more that could not."""


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


@asynccontextmanager
async def opened(source: Source) -> AsyncIterator[Reading]:
    """The log, open for reading. In the end, what was noticed while reading is told; damage is the exit code."""
    log = open_archive(source.url, security=source.security)
    await log.open()
    reading = Reading(log=log)
    try:
        with watched(f"reading {log.location}") as watch:
            reading = msgspec.structs.replace(reading, watch=watch)
            yield reading
    finally:
        await log.close()
        if reading.strangers.records:
            say(str(reading.strangers.report(log.location)))
        for damage in reading.damage:
            say(damage)
    if reading.damage:
        raise typer.Exit(DAMAGED)


def run(reading: Coroutine[None, None, T]) -> T:
    """Read; whatever is wrong with the log is one line."""
    try:
        return asyncio.run(reading)
    except (LogError, EventsError) as error:
        fail(str(error), CANNOT_READ)


def say(message: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"muster replay: {message}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr, and end the command."""
    say(message)
    raise typer.Exit(code)
