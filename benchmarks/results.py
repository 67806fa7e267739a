"""What was measured: one figure a line, for each server, beside its goal; as a table and as JSON."""

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec
from rich.console import Console
from rich.table import Table


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """`times_kafka`: the ratio to Kafka's figure of the same run; `at_least`, `at_most`: absolute."""

    times_kafka: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float, kafka: float | None) -> bool | None:
        """Whether it was reached; None when Kafka's figure is missing."""
        if self.at_least is not None:
            return value >= self.at_least
        if self.at_most is not None:
            return value <= self.at_most
        if kafka is None or self.times_kafka is None:
            return None
        return value / kafka >= self.times_kafka if self.times_kafka > 1 else value / kafka <= self.times_kafka

    def __str__(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:,g}"
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return f">= {self.times_kafka:g} x Kafka" if (self.times_kafka or 0) > 1 else f"<= {self.times_kafka:g} x Kafka"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. `values` by server: kafka, sqlite (Muster, SQLite log), kafka-log (Muster, Kafka log)."""

    name: str
    unit: str
    values: dict[str, float]
    goal: Goal

    def verdict(self, server: str) -> bool | None:
        return None if server == "kafka" else self.goal.met(self.values[server], self.values.get("kafka"))


SERVERS = {"kafka": "Kafka 4.3.1", "sqlite": "Muster, SQLite log", "kafka-log": "Muster, Kafka log"}


def show(figures: list[Figure], console: Console) -> None:
    table = Table(title="Muster beside Kafka, one run, one machine", title_justify="left")
    table.add_column("What")
    for title in SERVERS.values():
        table.add_column(title, justify="right")
    table.add_column("Goal", justify="right")
    for figure in figures:
        cells = [_cell(figure, server) for server in SERVERS]
        table.add_row(f"{figure.name} ({figure.unit})", *cells, str(figure.goal))
    console.print(table)


def _cell(figure: Figure, server: str) -> str:
    value = figure.values.get(server)
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    kafka = figure.values.get("kafka")
    if server != "kafka" and kafka:
        text += f" ({value / kafka:.2f}x)"
    verdict = figure.verdict(server)
    return text if verdict is None else f"{text} {'[green]ok[/]' if verdict else '[red]short[/]'}"


def write(figures: list[Figure], file: Path, how: str) -> None:
    """JSON, with what the machine was."""
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "kafka": how,
        "figures": [
            {**msgspec.to_builtins(figure), "met": {s: figure.verdict(s) for s in figure.values}} for figure in figures
        ],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as out:
        _dump(document, out)


def _dump(document: Mapping[str, object], out: IO[str]) -> None:
    json.dump(document, out, indent=2)
    out.write("\n")
