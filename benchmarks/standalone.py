"""Muster standalone: all servers run with the same load, and each figure is measured on one after another."""

import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.groups import TOPIC, Member
from benchmarks.measuring.heartbeats import flood, form_groups, one_at_a_time
from benchmarks.measuring.joins import JoiningGroup
from benchmarks.measuring.loading import projection_rates, restart
from benchmarks.measuring.scaling import PARTITIONS, declare_topic, rebalances_of_scaling
from benchmarks.results import STANDALONE, Figure, Goal, Results
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.muster_process import running_muster, sqlite_log

CONFIG = {"group.initial.rebalance.delay.ms": "50"}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the load, as in the command-line options."""

    seconds: float
    rounds: int
    groups: int
    loaded_groups: int
    kafka_log: bool


def measure(load: Load, console: Console) -> Results:
    """Measure all figures in one run."""
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
        console.print(f"[dim]{broker.how}[/]")
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        servers = {"kafka": broker.bootstrap}
        topics = [f"{TOPIC}:{PARTITIONS}"]
        on_sqlite = stack.enter_context(running_muster(log=sqlite_log(directory), topics=topics, config=CONFIG))
        servers["sqlite"] = on_sqlite.bootstrap
        if load.kafka_log:
            log = f"kafka://{broker.bootstrap}/__muster_events"
            on_kafka = stack.enter_context(running_muster(log=log, topics=topics, config=CONFIG))
            servers["kafka-log"] = on_kafka.bootstrap
        run = _Run(console)
        figures = run.scaling_figures(servers)
        figures += uvloop.run(run.live_figures(servers, load))
    figures += run.offline_figures(groups=load.loaded_groups)
    columns = {server: title for server, title in STANDALONE.items() if server != "kafka-log" or load.kafka_log}
    return Results(
        title="Muster beside Kafka, one run, one machine", columns=columns, figures=figures, kafka=broker.how
    )


class _Run:
    def __init__(self, console: Console) -> None:
        self._console = console

    async def live_figures(self, servers: dict[str, str], load: Load) -> list[Figure]:
        """The figures that are measured on running servers."""
        figures = []
        for kind in ("dynamic", "static"):
            members: dict[str, list[Member]] = {}
            for name, bootstrap in servers.items():
                with self._console.status(f"{name}: forming {load.groups} groups of 10 {kind} members"):
                    members[name] = await form_groups(
                        bootstrap, f"bench-{kind}", groups=load.groups, size=10, static=kind == "static"
                    )
            figures += await self.heartbeat_figures(servers, members, kind, load.seconds)
        for kind in ("dynamic", "static"):
            figures.append(await self.join_figure(servers, kind, load.rounds))
        return figures

    async def heartbeat_figures(
        self, servers: dict[str, str], members: dict[str, list[Member]], kind: str, seconds: float
    ) -> list[Figure]:
        flooded: dict[str, float] = {}
        spread: dict[str, float] = {}
        latencies: dict[str, list[float]] = {}
        for name, bootstrap in servers.items():
            with self._console.status(f"{name}: heartbeats of {kind} members"):
                flooded[name] = await flood(bootstrap, members[name], connections=8, window=64, seconds=seconds)
                spread[name] = await flood(bootstrap, members[name], connections=200, window=1, seconds=seconds)
                latencies[name] = await one_at_a_time(bootstrap, members[name], count=int(2_000 * seconds))
        p99 = {name: statistics.quantiles(values, n=100)[98] for name, values in latencies.items()}
        p50 = {name: statistics.median(values) for name, values in latencies.items()}
        return [
            Figure(name=f"heartbeats, {kind}, 8 x 64 in flight", unit="1/s", values=flooded, goal=Goal(times_kafka=8)),
            Figure(
                name=f"heartbeats, {kind}, 200 x 1 in flight", unit="1/s", values=spread, goal=Goal(times_kafka=1.5)
            ),
            Figure(name=f"one heartbeat, {kind}, p50", unit="ms", values=p50, goal=Goal(within_kafka=1)),
            Figure(name=f"one heartbeat, {kind}, p99", unit="ms", values=p99, goal=Goal(within_kafka=1)),
        ]

    async def join_figure(self, servers: dict[str, str], kind: str, rounds: int) -> Figure:
        joining = {
            name: JoiningGroup(at, f"bench-join-{kind}", static=kind == "static") for name, at in servers.items()
        }
        taken: dict[str, list[float]] = {name: [] for name in servers}
        with self._console.status(f"an 11th {kind} member joins"):
            for group in joining.values():
                await group.form()
            for number in range(rounds + 3):
                for name, group in joining.items():
                    elapsed_ms = await group.round()
                    if number >= 3:
                        taken[name].append(elapsed_ms)
        medians = {name: statistics.median(values) for name, values in taken.items()}
        return Figure(name=f"an 11th member joins, {kind}, p50", unit="ms", values=medians, goal=Goal(within_kafka=1))

    def scaling_figures(self, servers: dict[str, str]) -> list[Figure]:
        """Rebalances of real consumers; on Muster the change is announced."""
        grown: dict[str, float] = {}
        shrunk: dict[str, float] = {}
        declare_topic(servers["kafka"])
        for name, bootstrap in servers.items():
            with self._console.status(f"{name}: a group of 8 grows to 16 and shrinks again"):
                grown[name], shrunk[name] = rebalances_of_scaling(bootstrap, "bench-scaling", announced=name != "kafka")
        return [
            Figure(name="8 members become 16, announced", unit="rebalances", values=grown, goal=Goal(at_most=1)),
            Figure(name="16 members become 8, announced", unit="rebalances", values=shrunk, goal=Goal(at_most=1)),
        ]

    def offline_figures(self, *, groups: int) -> list[Figure]:
        """Reading logs, which cannot be compared with Kafka."""
        with self._console.status("projecting a log"):
            loaded, fed, events = projection_rates(groups=max(1, groups // 20), rounds=3)
        with self._console.status(f"restarting on {groups} groups of 10"):
            ready_s, reading_s, records, per_member = restart(groups=groups)
        return [
            Figure(
                name=f"takeover of {events:,} events",
                unit="1/s",
                values={"sqlite": loaded},
                goal=Goal(at_least=150_000),
            ),
            Figure(name="... each of them decoded", unit="1/s", values={"sqlite": fed}, goal=Goal(at_least=150_000)),
            Figure(
                name=f"start on {groups:,} groups of 10 ({records:,} records)",
                unit="s",
                values={"sqlite": ready_s},
                goal=Goal(at_most=3),
            ),
            Figure(name="... of it reading the log", unit="s", values={"sqlite": reading_s}, goal=Goal(at_most=3)),
            Figure(name="memory of a member", unit="bytes", values={"sqlite": per_member}, goal=Goal(at_most=2_048)),
        ]
