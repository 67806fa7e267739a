"""`muster fleet ...`: what the questions do; building.py has `build`. Errors end them with one line, exit code 2."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import typer

from muster.replay.fleet.asked import By, Form, Order
from muster.replay.times import FORMS_OF_TIME, NoSuchTime, read_time

if TYPE_CHECKING:
    from muster.replay.fleet.queries import Answer, Asked

CANNOT: Final = 2

T = TypeVar("T")


def fail(message: str) -> NoReturn:
    """End the command with one line."""
    typer.echo(f"muster fleet: {message}", err=True)
    raise typer.Exit(CANNOT)


def check_needs() -> None:
    """End the command unless the extra is there."""
    missing = [name for name in ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout")


# ---- questions ----------------------------------------------------------------------------------


def show_top(tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form) -> None:
    """`muster fleet top`."""
    check_needs()
    from muster.replay.fleet.queries import top  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: top(tables, asked), form, "The tables have no rebalance there.")


def show_causes(
    tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form, by: By
) -> None:
    """`muster fleet causes`."""
    check_needs()
    from muster.replay.fleet.queries import causes  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: causes(tables, asked, by), form, "The tables have nothing there.")


def show_storms(
    tables: Path, *, since: str | None, until: str | None, groups: str | None, limit: int, form: Form
) -> None:
    """`muster fleet storms`."""
    check_needs()
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
    check_needs()
    from muster.replay.fleet.queries import incidents  # noqa: PLC0415

    asked = _asked(since, until, groups, limit)
    _show(lambda: incidents(tables, asked, kind, sort), form, "The tables have no such incident.")


def show_group(tables: Path, group: str, *, since: str | None, until: str | None, limit: int, form: Form) -> None:
    """`muster fleet group`."""
    check_needs()
    from muster import terminal  # noqa: PLC0415
    from muster.replay.fleet import queries  # noqa: PLC0415
    from muster.replay.fleet.show import show_parts  # noqa: PLC0415

    asked = _asked(since, until, group, limit)
    parts = _told(lambda: queries.group(tables, asked))
    if not any(answer.rows for name, answer in parts.items() if name != "totals"):
        fail(f"the tables in {tables} have nothing of group {group!r} there")
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
        fail(str(error))


def _asked(since: str | None, until: str | None, groups: str | None, limit: int) -> "Asked":
    from muster.replay.fleet.queries import Asked  # noqa: PLC0415

    return Asked(since_ms=_moment("--since", since), until_ms=_moment("--until", until), groups=groups, limit=limit)


def _moment(option: str, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        at_ms = read_time(given, now_ms=time.time_ns() // 1_000_000)
    except NoSuchTime as error:
        fail(f"{option}: {error}")
    if at_ms is None:
        fail(f"{option} {given!r} is none of these: {FORMS_OF_TIME}")
    return at_ms
