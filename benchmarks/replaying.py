"""`muster replay` on long histories: elapsed time, CPU time and memory of each command, in a separate process each.

For comparison, the log is just read from beginning to end.

`python -m benchmarks.replaying` is the long form: every command on ten million events, of 10,000 groups and of one, and
its memory.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from benchmarks.measuring.history import HOUR_MS, long_group, mixed_groups, one_group, write
from benchmarks.results import STANDALONE, Figure, Goal, Results
from muster.events.events import AnyEvent
from muster.events.ids import GroupId
from muster.events.log.base import EventLog
from muster.events.log.url import open_log
from muster.events.records import Transition
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.brokers.jars import KAFKA_VERSION

GROUPS: Final = 1_000
WINDOW: Final = 10_000
MEMORY_MB: Final = 300
NAMES: Final = ("many", "one", "short")
ORDERS: Final = GroupId("orders")
MINUTE_MS: Final = 60_000


class History(StrEnum):
    MANY = f"{GROUPS:,} groups"
    ONE = "one group"
    SHORT = f"one group, {WINDOW:,} events"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`events`: in each of the two long histories, of GROUPS groups and of one."""

    events: int
    kafka_log: bool


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command, the history on which it is run, and its goal in seconds for all events."""

    of: History
    arguments: Sequence[str]
    at_most_s: float | None

    @property
    def name(self) -> str:
        return f"{self.of}: {' '.join(self.arguments)}"


def commands(load: Load) -> list[Command]:
    """The commands. A window is the last WINDOW events of one group; among many groups, ORDERS has that many in all."""
    seq = str(max(1, load.events - WINDOW))
    return [
        Command(of=History.MANY, arguments=("groups",), at_most_s=10),
        Command(of=History.MANY, arguments=("why", ORDERS, "--all"), at_most_s=3),
        Command(of=History.MANY, arguments=("history", ORDERS), at_most_s=3),
        Command(of=History.ONE, arguments=("why", ORDERS, "--last"), at_most_s=10),
        Command(of=History.ONE, arguments=("why", ORDERS, "--since", seq, "--seq"), at_most_s=None),
        Command(of=History.ONE, arguments=("history", ORDERS, "--since", seq, "--seq"), at_most_s=None),
        Command(of=History.ONE, arguments=("state", ORDERS, "--at", seq, "--seq"), at_most_s=None),
        Command(of=History.SHORT, arguments=("report", ORDERS, "-o", "/dev/null"), at_most_s=2),
    ]


def measure(load: Load, console: Console) -> Results:
    """Measure all figures in one run."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        logs = {"sqlite": [f"sqlite:///{directory}/{name}.db" for name in NAMES]}
        if load.kafka_log:
            broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
            logs["kafka-log"] = [f"kafka://{broker.bootstrap}/events_{name}" for name in NAMES]
        for server, urls in logs.items():
            with console.status(f"{server}: histories of {load.events:,} events"):
                _write(urls, load)
        bare = {server: asyncio.run(_read(urls[0])) for server, urls in logs.items()}
        figures.append(Figure(name="the log alone, read", unit="s", values=bare))
        for command in commands(load):
            with console.status(command.name):
                figures += _figures(command, logs)
    columns = {server: STANDALONE[server] for server in logs}
    return Results(title="Replay", columns=columns, figures=figures, kafka=KAFKA_VERSION)


def _write(urls: Sequence[str], load: Load) -> None:
    template = one_group(rebalances=40)
    many, one, short = (open_log(url) for url in urls)
    others = mixed_groups(one_group(rebalances=2), GROUPS - 1, load.events - WINDOW, rest_ms=MINUTE_MS)
    asyncio.run(write(many, chain(others, _orders(template, WINDOW))))
    for log, events in ((one, load.events), (short, WINDOW)):
        asyncio.run(write(log, _orders(template, events)))


def _orders(template: list[AnyEvent], events: int) -> Iterator[tuple[GroupId, Transition]]:
    return ((ORDERS, transition) for transition in long_group(template, ORDERS, events))


async def _read(url: str) -> float:
    """The seconds that it takes to read the whole log."""
    log: EventLog = open_log(url, read_only=True)
    await log.open()
    started = time.perf_counter()
    for partition in range(log.partitions):
        async for _ in log.read(partition):
            pass
    taken = time.perf_counter() - started
    await log.close()
    return taken


def _figures(command: Command, logs: Mapping[str, Sequence[str]]) -> list[Figure]:
    ran = {server: _run(command.arguments, urls[list(History).index(command.of)]) for server, urls in logs.items()}
    goal = None if command.at_most_s is None else Goal(at_most=command.at_most_s)
    return [
        Figure(name=command.name, unit="s", values={server: each[0] for server, each in ran.items()}, goal=goal),
        Figure(name="... on a core", unit="s", values={server: each[1] for server, each in ran.items()}),
        Figure(
            name="... its memory",
            unit="MB",
            values={server: each[2] for server, each in ran.items()},
            goal=Goal(at_most=MEMORY_MB),
        ),
    ]


