"""`muster log repair` and `muster log upgrade`: show the findings, ask the user, and change the event log."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import NoReturn, TypeVar

import typer

from muster import DISTRIBUTION
from muster.coordinator.client.commands.answer import REFUSED, UNUSABLE, confirmed, fail, security_of
from muster.coordinator.client.commands.log_repair import PartitionSurvey, owners_of, survey, write_tombstones
from muster.coordinator.client.commands.log_upgrade import LogState, look_at, raise_level
from muster.coordinator.client.commands.view import printable
from muster.coordinator.not_served import way_out
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import EventLog, LogError, LogMissing
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.url import open_log
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, BrokenBatch, EventsError

T = TypeVar("T")

REPAIR = "muster log repair"
UPGRADE = "muster log upgrade"


def repair_log(
    log: str, kafka_config: Sequence[str] | None, *, yes: bool, owner_has_ended: bool, audit_window_ms: int | None
) -> None:
    """Run `muster log repair`."""
    security = security_of(kafka_config, REPAIR)
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
        typer.echo("Nothing was changed; give --yes to make the change.")
        return
    run(_repaired(log, security, audit_window_ms, found), REPAIR)
    typer.echo("Done: restart muster serve, which reads the partition again.")


def upgrade_log(
    log: str, kafka_config: Sequence[str] | None, *, yes: bool, owner_has_ended: bool, audit_window_ms: int | None
) -> None:
    """Run `muster log upgrade`."""
    security = security_of(kafka_config, UPGRADE)
    found = run(_looked_at(log, security), UPGRADE)
    if found.format_level >= FORMAT_LEVEL:
        fail(f"{printable(log)} has format level {found.format_level}: there is nothing to upgrade", REFUSED, UPGRADE)
    typer.echo(
        f"{printable(log)} has format level {found.format_level}; at level {FORMAT_LEVEL} its events record more about"
        " why a group rebalanced. Existing events stay as they are and remain readable. A Muster that does not know"
        f" level {FORMAT_LEVEL} can no longer serve or read it from then on, and there is no way back."
    )
    if found.owners and not owner_has_ended:
        refuse_served(found.owners, UPGRADE, "An upgrade")
    if not confirmed(f"Upgrade it to level {FORMAT_LEVEL}?", yes=yes):
        typer.echo("Nothing was changed; give --yes to make the change.")
        return
    run(_upgraded(log, security, audit_window_ms), UPGRADE)
    typer.echo(f"Done: the log has format level {FORMAT_LEVEL}; start muster serve.")


def run(work: Coroutine[None, None, T], command: str) -> T:
    """Run the coroutine; print an error of the log as one line."""
    try:
        return asyncio.run(work)
    except BrokenBatch as broken:
        fail(f"{broken}; what helps: {way_out(broken)}", UNUSABLE, command)
    except (LogError, EventsError) as error:
        fail(str(error), UNUSABLE, command)


async def opened(log: EventLog, stack: AsyncExitStack) -> None:
    """Open the log; the stack closes it."""
    await log.open()
    stack.push_async_callback(log.close)


def refuse_served(owners: Mapping[int, str], command: str, doing: str) -> NoReturn:
    """Refuse because of owners that may be serving. `doing`: the action that would depose them, e.g. 'A repair'."""
    named = ", ".join(f"partition {partition} by {printable(owner)}" for partition, owner in owners.items())
    fail(
        f"another process may be serving this log: {named}. {doing} would depose that owner. Stop it with SIGTERM, or"
        " give --owner-has-ended if it has crashed",
        REFUSED,
        command,
    )


def writer_name(command: str) -> str:
    """Return the owner that the command's events name: `host:pid (command)`."""
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
    """Open the offsets topic. None for a file, and for a sidecar's log, since its cluster keeps the offsets."""
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
