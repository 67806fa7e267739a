"""Answers for eyes and for programs: tables whose durations are words, or JSON as it is."""

from collections.abc import Mapping
from typing import IO, Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from muster.replay.fleet.asked import Form
from muster.replay.fleet.queries import Answer
from muster.replay.render.printable import text
from muster.replay.times import duration

FOR_PROGRAMS: Final = frozenset({"incident", "culprits", "ended_at"})
"""The columns that a headline says better."""


def show(answer: Answer, form: Form, console: Console, *, nothing: str) -> None:
    """Print an answer; `nothing` is what is said where it has no row."""
    if form is Form.JSON:
        _write(answer.records, console.file)
    elif answer.rows:
        console.print(_table(answer))
    else:
        console.print(text(nothing))


def show_parts(parts: Mapping[str, Answer], form: Form, console: Console) -> None:
    """Print several answers, each below its name; those without a row are left out for eyes."""
    if form is Form.JSON:
        _write({name: answer.records for name, answer in parts.items()}, console.file)
        return
    for name, answer in parts.items():
        if answer.rows:
            table = _table(answer)
            table.title, table.title_justify = name, "left"
            console.print(table)


def _table(answer: Answer) -> Table:
    table = Table(box=None, pad_edge=False)
    shown = [name for name in answer.columns if name not in FOR_PROGRAMS]
    for name in shown:
        table.add_column(_heading(name), justify="right" if _is_number(answer, name) else "left", overflow="fold")
    for record in answer.records:
        table.add_row(*(text(_told(name, record[name])) for name in shown))
    return table


def _heading(name: str) -> str:
    return "partition time" if name == "partition_ms" else name.removesuffix("_ms")


def _is_number(answer: Answer, name: str) -> bool:
    index = answer.columns.index(name)
    return any(isinstance(row[index], int) for row in answer.rows)


def _told(name: str, value: object) -> str | None:
    if value is None:
        return None
    if name.endswith("_ms") and isinstance(value, int):
        return duration(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _write(told: Any, file: IO[str]) -> None:  # noqa: ANN401 -- what JSON can say
    file.write(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
