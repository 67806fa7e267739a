"""`muster log upgrade`: say what it does, ask, and raise the format level (`log_upgrade.py`)."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version

import typer

from muster import DISTRIBUTION
from muster.coordinator.commands.log_access import opened, refuse_served, run, security_of, writer_name
from muster.coordinator.commands.log_upgrade import LogState, look_at, upgrade
from muster.coordinator.commands.members.answer import REFUSED, confirmed, fail
from muster.coordinator.commands.members.view import printable
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.url import open_log
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL

COMMAND = "muster log upgrade"


def upgrade_log(
    log: str, kafka_config: Sequence[str], *, yes: bool, owner_has_ended: bool, audit_window_ms: int | None
) -> None:
    """Run the command."""
    security = security_of(kafka_config, COMMAND)
    found = run(_looked_at(log, security), COMMAND)
    if found.format_level >= FORMAT_LEVEL:
        fail(f"{printable(log)} has format level {found.format_level}: there is nothing to upgrade", REFUSED, COMMAND)
    typer.echo(
        f"{printable(log)} has format level {found.format_level}; at level {FORMAT_LEVEL} its events say more of why a"
        f" group rebalanced. What is there stays as it is and is read on. A Muster that does not know level"
        f" {FORMAT_LEVEL} can neither serve nor read it from then on, and there is no way back."
    )
    if found.owners and not owner_has_ended:
        refuse_served(found.owners, COMMAND, "An upgrade")
    if not confirmed(f"Upgrade it to level {FORMAT_LEVEL}?", yes=yes):
        typer.echo("Nothing was changed; --yes does it.")
        return
    run(_upgraded(log, security, audit_window_ms), COMMAND)
    typer.echo(f"Done: the log has format level {FORMAT_LEVEL}; start muster serve.")


async def _looked_at(url: str, security: KafkaSecurity) -> LogState:
    log = open_log(url, read_only=True, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        return await look_at(log)


async def _upgraded(url: str, security: KafkaSecurity, audit_window_ms: int | None) -> None:
    log = open_log(url, audit_window_ms=audit_window_ms, security=security)
    async with AsyncExitStack() as stack:
        await opened(log, stack)
        await upgrade(log, who=writer_name(COMMAND), version=version(DISTRIBUTION), wall_ms=wall_clock_ms())
