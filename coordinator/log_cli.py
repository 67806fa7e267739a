"""`muster log repair`: say which records stop a partition, ask, and bury them. A skin over `log_repair.py`."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Annotated, TypeVar

import typer

from coordinator.log_repair import PartitionSurvey, bury, owners_of, survey
from coordinator.members.answer import REFUSED, UNUSABLE, fail
from coordinator.members.view import printable
from events.log.base import EventLog, LogError
from events.log.kafka_security import KAFKA_CONFIG, KAFKA_CONFIG_HELP, KafkaSecurity, security_given
from events.log.url import open_log
from events.records import EventsError

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
    """Pass over records whose keys cannot be read, so that their partition is served again.

    The key of such a record, which Muster wrote, does not say of which group it is, so its whole partition is not
    served. This says where these records stand and what their values are. With --yes, or a yes on the terminal, a
    tombstone is written for each. Then restart `muster serve`, which reads the partition again.

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
            f"every key in {printable(log)} can be read: there is nothing to repair (for a quarantined group there is"
            " `muster groups repair`)",
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
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        yes = typer.confirm("Pass them over?")
    if not yes:
        typer.echo("Nothing was changed; --yes does it.")
        return
    _run(_bury(log, security, audit_window_ms, found))
    typer.echo("Done: restart muster serve, which reads the partition again.")


def _lines(surveyed: PartitionSurvey) -> list[str]:
    return [
        f"partition {surveyed.partition}, offset {each.offset}: {printable(each.reason)}; its value is"
        f" {'unreadable, too' if each.event is None else printable(each.event)}"
        for each in surveyed.keys
    ]


async def _surveyed(url: str, security: KafkaSecurity) -> list[PartitionSurvey]:
    log = open_log(url, read_only=True, security=security)
    await log.open()
    try:
        found = await survey(log)
    finally:
        await log.close()
    for warning in log.warnings:
        typer.echo(f"{COMMAND}: {warning}", err=True)
    return found


async def _bury(
    url: str, security: KafkaSecurity, audit_window_ms: int | None, found: Sequence[PartitionSurvey]
) -> None:
    log: EventLog = open_log(url, audit_window_ms=audit_window_ms, security=security)
    await log.open()
    try:
        for each in found:
            who = f"{socket.gethostname()}:{os.getpid()} ({COMMAND})"
            await bury(log, each, who=who, wall_ms=time.time_ns() // 1_000_000)
    finally:
        await log.close()


def _run(work: Coroutine[None, None, T]) -> T:
    """Whatever is wrong with the log is one line."""
    try:
        return asyncio.run(work)
    except (LogError, EventsError) as error:
        fail(str(error), UNUSABLE, COMMAND)
