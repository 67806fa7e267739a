"""`muster log repair` and `muster log upgrade`: show what was found, ask, and change the event log."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Annotated, NoReturn, TypeVar

import typer

from muster import DISTRIBUTION
from muster.coordinator.client.commands.answer import REFUSED, UNUSABLE, confirmed, fail
from muster.coordinator.client.commands.log_repair import PartitionSurvey, owners_of, survey, write_tombstones
from muster.coordinator.client.commands.log_upgrade import LogState, look_at, raise_level
from muster.coordinator.client.commands.view import printable
from muster.coordinator.not_served import way_out
from muster.durations import milliseconds
from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import EventLog, LogError, LogMissing
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.options import DEFAULT_LOG, KafkaConfigOption, LogOption
from muster.events.log.url import open_log
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, BrokenBatch, EventsError

T = TypeVar("T")

REPAIR = "muster log repair"
UPGRADE = "muster log upgrade"

app = typer.Typer(
    name="log",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Repair or upgrade the event log itself.",
)


@app.callback()
def log_() -> None:
    """Repair or upgrade the event log itself."""


YesOption = Annotated[bool, typer.Option("--yes", help="Do it, without asking.")]
OwnerHasEndedOption = Annotated[
    bool, typer.Option("--owner-has-ended", help="The partition's last owner has crashed and does not run any more.")
]
AuditWindowOption = Annotated[
    int | None,
    typer.Option(
        "--audit-window-ms",
        metavar="DURATION",
        parser=milliseconds,
        envvar="MUSTER_AUDIT_WINDOW_MS",
        help="As for muster serve.",
    ),
]


@app.command("repair")
def repair(
    log: LogOption = DEFAULT_LOG,
    *,
    yes: YesOption = False,
    owner_has_ended: OwnerHasEndedOption = False,
    audit_window_ms: AuditWindowOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Skip records that cannot be read and stop a whole partition, so that it is served again.

    These are records that Muster wrote: one with an unreadable key, so that its group is unknown, one about the
    partition itself, or, in the offsets topic, a committed offset. The command prints their offsets, and what is lost
    with each. With --yes, or a yes on the terminal, it writes a tombstone for each. Then restart `muster serve`, which
    reads the partition again. A record of a newer Muster is no damage: start that one. A whole batch that cannot be
    read cannot be replaced; the command prints what else helps.

    Writing claims the partition, so it is refused while a `muster serve` may own it: one that runs on a file has the
    file's lock; and in a file as in a topic one that was ready and has not noted that it stopped may be running. If
    that one has crashed, give --owner-has-ended.

    Exit codes: 0 repaired, or only looked; 1 nothing to repair, or the partition may be served by somebody; 2 wrong
    use, or a log that cannot be read or written.

    \b
    Examples:

        muster log repair --log sqlite:///muster.db
        muster log repair --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    security = security_of(kafka_config or [], REPAIR)
    found = run(_surveyed(log, security), REPAIR)
    if not found:
        fail(
            f"no record in {printable(log)} stops its partition: there is nothing to repair (for a quarantined group"
            " there is `muster groups repair`)",
            REFUSED,
            REPAIR,
        )
    typer.echo("\n".join(line for each in found for line in _damage_lines(each)))
    owners = owners_of(found)
    if owners and not owner_has_ended:
        refuse_served(owners, REPAIR, "A repair")
    if not confirmed("Skip these records from now on?", yes=yes):
        typer.echo("Nothing was changed; --yes does it.")
        return
    run(_repaired(log, security, audit_window_ms, found), REPAIR)
    typer.echo("Done: restart muster serve, which reads the partition again.")


@app.command("upgrade")
def upgrade(
    log: LogOption = DEFAULT_LOG,
    *,
    yes: YesOption = False,
    owner_has_ended: OwnerHasEndedOption = False,
    audit_window_ms: AuditWindowOption = None,
    kafka_config: KafkaConfigOption = None,
) -> None:
    """Raise the log's format level to that of this Muster, for good.

    A log stays at the level that it was made at, so that an older Muster can go on with it. At a higher level events
    say more, such as who held a join phase up and since when a group was empty. What is there stays as it is, and every
    newer Muster reads it. An older one is refused from then on, and there is no way back: upgrade when you will not
    return to it.

    As `muster log repair` it claims the partitions, so it is refused while a `muster serve` may own them. Stop that
    one first; if it has crashed, give --owner-has-ended.

    Exit codes: 0 upgraded, or only looked; 1 nothing to upgrade, or the log may be served by somebody; 2 wrong use, or
    a log that cannot be read or written.

    \b
    Examples:

        muster log upgrade --log sqlite:///muster.db
        muster log upgrade --log kafka://127.0.0.1:29092/__muster_events --yes
    """
    security = security_of(kafka_config or [], UPGRADE)
    found = run(_looked_at(log, security), UPGRADE)
    if found.format_level >= FORMAT_LEVEL:
        fail(f"{printable(log)} has format level {found.format_level}: there is nothing to upgrade", REFUSED, UPGRADE)
    typer.echo(
        f"{printable(log)} has format level {found.format_level}; at level {FORMAT_LEVEL} its events say more of why a"
        f" group rebalanced. What is there stays as it is and is read on. A Muster that does not know level"
        f" {FORMAT_LEVEL} can neither serve nor read it from then on, and there is no way back."
    )
    if found.owners and not owner_has_ended:
        refuse_served(found.owners, UPGRADE, "An upgrade")
    if not confirmed(f"Upgrade it to level {FORMAT_LEVEL}?", yes=yes):
        typer.echo("Nothing was changed; --yes does it.")
        return
    run(_upgraded(log, security, audit_window_ms), UPGRADE)
    typer.echo(f"Done: the log has format level {FORMAT_LEVEL}; start muster serve.")


def run(work: Coroutine[None, None, T], command: str) -> T:
    """Run to the end; an error of the log is printed as one line."""
    try:
        return asyncio.run(work)
    except BrokenBatch as broken:
        fail(f"{broken}; what helps: {way_out(broken)}", UNUSABLE, command)
    except (LogError, EventsError) as error:
        fail(str(error), UNUSABLE, command)


def security_of(kafka_config: Sequence[str], command: str) -> KafkaSecurity:
    """Return the security of `--kafka-config` and the environment; a wrong property is printed as one line."""
    try:
        return security_given(kafka_config, os.environ)
    except BadSecurity as error:
        fail(str(error), UNUSABLE, command)


async def opened(log: EventLog, stack: AsyncExitStack) -> None:
    """Open the log until the stack is left."""
    await log.open()
    stack.push_async_callback(log.close)


def refuse_served(owners: Mapping[int, str], command: str, doing: str) -> NoReturn:
    """Refuse for the owners that may be serving partitions. `doing`: what would depose them, such as 'A repair'."""
    named = ", ".join(f"partition {partition} by {printable(owner)}" for partition, owner in owners.items())
    fail(
        f"somebody may be serving this log: {named}. {doing} would depose that owner. Stop it with SIGTERM, or give"
        " --owner-has-ended if it has crashed",
        REFUSED,
        command,
    )


def writer_name(command: str) -> str:
    """The owner that events of the command name: `host:pid (command)`."""
    return f"{socket.gethostname()}:{os.getpid()} ({command})"


def _damage_lines(surveyed: PartitionSurvey) -> list[str]:
    return [
        f"partition {surveyed.partition}, offset {each.offset}: {printable(each.reason)}; what is lost with it:"
        f" {printable(each.lost)}"
        for each in (*surveyed.records, *surveyed.offsets)
    ]


async def _surveyed(url: str, security: KafkaSecurity) -> list[PartitionSurvey]:
    log = open_log(url, read_only=True, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        found = await survey(log, await _offsets_of(url, security, stack))
    for warning in log.warnings:
        typer.echo(f"{REPAIR}: {warning}", err=True)
    return found


async def _repaired(
    url: str, security: KafkaSecurity, audit_window_ms: int | None, found: Sequence[PartitionSurvey]
) -> None:
    log = open_log(url, audit_window_ms=audit_window_ms, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        offsets = None
        if any(each.offsets for each in found):
            offsets = open_log(url + OFFSETS_SUFFIX, audit_window_ms=0, security=security)
            await opened(offsets, stack)
        for each in found:
            await write_tombstones(log, each, who=writer_name(REPAIR), wall_ms=wall_clock_ms(), offsets=offsets)


async def _offsets_of(url: str, security: KafkaSecurity, stack: AsyncExitStack) -> EventLog | None:
    """Open the offsets topic. None for a file, and for a sidecar's log: its cluster keeps the offsets."""
    if not url.startswith("kafka:"):
        return None
    offsets = open_log(url + OFFSETS_SUFFIX, read_only=True, security=security)
    try:
        await opened(offsets, stack)
    except LogMissing:
        return None
    return offsets


async def _looked_at(url: str, security: KafkaSecurity) -> LogState:
    log = open_log(url, read_only=True, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        return await look_at(log)


async def _upgraded(url: str, security: KafkaSecurity, audit_window_ms: int | None) -> None:
    log = open_log(url, audit_window_ms=audit_window_ms, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        await raise_level(log, who=writer_name(UPGRADE), version=version(DISTRIBUTION), wall_ms=wall_clock_ms())
