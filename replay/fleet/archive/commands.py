"""Implements `muster fleet archive`, `verify`, `compact` and `expire`: run the operation and report the result.

Errors end a command with one line and exit code 2; damage that `verify` finds, or that `archive` found in the log, is
exit code 3.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from time import sleep
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
import typer

from muster.events.kafka.security import BadSecurity, security_given
from muster.events.log.base import EventLog, LogDamaged, LogError, LogMissing, LogUnavailable
from muster.events.log.url import open_log
from muster.events.records import EventsError
from muster.replay.archive import local
from muster.replay.archive import manifest as manifests
from muster.replay.archive.compact import compact
from muster.replay.archive.expire import expire
from muster.replay.archive.files import ArchiveBusy
from muster.replay.archive.local import ArchivedRun
from muster.replay.archive.verify import OfPartition, VerifiedArchive, verify
from muster.replay.commands.opening import CANNOT_READ, DAMAGED, fail, say
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.choice import NoSpark, choose_archiver
from muster.replay.fleet.session import SparkFailed
from muster.replay.progress import Watch, watched
from muster.replay.text.grammar import size_text
from muster.replay.text.printable import printable

T = TypeVar("T")
Run = Callable[[], ArchivedRun]


class AskedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `muster fleet archive`. Without `every_ms` it runs once."""

    log: str
    to: Path
    every_ms: int | None
    engine: EngineName
    master: str
    verbose: bool
    kafka_config: Sequence[str] | None


def archive_command(asked: AskedArchive) -> None:
    """Archive once, or repeatedly; if repeatedly, wait while the log is unreachable or missing, the disk is full, or
    another writer is active.

    Unreadable parts of the log are reported, and reported again only when they change.
    """
    try:
        security = security_given(asked.kafka_config, os.environ)
        opening = partial(open_log, asked.log, read_only=True, security=security)
        chosen: tuple[str, Run] | None = None
        known: tuple[str, ...] = ()
        while True:
            begun = time.monotonic()
            try:
                engine, run = chosen = chosen or _chosen(asked, opening)
                done = run()
                if done.records or asked.every_ms is None:
                    _tell(done, engine, time.monotonic() - begun)
                for damage in done.damage if done.damage != known else ():
                    say(damage)
                known = done.damage
            except (LogUnavailable, LogMissing, ArchiveBusy) as error:
                if asked.every_ms is None:
                    raise
                say(f"{error}; tried again in {asked.every_ms / 1000:g} s")
            if asked.every_ms is None:
                break
            sleep(asked.every_ms / 1000)
    except (LogError, EventsError, BadSecurity, NoSpark) as error:
        fail(str(error), CANNOT_READ)
    except SparkFailed as error:
        if asked.verbose:
            typer.echo(str(error.__cause__), err=True)
        fail(str(error), CANNOT_READ)
    if known:
        raise typer.Exit(DAMAGED)


