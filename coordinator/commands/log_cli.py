"""`muster log repair`: say which records stop a partition, ask, and bury them. A skin over `log_repair.py`."""

import asyncio
import os
import socket
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, TypeVar

import typer

from muster.coordinator.commands.log_repair import PartitionSurvey, bury, owners_of, survey
from muster.coordinator.commands.members.answer import REFUSED, UNUSABLE, confirmed, fail
from muster.coordinator.commands.members.view import printable
from muster.coordinator.not_served import way_out
from muster.events.log.base import EventLog, LogError, LogMissing
from muster.events.log.kafka.client.security import KAFKA_CONFIG, KAFKA_CONFIG_HELP, KafkaSecurity, security_given
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.url import open_log
from muster.events.records import BrokenBatch, EventsError

T = TypeVar("T")

COMMAND = "muster log repair"

app = typer.Typer(
    name="log",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Repair the event log itself.",
)


@app.callback()
def log_() -> None:
    """Repair the event log itself."""


@app.command("repair")
def repair(
    log: Annotated[
        str, typer.Option("--log", metavar="URL", envvar="MUSTER_LOG", help="The event log, as for muster serve.")
    ] = "sqlite:///muster.db",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it, without asking.")] = False,
    owner_has_ended: Annotated[
        bool,
        typer.Option("--owner-has-ended", help="The partition's last owner has crashed and does not run any more."),
    ] = False,
    audit_window_ms: Annotated[
        int | None, typer.Option("--audit-window-ms", envvar="MUSTER_AUDIT_WINDOW_MS", help="As for muster serve.")
    ] = None,
    kafka_config: Annotated[
        list[str] | None, typer.Option(KAFKA_CONFIG, metavar="NAME=VALUE", help=KAFKA_CONFIG_HELP)
    ] = None,
) -> None:
    """Pass over records that cannot be read and stop a whole partition, so that it is served again.

    These are records that Muster wrote: one whose key does not say of which group it is, one about the partition
    itself, or, in the topic of offsets, a committed offset. This says where they stand and what is lost with each. With
    --yes, or a yes on the terminal, a tombstone is written for each. Then restart `muster serve`, which reads the
    partition again. What a newer Muster wrote is no damage: start that one. Where a whole batch cannot be read, nothing
    can be written in its place, and this says what else helps.

    Writing takes the partition over, so it is refused while a `muster serve` may have it: one that runs on a file has
    the file's lock; and in a file as in a topic one that was ready and has not said that it stopped may be running.
    If that one has crashed, say --owner-has-ended.

    Exit codes: 0 repaired, or only looked; 1 there is nothing to repair, or somebody may be serving the partition; 2
    wrong use, or a log that cannot be read or written.

    \b
    Examples:

        muster log repair --log sqlite:///muster.db
        muster log repair --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    try:
        security = security_given(kafka_config or [], os.environ)
    except LogError as error:
        fail(str(error), UNUSABLE, COMMAND)
    found = _run(_surveyed(log, security))
    if not found:
        fail(
            f"no record in {printable(log)} stops its partition: there is nothing to repair (for a quarantined group"
            " there is `muster groups repair`)",
            REFUSED,
            COMMAND,
        )
    typer.echo("\n".join(line for each in found for line in _lines(each)))
    owners = owners_of(found)
    if owners and not owner_has_ended:
        named = ", ".join(f"partition {partition} by {printable(owner)}" for partition, owner in owners.items())
        fail(
            f"somebody may be serving this: {named}. A repair would depose that owner. Stop it with SIGTERM, or say"
            " --owner-has-ended if it has crashed",
            REFUSED,
            COMMAND,
        )
    if not confirmed("Pass them over?", yes=yes):
        typer.echo("Nothing was changed; --yes does it.")
        return
    _run(_bury(log, security, audit_window_ms, found))
    typer.echo("Done: restart muster serve, which reads the partition again.")


def _lines(surveyed: PartitionSurvey) -> list[str]:
    return [
        f"partition {surveyed.partition}, offset {each.offset}: {printable(each.reason)}; what is lost with it:"
        f" {printable(each.lost)}"
        for each in (*surveyed.records, *surveyed.offsets)
    ]


async def _surveyed(url: str, security: KafkaSecurity) -> list[PartitionSurvey]:
    log = open_log(url, read_only=True, security=security)
    async with AsyncExitStack() as stack:
        await _opened(log, stack)
        found = await survey(log, await _offsets_of(url, security, stack))
    for warning in log.warnings:
        typer.echo(f"{COMMAND}: {warning}", err=True)
    return found


async def _bury(
    url: str, security: KafkaSecurity, audit_window_ms: int | None, found: Sequence[PartitionSurvey]
) -> None:
    log = open_log(url, audit_window_ms=audit_window_ms, security=security)
    async with AsyncExitStack() as stack:
        await _opened(log, stack)
        offsets = None
        if any(each.offsets for each in found):
            offsets = open_log(url + OFFSETS_SUFFIX, audit_window_ms=0, security=security)
            await _opened(offsets, stack)
        for each in found:
            who = f"{socket.gethostname()}:{os.getpid()} ({COMMAND})"
            await bury(log, each, who=who, wall_ms=time.time_ns() // 1_000_000, offsets=offsets)


async def _opened(log: EventLog, stack: AsyncExitStack) -> None:
    await log.open()
    stack.push_async_callback(log.close)


async def _offsets_of(url: str, security: KafkaSecurity, stack: AsyncExitStack) -> EventLog | None:
    """The topic of offsets. None for a file, and for a sidecar's log: its cluster keeps the offsets."""
    if not url.startswith("kafka:"):
        return None
    offsets = open_log(url + OFFSETS_SUFFIX, read_only=True, security=security)
    try:
        await _opened(offsets, stack)
    except LogMissing:
        return None
    return offsets


def _run(work: Coroutine[None, None, T]) -> T:
    """Whatever is wrong with the log is one line."""
    try:
        return asyncio.run(work)
    except BrokenBatch as broken:
        fail(f"{broken}; what helps: {way_out(broken)}", UNUSABLE, COMMAND)
    except (LogError, EventsError) as error:
        fail(str(error), UNUSABLE, COMMAND)
