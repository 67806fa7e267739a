"""`python -m benchmarks.archive`: the archive's speed and memory, with each command in a separate process.

The same events are archived from a SQLite log and from a Kafka topic, by each engine; the archive is verified, and read
by `muster replay`, compared with the log that it was made from. For comparison with Spark's archiver, Spark just reads
the same topic, and its workers count the records. The machine should be otherwise idle; if it is not, CPU time is more
meaningful.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import typer
from rich.console import Console

from benchmarks.measuring.history import many_groups, one_group, write
from benchmarks.results import Figure, Goal, Results
from muster.events.log.url import open_log
from muster.replay.fleet.archive import streaming
from muster.replay.fleet.archive.connector import PACKAGE
from muster.replay.fleet.session import spark_session
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.brokers.jars import KAFKA_VERSION

GROUPS: Final = 1_000
EVENTS_PER_REBALANCE: Final = 31
GOAL: Final = Goal(at_least=100_000)
MEMORY: Final = Goal(at_most=300)
COLUMNS: Final = {
    "sqlite": "SQLite log",
    "kafka-log": "Kafka log",
    "spark": "Kafka log, by Spark",
    "bare": "Kafka log, Spark counts it",
    "archive": "archive",
}
RESULTS: Final = Path(__file__).parent / "results"
COMMANDS: Final = (
    ("groups",),
    ("why", "group-7", "--all"),
    ("history", "group-7"),
    ("digest", "--since", "2000-01-01T00:00:00Z"),
)

_START: Final = re.compile(r"its start took (\d+\.\d) s")
_MAIN: Final = """
import sys
import time
from pathlib import Path
from muster.cli import main
try:
    main()
finally:
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    sys.stderr.write(f" {time.process_time()} {line.split()[1]}")
"""
"""Runs `muster`, and at the end prints its CPU time in seconds and its peak memory in KB."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was run. `start_s`: Spark's start; `cpu_s`, `memory_mb` (peak): of its own process only."""

    seconds: float
    start_s: float
    cpu_s: float
    memory_mb: float


def main(
    *,
    events: Annotated[int, typer.Option(help="Events of the history, of 1,000 groups.")] = 1_000_000,
    kafka_log: Annotated[bool, typer.Option(help="Measure a Kafka topic, too.")] = True,
    spark: Annotated[bool, typer.Option(help="Measure Spark on the topic, too; it needs Java.")] = True,
    reading: Annotated[bool, typer.Option(help="Verify and read the archive, too.")] = True,
    out: Annotated[Path, typer.Option(help="The directory for JSON and Markdown.")] = RESULTS,
) -> None:
    """Measure what the archive costs."""
    console = Console()
    results = measure(events, console, kafka_log=kafka_log, spark=spark and kafka_log, reading=reading)
    results.show(console)
    results.write(out, "archive")


def measure(events: int, console: Console, *, kafka_log: bool, spark: bool, reading: bool) -> Results:
    """Measure all figures in one run."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        logs = {"sqlite": f"sqlite:///{directory}/muster.db"}
        if kafka_log:
            broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
            logs["kafka-log"] = f"kafka://{broker.bootstrap}/events"
        records = 0
        rebalances = max(1, events // GROUPS // EVENTS_PER_REBALANCE)
        for server, url in logs.items():
            with console.status(f"{server}: {events:,} events"):
                records = asyncio.run(write(open_log(url), many_groups(one_group(rebalances), GROUPS)))
        if spark:
            logs["spark"] = logs["kafka-log"]
        with console.status("archiving"):
            figures = _archiving(directory, logs, records)
        if reading:
            with console.status("verifying and reading"):
                figures += _reading(directory / "sqlite", logs["sqlite"], records)
    columns = {server: COLUMNS[server] for server in (*logs, *(["bare"] if spark else ()), *(["archive"] * reading))}
    return Results(title=f"Archive, {records:,} records", columns=columns, figures=figures, kafka=KAFKA_VERSION)


def _archiving(directory: Path, logs: dict[str, str], records: int) -> list[Figure]:
    """Archive each log to its own folder. The start of the process, and of Spark, is included."""
    ran = {}
    for server, url in logs.items():
        engine = "spark" if server == "spark" else "local"
        ran[server] = _run("fleet", "archive", "--log", url, "--to", str(directory / server), "--engine", engine)
    speeds = {server: records / each.seconds for server, each in ran.items()}
    figures = [Figure(name="archive", unit="records/s", values=speeds, goal=GOAL)]
    if "spark" in ran:
        started = {"spark": records / (ran["spark"].seconds - ran["spark"].start_s)}
        started["bare"] = records / _bare_s(logs["spark"], records)
        figures += [
            Figure(name="... from when Spark is there", unit="records/s", values=started),
            Figure(name="... until Spark is there", unit="s", values={"spark": ran["spark"].start_s}),
        ]
    return [*figures, *_costs(ran, " (without Java's and its workers')")]


def _bare_s(url: str, records: int) -> float:
    """The seconds that Spark takes, right after its start, to read the topic and count its records in workers."""
    parts = urlsplit(url)
    session = spark_session("local[2]", [PACKAGE])
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(streaming.ARROW_ROWS))
    started = time.perf_counter()
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", parts.netloc)
    reader = reader.option("kafka.max.poll.records", str(streaming.POLLED_RECORDS)).option("includeHeaders", "true")
    rows = reader.option("subscribe", parts.path[1:]).load().selectExpr(*streaming.COLUMNS)
    counted = sum(row.records for row in rows.mapInArrow(_count, "records long").collect())
    taken = time.perf_counter() - started
    session.stop()
    assert counted == records
    return taken


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([sum(batch.num_rows for batch in batches)])], names=["records"])


def _reading(root: Path, log: str, records: int) -> list[Figure]:
    """Run the commands that read an archive, and for comparison on the log those that can read it."""
    figures = []
    for name, more in (("verify", ()), ("verify --log", ("--log", log))):
        ran = {"archive": _run("fleet", "verify", "--archive", str(root), *more)}
        figures += [
            Figure(name=name, unit="records/s", values={"archive": records / ran["archive"].seconds}),
            *_costs(ran),
        ]
    for command in COMMANDS:
        ran = {
            server: _run("replay", *command, "--log", url)
            for server, url in (("sqlite", log), ("archive", f"archive:{root}"))
        }
        figures += [
            Figure(name=" ".join(command), unit="s", values={server: each.seconds for server, each in ran.items()}),
            *_costs(ran),
        ]
    return figures


def _costs(ran: Mapping[str, Ran], whose: str = "") -> list[Figure]:
    memory = {server: each.memory_mb for server, each in ran.items()}
    return [
        Figure(
            name=f"... its processor time{whose}", unit="s", values={server: each.cpu_s for server, each in ran.items()}
        ),
        Figure(name=f"... its memory{whose}", unit="MB", values=memory, goal=MEMORY),
    ]


def _run(*arguments: str) -> Ran:
    line: Sequence[str] = [sys.executable, "-c", _MAIN, *arguments]
    environment = os.environ | {"SPARK_MASTER": "local[2]"}
    started = time.perf_counter()
    ran = subprocess.run(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True, env=environment
    )
    seconds = time.perf_counter() - started
    cpu_s, kilobytes = ran.stderr.split()[-2:]
    start = _START.search(ran.stderr)
    start_s = 0.0 if start is None else float(start.group(1))
    return Ran(seconds=seconds, start_s=start_s, cpu_s=float(cpu_s), memory_mb=int(kilobytes) / 1024)


if __name__ == "__main__":
    typer.run(main)
