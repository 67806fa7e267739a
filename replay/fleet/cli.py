"""`muster fleet ...`: a skin, as `replay/cli.py` is. Exit codes: 0 done; 2 something given or needed cannot be used."""

import asyncio
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from muster.events.log.base import LogError
from muster.events.log.kafka.client.security import KAFKA_CONFIG, KAFKA_CONFIG_HELP, KafkaSecurity, security_given
from muster.events.log.url import open_log
from muster.events.records import EventsError
from muster.replay.fleet.build import build, spark_session
from muster.replay.fleet.java import NoJava, java_version
from muster.replay.fleet.stage import Staged, stage
from muster.replay.progress import watched

CANNOT = 2

app = typer.Typer(
    name="fleet",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The history of every group at once, with Spark (pip install '.[fleet]' in the checkout, and Java 17 or 21).",
)


@app.callback()
def fleet() -> None:
    """The history of every group at once, with Spark (pip install '.[fleet]' in the checkout, and Java 17 or 21)."""


@app.command("build")
def build_command(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where the table goes: DIR/rebalances, Parquet.")],
    log: Annotated[
        str, typer.Option("--log", metavar="URL", envvar="MUSTER_LOG", help="The event log, as for muster replay.")
    ] = "sqlite:///muster.db",
    kafka_config: Annotated[
        list[str] | None, typer.Option(KAFKA_CONFIG, metavar="NAME=VALUE", help=KAFKA_CONFIG_HELP)
    ] = None,
    master: Annotated[str, typer.Option("--master", envvar="SPARK_MASTER", help="Spark's master.")] = "local[*]",
) -> None:
    """Fold the events of all groups into the table `rebalances`: a row each, with the cause and the whole story.

    \b
    Example:

        muster fleet build --log sqlite:///muster.db --to fleet
        duckdb -c "select cause, count(*) from 'fleet/rebalances/*.parquet' group by all order by 2 desc"
    """
    _check_needs()
    with tempfile.TemporaryDirectory(prefix="muster-fleet-") as directory:
        try:
            security = security_given(kafka_config or [], os.environ)
            location, staged = asyncio.run(_stage(log, security, Path(directory)))
        except (LogError, EventsError) as error:
            _fail(str(error))
        if staged.strangers.records:
            typer.echo(f"muster fleet: {staged.strangers.told(location)}", err=True)
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
