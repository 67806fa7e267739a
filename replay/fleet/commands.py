"""`muster fleet build`. Errors end it with one line, and exit code 2."""

import asyncio
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import LogError
from muster.events.log.url import open_log
from muster.events.records import EventsError
from muster.replay.fleet.build import build, spark_session
from muster.replay.fleet.java import NoJava, java_version
from muster.replay.fleet.stage import Staged, stage
from muster.replay.progress import watched

CANNOT = 2


def build_table(to: Path, log: str, kafka_config: Sequence[str], master: str) -> None:
    """The command, with its options."""
    _check_needs()
    with tempfile.TemporaryDirectory(prefix="muster-fleet-") as directory:
        try:
            security = security_given(kafka_config, os.environ)
            location, staged = asyncio.run(_stage(log, security, Path(directory)))
        except (LogError, EventsError, BadSecurity) as error:
            _fail(str(error))
        if staged.strangers.records:
            typer.echo(f"muster fleet: {staged.strangers.report(location)}", err=True)
        rows = build(spark_session(master), staged, location, to)
    typer.echo(f"{rows} rebalances from {staged.records} events in {to / 'rebalances'}")


def _check_needs() -> None:
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")
    try:
        java_version()
    except NoJava as error:
        _fail(str(error))


async def _stage(url: str, security: KafkaSecurity, directory: Path) -> tuple[str, Staged]:
    log = open_log(url, read_only=True, security=security)
    await log.open()
    try:
        with watched(f"reading {log.location}") as watch:
            staged = await stage(log, directory, watch=watch)
    finally:
        await log.close()
    for warning in log.warnings:
        typer.echo(f"muster fleet: {warning}", err=True)
    return log.location, staged


def _fail(message: str) -> NoReturn:
    typer.echo(f"muster fleet: {message}", err=True)
    raise typer.Exit(CANNOT)
