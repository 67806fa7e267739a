"""Implements `muster fleet build`, once or repeatedly. Errors end it with one line and exit code 2."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import LogError, LogMissing, LogUnavailable
from muster.events.records import EventsError
from muster.replay.commands.opening import CANNOT_READ, DAMAGED, fail, say
from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.building.build import Built, make_build
from muster.replay.fleet.building.engine import Engine
from muster.replay.fleet.building.fold import OutOfOrder
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.building.open_items import NotCarriedOver
from muster.replay.fleet.choice import NoSpark, check_spark, choose_builder
from muster.replay.fleet.disk_space import NoMemory, NoRoom
from muster.replay.fleet.session import SparkFailed
from muster.replay.fleet.tables.builds import GRACE_MS, BuildBusy, CannotBuild
from muster.replay.logs.opening import open_for_reading
from muster.replay.progress import watched
from muster.replay.text.grammar import plural


class AskedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `muster fleet build`. Without `every_ms` it builds once."""

    log: str
    to: Path
    every_ms: int | None
    engine: EngineName
    master: str
    kafka_config: Sequence[str] | None
    verbose: bool = False
    rebuild: bool = False
    grace_ms: int = GRACE_MS


def build_tables(asked: AskedBuild) -> None:
    """Build once, or repeatedly until SIGTERM, which lets the current build finish."""
    try:
        security = security_given(asked.kafka_config, os.environ)
        if asked.engine is EngineName.SPARK:
            check_spark()  # before the log is read
        damage = asyncio.run(_once(asked, security) if asked.every_ms is None else _again(asked, security))
    except (LogError, EventsError, BadSecurity, CannotBuild, NoMemory, NoRoom, NoSpark, OutOfOrder) as error:
        fail(str(error), CANNOT_READ)
    except SparkFailed as error:
        if asked.verbose:
            typer.echo(str(error.__cause__), err=True)
        fail(str(error), CANNOT_READ)
    except NotCarriedOver as error:
        fail(f"{error}: say --rebuild", CANNOT_READ)
    except OSError as error:
        fail(f"the tables cannot be written: {error}", CANNOT_READ)
    if damage:
        raise typer.Exit(DAMAGED)


async def _again(asked: AskedBuild, security: KafkaSecurity) -> bool:
    """Build until SIGTERM. Return whether the last build found damage."""
    assert asked.every_ms is not None
    interval_s = asked.every_ms / 1000
    stopped = asyncio.Event()
    damage = False
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    while True:
        try:
            damage = await _once(asked, security)
        except (LogUnavailable, LogMissing, BuildBusy, NoRoom) as error:
            say(f"{error}; tried again in {interval_s:g} s")
        try:
            await asyncio.wait_for(stopped.wait(), interval_s)
        except TimeoutError:
            continue
        return damage


async def _once(asked: AskedBuild, security: KafkaSecurity) -> bool:
    """Build and print the result. Return whether anything could not be read."""
    reason = ""

    def engine_for(event_bytes: int) -> Engine:
        nonlocal reason
        choice = choose_builder(asked.engine, event_bytes)
        reason = choice.reason
        return _engine(choice.engine, asked)

    log = open_for_reading(asked.log, security=security)
    await log.open()
    try:
        built = await make_build(
            log, asked.to, engine_for, rebuild=asked.rebuild, grace_ms=asked.grace_ms, watching=watched
        )
    finally:
        await log.close()
    if built.is_new or asked.every_ms is None:
        _tell(built, asked.to, reason)
    return bool(built.damage)


def _tell(built: Built, to: Path, reason: str) -> None:
    for warning in (*built.foreign_records, *built.damage):
        say(warning)
    build = built.build
    news = f"{built.events} new events folded" if built.is_new else "nothing new"
    broken = build.rows("quarantine")
    left = f"; {plural(broken, 'record')} cannot be read: see the table quarantine" if broken else ""
    typer.echo(
        f"{plural(build.rows('rebalances'), 'rebalance')} and {plural(build.rows('incidents'), 'incident')} of"
        f" {plural(build.rows('_open'), 'group')} in {to}: {news}{left}"
    )
    if not built.is_new:
        return
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in built.took_s.items())
    whole = sum(built.took_s.values())
    speed = f"; {built.events / whole:,.0f} events a second" if whole > 1 else ""
    typer.echo(f"engine {build.engine} ({reason}); {took}{speed}")


def _engine(name: EngineName, asked: AskedBuild) -> Engine:
    if name is EngineName.LOCAL:
        return LocalEngine()
    from muster.replay.fleet.building.spark import SparkEngine  # noqa: PLC0415 -- it takes a second
    from muster.replay.fleet.session import told_session  # noqa: PLC0415

    return SparkEngine(told_session(say, asked.master, verbose=asked.verbose))
