"""Results of benchmarks: a line for each figure, with its value for each server and its goal; as a table, JSON and
Markdown.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.brokers.jars import KAFKA_VERSION

KAFKA = "kafka"
MUSTER = frozenset({"sqlite", "kafka-log", "spark", "sidecar", "edge", "fleet", "snapshot"})
"""The servers to which the goals apply; the others are for comparison."""

STANDALONE = {KAFKA: f"Kafka {KAFKA_VERSION}", "sqlite": "Muster, SQLite log", "kafka-log": "Muster, Kafka log"}
SIDECAR = {KAFKA: f"Kafka {KAFKA_VERSION} itself", "sidecar": "through Muster"}
"""The columns of the two parts; other proxies get columns if they are available."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A goal: exactly one of the fields is set.

    `at_least`, `at_most`: absolute. Relative to Kafka's figure in the same run: `times_kafka`, at least this multiple;
    `part_of_kafka`, at least this fraction; `within_kafka`, at most this multiple; `over_kafka`, at most this much
    more. `times_others`: at least this multiple of the best of the other proxies.
    """

    at_least: float | None = None
    at_most: float | None = None
    times_kafka: float | None = None
    part_of_kafka: float | None = None
    within_kafka: float | None = None
    over_kafka: float | None = None
    times_others: float | None = None

    def met(self, value: float, values: Mapping[str, float]) -> bool | None:
        """Return whether it was met; None if the figure to compare it with was not measured."""
        if self.at_least is not None:
            return value >= self.at_least
        if self.at_most is not None:
            return value <= self.at_most
        if self.times_others is not None:
            others = [each for server, each in values.items() if server not in MUSTER | {KAFKA}]
            return value >= self.times_others * max(others) if others else None
        kafka = values.get(KAFKA)
        if kafka is None:
            return None
        if self.over_kafka is not None:
            return value - kafka <= self.over_kafka
        if self.within_kafka is not None:
            return value <= self.within_kafka * kafka
        return value >= (self.times_kafka or self.part_of_kafka or 0) * kafka

    def text(self, unit: str) -> str:
        """Return the text of the last column."""
        if self.at_least is not None:
            return f">= {self.at_least:,g}"
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        if self.times_others is not None:
            return "the best proxy" if self.times_others == 1 else f">= {self.times_others:g}x the best proxy"
        if self.over_kafka is not None:
            return f"<= Kafka + {self.over_kafka:g} {unit}"
        if self.within_kafka is not None:
            return "<= Kafka" if self.within_kafka == 1 else f"<= {self.within_kafka:g}x"
        if self.part_of_kafka is not None:
            return f">= {self.part_of_kafka:.0%} of Kafka"
        return f">= {self.times_kafka:g}x"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. `values` by server, as in the columns; a figure without a goal only helps to interpret the
    others.

    `notes`, also by server: why there is no value, or why it is not the worst of all cases. Then the goal is missed.
    """

    name: str
    unit: str
    values: dict[str, float]
    goal: Goal | None = None
    notes: Mapping[str, str] = msgspec.field(default_factory=dict)

    def verdict(self, server: str) -> bool | None:
        if self.goal is None or server not in MUSTER:
            return None
        return server not in self.notes and self.goal.met(self.values[server], self.values)

    @property
    def goal_text(self) -> str:
        return "" if self.goal is None else self.goal.text(self.unit)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `left_out`: what could not be measured, and why."""

    title: str
    columns: Mapping[str, str]
    figures: Sequence[Figure]
    kafka: str
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)

    def show(self, console: Console) -> None:
        """As a table."""
        table = Table(title=self.title, title_justify="left")
        table.add_column("What")
        for title in self.columns.values():
            table.add_column(title, justify="right")
        table.add_column("Goal", justify="right")
        for figure in self.figures:
            cells = [_cell(figure, server, ok="[green]ok[/]", short="[red]short[/]") for server in self.columns]
            table.add_row(f"{figure.name} ({figure.unit})", *cells, figure.goal_text)
        console.print(table)
        for name, reason in self.left_out.items():
            console.print(f"[bold red]{name} was not measured:[/] {reason}", highlight=False)

    def markdown(self) -> str:
        """As a table of the README."""
        lines = [" | ".join(["| What", *self.columns.values(), "Goal |"]), "|---" * (len(self.columns) + 2) + "|"]
        for figure in self.figures:
            cells = [_cell(figure, server, ok="", short="**short**") for server in self.columns]
            lines.append(" | ".join([f"| {figure.name} ({figure.unit})", *cells, f"{figure.goal_text} |"]))
        lines += [f"\n{name} was not measured: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines) + "\n"

    def write(self, directory: Path, name: str) -> None:
        """Write `name`.json, with a description of the machine, and `name`.md."""
        document = {
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
            "kafka": self.kafka,
            "left_out": dict(self.left_out),
            "figures": [
                {
                    **msgspec.to_builtins(figure),
                    "met": {server: figure.verdict(server) for server in {**figure.values, **figure.notes}},
                }
                for figure in self.figures
            ],
        }
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        (directory / f"{name}.md").write_text(self.markdown(), encoding="utf-8")


def _cell(figure: Figure, server: str, *, ok: str, short: str) -> str:
    value, note = figure.values.get(server), figure.notes.get(server)
    if value is None and note is None:
        return ""
    text = ", ".join(part for part in (_compared(figure, server, value), note) if part)
    verdict = figure.verdict(server)
    return text if verdict is None else f"{text} {ok if verdict else short}".rstrip()


def _compared(figure: Figure, server: str, value: float | None) -> str:
    """The value, with its comparison to Kafka's."""
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    kafka = figure.values.get(KAFKA)
    if server != KAFKA and kafka:
        is_above = figure.goal is not None and figure.goal.over_kafka is not None
        text += f" ({value - kafka:+.2g})" if is_above else f" ({value / kafka:.2f}x)"
    return text
