"""`muster fleet build`: what it does. Errors end it with one line, and exit code 2."""

import asyncio
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import LogError
from muster.events.records import EventsError
from muster.replay.fleet.asked import EngineName

if TYPE_CHECKING:
    from muster.replay.fleet.engines.engine import Engine

CANNOT: Final = 2
DAMAGED: Final = 3
"""Exit code: what could be read was folded, and there is more that could not."""


def _fail(message: str) -> NoReturn:
    typer.echo(f"muster fleet: {message}", err=True)
    raise typer.Exit(CANNOT)


def check_needs() -> None:
    missing = [name for name in ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")


def build_tables(
    to: Path, log: str, kafka_config: Sequence[str], engine: EngineName, master: str, *, rebuild: bool
) -> None:
    """`muster fleet build`."""
    check_needs()
    from muster.replay.fleet.builds import CannotBuild  # noqa: PLC0415 -- an extra
    from muster.replay.fleet.engines.choice import NoSpark  # noqa: PLC0415
    from muster.replay.fleet.fold import OutOfOrder  # noqa: PLC0415
    from muster.replay.fleet.open_items import NotCarriedOver  # noqa: PLC0415

    try:
        security = security_given(kafka_config, os.environ)
        damage = asyncio.run(_build(to, log, security, engine, master, rebuild=rebuild))
    except (LogError, EventsError, BadSecurity, CannotBuild, NoSpark, OutOfOrder) as error:
        _fail(str(error))
    except NotCarriedOver as error:
        _fail(f"{error}: say --rebuild")
    except OSError as error:
        _fail(f"the tables cannot be written: {error}")
    if damage:
        raise typer.Exit(DAMAGED)


async def _build(to: Path, url: str, security: KafkaSecurity, asked: EngineName, master: str, *, rebuild: bool) -> bool:
    from muster.replay.fleet.build import Built, make_build  # noqa: PLC0415
    from muster.replay.fleet.engines.choice import choose  # noqa: PLC0415
    from muster.replay.fleet.engines.engine import Engine  # noqa: PLC0415
    from muster.replay.logs.archives import open_archive  # noqa: PLC0415
    from muster.replay.progress import watched  # noqa: PLC0415

    reason = ""

    def engine_for(event_bytes: int) -> Engine:
        nonlocal reason
        choice = choose(asked, event_bytes)
        reason = choice.reason
        return _engine(choice.engine, master)

    if asked is EngineName.SPARK:
        choose(EngineName.SPARK, 0)  # before the log is read
    log = open_archive(url, security=security)
    await log.open()
    try:
        with watched(f"reading {log.location}") as watch:
            built: Built = await make_build(log, to, engine_for, rebuild=rebuild, watch=watch)
    finally:
        await log.close()
    if built.staged.strangers.records:
        typer.echo(f"muster fleet: {built.staged.strangers.report(log.location)}", err=True)
    for warning in built.staged.damage:
        typer.echo(f"muster fleet: {warning}", err=True)
    build = built.build
    typer.echo(
        f"{build.rows('rebalances')} rebalances and {build.rows('incidents')} incidents of {build.rows('_open')} groups"
        f" in {to}: {built.events} new events folded"
    )
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in built.took_s.items())
    typer.echo(f"engine {build.engine} ({reason}); {took}")
    return bool(built.staged.damage)


def _engine(name: EngineName, master: str) -> "Engine":
    if name is EngineName.SPARK:
        from muster.replay.fleet.engines.spark import SparkEngine  # noqa: PLC0415
        from muster.replay.fleet.session import spark_session  # noqa: PLC0415

        return SparkEngine(spark_session(master))
    from muster.replay.fleet.engines.local import LocalEngine  # noqa: PLC0415

    return LocalEngine()