_MAIN: Final = """
import sys
import time
from pathlib import Path
from muster.cli import main
try:
    main()
finally:
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    sys.stderr.write(f"{time.process_time()} {line.split()[1]}")
"""
"""Runs `muster`, and at the end prints its CPU time in seconds and its peak memory in KB.

A parent's measurement would include the parent's own memory.
"""


def _run(arguments: Sequence[str], url: str) -> tuple[float, float, float]:
    """The command's elapsed seconds, CPU seconds, and peak memory in MB."""
    line = [sys.executable, "-c", _MAIN, "replay", *arguments, "--log", url]
    if arguments[0] not in ("report", "export"):
        line += ["--format", "jsonl"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    ran = subprocess.run(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True, env=environment
    )
    on_core_s, memory_kb = ran.stderr.split()[-2:]
    return time.perf_counter() - started, float(on_core_s), int(memory_kb) / 1024


# ---- the long form ------------------------------------------------------------------------------


LONG_GROUPS: Final = 10_000
LONG_GROUP: Final = "group-0007"
LONG_COMMANDS: Final = {
    "many": (
        ("groups",),
        ("digest", "--since", "2000-01-01T00:00:00Z"),
        ("why", LONG_GROUP, "--all"),
        ("history", LONG_GROUP),
        ("report", LONG_GROUP, "-o", os.devnull),
        ("state", "--at", "now"),
        ("verify", "--group", LONG_GROUP),
        ("export", "{to}/export.avro"),
        ("export", "{to}/export.avro", "--pseudonyms", "{to}/key"),
    ),
    "one": (
        ("groups",),
        ("why", ORDERS, "--last"),
        ("why", ORDERS, "--since", "{since}", "--seq"),
        ("history", ORDERS, "--since", "{since}", "--seq"),
        ("state", ORDERS, "--at", "{since}", "--seq"),
        ("diff", ORDERS, "{since}", "{last}", "--seq"),
        ("whatif", ORDERS, "--session-timeout", "60s", "--since", "{since}", "--seq"),
        ("report", ORDERS, "-o", os.devnull, "--since", "{since}", "--seq"),
        ("digest", "--since", "2000-01-01T00:00:00Z"),
        ("why", ORDERS, "--all"),
        ("verify",),
        ("history", ORDERS),
        ("export", "{to}/export.avro"),
    ),
}
"""The commands on many groups and on one, those that take longest last."""


def long(
    *,
    events: Annotated[int, typer.Option(help="Events of each of the two logs.")] = 10_000_000,
    logs: Annotated[Path | None, typer.Option(help="A directory for the logs, which are kept there.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of commands; all if none is given.")] = None,
    out: Annotated[Path, typer.Option(help="The directory for JSON and Markdown.")] = Path(__file__).parent / "results",
) -> None:
    """Measure every command of `muster replay` on ten million events: elapsed time, CPU time, memory."""
    console = Console()
    with ExitStack() as stack:
        directory = logs or Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        directory.mkdir(exist_ok=True)
        to = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-export-", dir=directory)))
        (to / "key").write_bytes(os.urandom(32))
        template = one_group(rebalances=2)
        alone = ((ORDERS, transition) for transition in long_group(template, ORDERS, events, rest_ms=HOUR_MS))
        histories = {"many": mixed_groups(template, LONG_GROUPS, events), "one": alone}
        figures: list[Figure] = []
        for name, history in histories.items():
            path = directory / f"{name}.db"
            url = f"sqlite:///{path.absolute()}"
            if not path.exists():
                asyncio.run(write(open_log(url), history))
            for arguments in LONG_COMMANDS[name]:
                if only and arguments[0] not in only:
                    continue
                seqs = {"since": events - WINDOW, "last": events - WINDOW // 2}
                seconds, on_core_s, memory_mb = _run([each.format(to=to, **seqs) for each in arguments], url)
                told = " ".join(each.format(to="DIR", **seqs) for each in arguments)
                command = f"{LONG_GROUPS:,} groups: {told}" if name == "many" else f"one group: {told}"
                figures += [
                    Figure(name=f"{command} (on a core)", unit="s", values={"sqlite": on_core_s}),
                    Figure(name="... by the clock", unit="s", values={"sqlite": seconds}),
                    Figure(
                        name="... its memory",
                        unit="MB",
                        values={"sqlite": memory_mb},
                        goal=Goal(at_most=MEMORY_MB),
                    ),
                ]
                console.print(f"{command}: {on_core_s:.1f} s on a core, {seconds:.1f} s, {memory_mb:.0f} MB")
    results = Results(
        title=f"Replay, {events:,} events",
        columns={"sqlite": STANDALONE["sqlite"]},
        figures=figures,
        kafka=KAFKA_VERSION,
    )
    results.show(console)
    results.write(out, "replay-long")


if __name__ == "__main__":
    typer.run(long)
