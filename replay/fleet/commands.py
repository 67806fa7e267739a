"""`muster fleet ...`: what the commands do. Errors end them with one line, and exit code 2."""

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import typer

from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import LogError
from muster.events.records import EventsError
from muster.replay.fleet.asked import By, EngineName, Form, Order
from muster.replay.times import FORMS_OF_TIME, NoSuchTime, read_time

if TYPE_CHECKING:
    from muster.replay.fleet.engines.engine import Engine
    from muster.replay.fleet.queries import Answer, Asked

CANNOT: Final = 2
DAMAGED: Final = 3
"""Exit code: what could be read was folded, and there is more that could not."""

T = TypeVar("T")


def _fail(message: str) -> NoReturn:
    typer.echo(f"muster fleet: {message}", err=True)
    raise typer.Exit(CANNOT)


def _check_needs() -> None:
    missing = [name for name in ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")


# ---- build --------------------------------------------------------------------------------------


def build_tables(
    to: Path, log: str, kafka_config: Sequence[str], engine: EngineName, master: str, *, rebuild: bool
) -> None:
    """`muster fleet build`."""
    _check_needs()
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


# ---- questions ----------------------------------------------------------------------------------


def show_top(tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form) -> None:
    """`muster fleet top`."""
    _check_needs()
    from muster.replay.fleet.queries import top  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: top(tables, asked), form, "The tables have no rebalance there.")


def show_causes(
    tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form, by: By
) -> None:
    """`muster fleet causes`."""
    _check_needs()
    from muster.replay.fleet.queries import causes  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: causes(tables, asked, by), form, "The tables have nothing there.")


def show_storms(
    tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form
) -> None:
    """`muster fleet storms`."""
    _check_needs()
    from muster.replay.fleet.queries import storms  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: storms(tables, asked), form, "There was no storm.")


def show_incidents(
    tables: Path,
    *,
    since: str | None,
    until: str | None,
    groups: str | None,
    limit: int,
    form: Form,
    kind: str | None,
    sort: Order,
) -> None:
    """`muster fleet incidents`."""
    _check_needs()
    from muster.replay.fleet.queries import incidents  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: incidents(tables, asked, kind, sort), form, "The tables have no such incident.")


def show_group(tables: Path, group: str, *, since: str | None, until: str | None, limit: int, form: Form) -> None:
    """`muster fleet group`."""
    _check_needs()
    from muster import terminal  # noqa: PLC0415
    from muster.replay.fleet import queries  # noqa: PLC0415
    from muster.replay.fleet.show import show_parts  # noqa: PLC0415

    asked = _asked(since, until, group, limit)
    parts = _told(lambda: queries.group(tables, asked))
    if not any(answer.rows for name, answer in parts.items() if name != "totals"):
        _fail(f"the tables in {tables} have nothing of group {group!r} there")
    show_parts(parts, form, terminal.stdout())


def _show(ask: "Callable[[], Answer]", form: Form, nothing: str) -> None:
    from muster import terminal  # noqa: PLC0415
    from muster.replay.fleet.show import show  # noqa: PLC0415

    show(_told(ask), form, terminal.stdout(), nothing=nothing)


def _told(ask: Callable[[], T]) -> T:
    from muster.replay.fleet.builds import NoTables  # noqa: PLC0415

    try:
        return ask()
    except NoTables as error:
        _fail(str(error))


def _asked(since: str | None, until: str | None, groups: str | None, limit: int) -> "Asked":
    from muster.replay.fleet.queries import Asked  # noqa: PLC0415

    return Asked(since_ms=_moment("--since", since), until_ms=_moment("--until", until), groups=groups, limit=limit)


def _moment(option: str, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        at_ms = read_time(given, now_ms=time.time_ns() // 1_000_000)
    except NoSuchTime as error:
        _fail(f"{option}: {error}")
    if at_ms is None:
        _fail(f"{option} {given!r} is none of these: {FORMS_OF_TIME}")
    return at_ms
