"""A process starts on a log with a long history: how long it takes until all groups are served, with and without a
snapshot.

The log is in a Kafka broker. The process starts three times: to save its first snapshots, without snapshots, and with
them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.history import mixed_groups, one_group, write
from benchmarks.results import Figure, Goal, Results
from muster.events.log.kafka.log import KafkaEventLog
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import until_so

PARTITIONS = 8
REBALANCES = 3
TOPIC = "cold"
WITHOUT, WITH = "without", "snapshot"
COLUMNS = {WITHOUT: "without a snapshot", WITH: "with one"}
GOAL_S = 5
SERVES_WITHIN_S = SAVED_WITHIN_S = 3_600


class Start(msgspec.Struct, frozen=True):
    """A start: seconds from the start of the process, and from the claims, until all groups are served; what was
    read.
    """

    ready_s: float
    reading_s: float
    events: int
    members: int


def measure(*, groups: int, events: int, console: Console) -> Results:
    """Measure all figures in one run."""
    with (
        running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS) as broker,
        TemporaryDirectory(prefix="muster-bench-") as folder,
    ):
        log = f"kafka://{broker.bootstrap}/{TOPIC}"
        with _muster(log):
            pass  # it creates the topics, including that of the offsets
        with console.status(f"writing {events:,} events of {groups:,} groups"):
            told = mixed_groups(one_group(REBALANCES), groups, events)
            written = uvloop.run(write(KafkaEventLog([broker.bootstrap], TOPIC, partitions=PARTITIONS), told))
        with console.status("starting without a snapshot"):
            without = _start(log)
        with console.status("saving snapshots"):
            _save(log, Path(folder))
        with console.status("starting with snapshots"):
            with_snapshot = _start(log, "--snapshots", folder)
        how = broker.how
    starts = {WITHOUT: without, WITH: with_snapshot}
    from_claims = {name: start.reading_s for name, start in starts.items()}
    figures = [
        Figure(
            name=f"start on {groups:,} groups of 10 ({written:,} records)",
            unit="s",
            values={name: start.ready_s for name, start in starts.items()},
        ),
        Figure(name="... of it from the claims on", unit="s", values=from_claims, goal=Goal(at_most=GOAL_S)),
        Figure(
            name="events that were read", unit="1", values={name: float(start.events) for name, start in starts.items()}
        ),
        Figure(name="members", unit="1", values={name: float(start.members) for name, start in starts.items()}),
    ]
    title = "A start on a log in Kafka that has a long history"
    return Results(title=title, columns=COLUMNS, figures=figures, kafka=how)


@contextmanager
def _muster(log: str, *options: str) -> Iterator[MusterProcess]:
    sizes = ["--log-partitions", str(PARTITIONS), "--log-replication", "1"]
    with running_muster(log=log, options=[*sizes, *options], serves_within_s=SERVES_WITHIN_S) as muster:
        yield muster


def _start(log: str, *options: str) -> Start:
    began_s = time.perf_counter()
    with _muster(log, *options) as muster:
        ready_s = time.perf_counter() - began_s
        lines = muster.events("partitions ready")
        took_ms = max(line["took_ms"] for line in lines)
        events, members = (sum(line[name] for line in lines) for name in ("events", "members"))
        return Start(ready_s, took_ms / 1000, events, members)


def _save(log: str, folder: Path) -> None:
    with _muster(log, "--snapshots", str(folder), "--snapshot-interval-ms", "1000"):
        until_so(
            lambda: len(list(folder.glob("*.snapshot"))) == PARTITIONS,
            lambda: sorted(each.name for each in folder.iterdir()),
            within_s=SAVED_WITHIN_S,
        )