def archive_until_sigterm(asked: AskedArchive) -> None:
    """Archive repeatedly until SIGTERM, which ends it at once with exit code 0: committed records are safe."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # PID 1 ignores SIGTERM by default
    try:
        archive_command(asked)
    finally:
        signal.signal(signal.SIGTERM, before)


def _chosen(asked: AskedArchive, opening: Callable[[], EventLog]) -> tuple[str, Run]:
    """The engine's name for messages, and its run. The log's backlog is only determined if the choice depends on it."""
    is_topic = asked.log.startswith("kafka:")
    records = asyncio.run(_backlog(asked, opening)) if asked.engine is EngineName.AUTO and is_topic else 0
    chosen = choose_archiver(asked.engine, records, is_topic=is_topic)
    run = _spark(asked, opening) if chosen.engine is EngineName.SPARK else partial(_local, asked, opening)
    return f"{chosen.engine} engine ({chosen.reason})", run


async def _backlog(asked: AskedArchive, opening: Callable[[], EventLog]) -> int:
    state = manifests.load(asked.to)
    log = opening()
    await log.open()
    try:
        ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
    finally:
        await log.close()
    return sum(end - (0 if state is None else state.next_offset(partition)) for partition, end in ends.items())


def _local(asked: AskedArchive, opening: Callable[[], EventLog]) -> ArchivedRun:
    async def run() -> ArchivedRun:
        log = opening()
        await log.open()
        try:
            with watched(f"archiving {log.location}") as watch:
                return await local.archive(log, asked.to, watch=watch)
        finally:
            await log.close()

    return asyncio.run(run())


def _spark(asked: AskedArchive, opening: Callable[[], EventLog]) -> Run:
    from muster.replay.fleet.archive import streaming  # noqa: PLC0415 -- only Spark needs it
    from muster.replay.fleet.archive.connector import PACKAGE, connector_options  # noqa: PLC0415
    from muster.replay.fleet.session import told_session  # noqa: PLC0415

    parts = urlsplit(asked.log)
    options = connector_options(asked.kafka_config, os.environ)
    source = streaming.KafkaSource(servers=parts.netloc, topic=parts.path[1:], options=options, open_log=opening)
    session = told_session(say, asked.master, [PACKAGE], verbose=asked.verbose)

    def run() -> ArchivedRun:
        with watched(f"archiving {source.topic}") as watch:
            return streaming.archive(source, asked.to, session, watch=watch)

    return run


def _tell(done: ArchivedRun, engine: str, seconds: float) -> None:
    speed = f", {done.records / seconds:,.0f} a second" if seconds > 1 else ""
    typer.echo(
        f"{done.records:,} records archived in {done.segments:,} segments ({size_text(done.bytes)});"
        f" {seconds:.1f} s{speed}, {engine}"
    )


def verify_command(
    root: Path, log: str | None, kafka_config: Sequence[str] | None, form: Literal["table", "json"]
) -> None:
    """Verify and print the result; exit code 3 if anything is wrong."""

    async def run(watch: Watch) -> VerifiedArchive:
        if log is None:
            return await verify(root, None, watch=watch)
        opened = open_log(log, read_only=True, security=security_given(kafka_config, os.environ))
        await opened.open()
        try:
            return await verify(root, opened, watch=watch)
        finally:
            await opened.close()

    found = _done(lambda watch: asyncio.run(run(watch)), watched(f"verifying {root}"), if_damaged=DAMAGED)
    typer.echo(msgspec.json.encode(found).decode() if form == "json" else "\n".join(map(printable, _lines(found))))
    if found.damage:
        raise typer.Exit(DAMAGED)


def _lines(found: VerifiedArchive) -> list[str]:
    against = "" if found.compared is None else f"; {found.compared:,} records of the log are in it, byte by byte"
    size = size_text(found.bytes)
    head = f"{found.archive}: {found.records:,} records in {found.segments:,} segments ({size}) of {found.log}"
    lines = [head, *(line for part in found.partitions for line in _of_partition(part))]
    if found.damage:
        return [*lines, "", "WRONG:", *(f"  {each}" for each in found.damage)]
    return [*lines, f"whole and unaltered, {found.manifests} manifests{against}"]


def _of_partition(part: OfPartition) -> list[str]:
    expired = f"; before {part.expired_to:,} given up" if part.expired_to else ""
    unreadable = f"; {part.unreadable:,} records that this version cannot read" if part.unreadable else ""
    lines = [f"partition {part.partition}: {part.records:,} records up to {part.next_offset:,}{expired}{unreadable}"]
    if part.deleted:
        events = f"{part.events_deleted:,} events of groups"
        lines.append(f"  deleted before the archive came: {part.deleted:,} offsets, with {events}")
    if part.missing:
        ranges = ", ".join(f"{start:,}" if end == start + 1 else f"{start:,}-{end - 1:,}" for start, end in part.holes)
        lines.append(
            f"  compacted before the archive came, or ends of transactions: {part.missing:,} offsets ({ranges}), with"
            f" {part.events_compacted:,} events of groups"
        )
    return lines


def compact_command(root: Path) -> None:
    """Compact and print the result."""
    done = _done(lambda watch: compact(root, watch=watch), watched(f"compacting {root}"))
    joined = f"{done.replaced:,} segments joined to {done.added:,}" if done.replaced else "nothing to join"
    typer.echo(f"{joined}; {done.removed:,} files of earlier runs removed")


def expire_command(root: Path, before: str) -> None:
    """Expire and print the result."""
    gone = _done(lambda _watch: expire(root, before), watched(f"expiring {root}"))
    typer.echo(f"{gone.records:,} records in {gone.segments:,} segments ({size_text(gone.bytes)}) removed for good")


def _done(work: Callable[[Watch], T], progress: AbstractContextManager[Watch], *, if_damaged: int = CANNOT_READ) -> T:
    """Run with a progress display. `if_damaged`: the exit code if the archive is damaged."""
    try:
        with progress as watch:
            return work(watch)
    except LogDamaged as error:
        fail(str(error), if_damaged)
    except (LogError, EventsError, BadSecurity) as error:
        fail(str(error), CANNOT_READ)
