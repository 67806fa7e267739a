"""`muster log repair`: show the records that stop a partition, ask, and write tombstones (`log_repair.py`)."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import typer

from muster.coordinator.commands.log_access import opened, refuse_served, run, security_of, writer_name
from muster.coordinator.commands.log_repair import PartitionSurvey, owners_of, survey, write_tombstones
from muster.coordinator.commands.members.answer import REFUSED, confirmed, fail
from muster.coordinator.commands.members.view import printable
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import EventLog, LogMissing
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.url import open_log
from muster.events.log.wall_clock import wall_clock_ms

COMMAND = "muster log repair"


def repair_log(
    log: str, kafka_config: Sequence[str], *, yes: bool, owner_has_ended: bool, audit_window_ms: int | None
) -> None:
    """Run the command."""
    security = security_of(kafka_config, COMMAND)
    found = run(_surveyed(log, security), COMMAND)
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
        refuse_served(owners, COMMAND, "A repair")
    if not confirmed("Skip these records from now on?", yes=yes):
        typer.echo("Nothing was changed; --yes does it.")
        return
    run(_repaired(log, security, audit_window_ms, found), COMMAND)
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
        await opened(log, stack)
        found = await survey(log, await _offsets_of(url, security, stack))
    for warning in log.warnings:
        typer.echo(f"{COMMAND}: {warning}", err=True)
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
            await write_tombstones(log, each, who=writer_name(COMMAND), wall_ms=wall_clock_ms(), offsets=offsets)


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
