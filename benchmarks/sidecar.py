"""The sidecar compared with Kafka itself and other proxies: the paths take turns, and the median of the turns counts.

All are in front of one broker. Group ids differ by path, since otherwise another path would own the group.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.groups import Member
from benchmarks.measuring.heartbeats import flood as heartbeats
from benchmarks.measuring.heartbeats import form_groups
from benchmarks.measuring.joins import JoiningGroup
from benchmarks.measuring.pings import FETCH, PRODUCE, mean_ms
from benchmarks.measuring.populous import idle_connections, populate
from benchmarks.measuring.processes import resident_bytes
from benchmarks.measuring.proxies import NotToBeHad, kafka_proxy
from benchmarks.measuring.relaying import MB, Moved, Way, drain, flood, topic
from benchmarks.results import KAFKA, SIDECAR, Figure, Goal, Results
from tests.brokers.broker import MEASURED_JVM_OPTIONS, lasting_ports
from tests.brokers.choice import running_broker
from tests.muster_process import MusterProcess, running_muster

CONFIG = {"group.initial.rebalance.delay.ms": "50"}
GATHERING = {"group.initial.rebalance.delay.ms": "500"}
"""Settings for the many members, so that a group of a hundred is formed in one rebalance."""
PING_TURNS = 60
PINGS = 200
UNCOUNTED_ROUNDS = 3

T = TypeVar("T")
Measurements = dict[str, list[float]]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the load, as in the command-line options."""

    seconds: float
    rounds: int
    groups: int
    turns: int
    records: int
    members: int
    connections: int


def measure(load: Load, console: Console) -> Results:
    """Measure all figures in one run."""
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
        console.print(f"[dim]{broker.how}[/]")
        run = _Run(broker.bootstrap, load, console)
        with running_sidecar(broker.bootstrap, CONFIG) as sidecar:
            ways = [
                Way(name=KAFKA, bootstrap=broker.bootstrap),
                Way(name="sidecar", bootstrap=sidecar.bootstrap, pid=sidecar.pid),
            ]
            figures = uvloop.run(run.group_figures({way.name: way.bootstrap for way in ways}))
            ways += others(broker.bootstrap, stack, left_out, console)
            figures = run.relay_figures(ways) + figures
        figures += run.memory_figures()
    columns = {**SIDECAR, **{way.name: f"through {way.name}" for way in ways if way.name not in SIDECAR}}
    return Results(
        title="Through the sidecar, beside Kafka itself",
        columns=columns,
        figures=figures,
        kafka=broker.how,
        left_out=left_out,
    )


@contextmanager
def running_sidecar(broker: str, config: Mapping[str, str]) -> Iterator[MusterProcess]:
    """Run a sidecar in front of this broker, which also has its event log."""
    (base_port,) = lasting_ports(1)
    options = ["--upstream", broker, "--broker-base-port", str(base_port), "--log-replication", "1"]
    with running_muster(log=f"kafka://{broker}/__muster_events", config=config, options=options) as muster:
        yield muster


def others(broker: str, stack: ExitStack, left_out: dict[str, str], console: Console) -> list[Way]:
    """The other proxy, if it is available; otherwise that is reported, and noted in the results."""
    try:
        with console.status("getting kafka-proxy"):
            return [stack.enter_context(kafka_proxy(broker))]
    except NotToBeHad as error:
        left_out["kafka-proxy"] = str(error)
        console.print(f"[bold red]kafka-proxy is left out:[/] {error}", highlight=False)
        return []


class _Run:
    def __init__(self, broker: str, load: Load, console: Console) -> None:
        self._broker = broker
        self._load = load
        self._console = console

    # ---- bytes ---------------------------------------------------------------------------------------

    def relay_figures(self, ways: Sequence[Way]) -> list[Figure]:
        """One request at a time, then floods by Kafka's own tools, on each path in turn."""
        with topic(self._broker, "bench-pings") as pinged, self._console.status("one request at a time"):
            latencies = {request: _pings(ways, request, pinged) for request in (PRODUCE, FETCH)}
        for (name, _), each in latencies.items():
            self._tell(f"{name}, one at a time, median of {PING_TURNS} turns", 0, each)
        produced = self._in_turn(ways, "producing", self._flood)
        with topic(self._broker, "bench-consumed") as full:
            flood(ways[0], full, records=self._load.records)
            consumed = self._in_turn(
                ways,
                "consuming",
                lambda way, turn: drain(
                    way, full, records=self._load.records, group_id=f"bench-consumers-{way.name}-{turn}"
                ),
            )
        return [
            *(
                Figure(
                    name=f"{name.lower()} 1 KB, one request at a time, mean latency",
                    unit="ms",
                    values=each,
                    goal=Goal(over_kafka=0.1),
                )
                for (name, _), each in latencies.items()
            ),
            *_rates("produce", produced),
            *_rates("consume", consumed),
        ]

    def _flood(self, way: Way, turn: int) -> Moved:
        with topic(self._broker, f"bench-produced-{way.name}-{turn}") as to:
            return flood(way, to, records=self._load.records)

    def _in_turn(self, ways: Sequence[Way], what: str, step: Callable[[Way, int], T]) -> dict[str, list[T]]:
        told: dict[str, list[T]] = {way.name: [] for way in ways}
        for turn in range(self._load.turns):
            for way in ways:
                with self._console.status(f"{way.name}: {what}, turn {turn + 1}"):
                    told[way.name].append(step(way, turn))
            self._tell(what, turn, {name: each[-1] for name, each in told.items()})
        return told

    def _tell(self, what: str, turn: int, told: Mapping[str, object]) -> None:
        each = ", ".join(
            f"{name} {value:,.2f}" if isinstance(value, float) else f"{name} {value}" for name, value in told.items()
        )
        self._console.print(f"[dim]{what}, turn {turn + 1}: {each}[/]", highlight=False)

    # ---- groups --------------------------------------------------------------------------------------

    async def group_figures(self, servers: Mapping[str, str]) -> list[Figure]:
        """Heartbeats and rebalances, without other proxies, which leave groups to the broker."""
        members: dict[str, list[Member]] = {}
        for name, bootstrap in servers.items():
            with self._console.status(f"{name}: forming {self._load.groups} groups of 10"):
                members[name] = await form_groups(
                    bootstrap, f"bench-{name}", groups=self._load.groups, size=10, static=False
                )
        flooded = await self._heartbeats(servers, members, connections=8, window=64)
        spread = await self._heartbeats(servers, members, connections=200, window=1)
        joined = await self._joins(servers)
        return [
            Figure(name="heartbeats, 8 x 64 in flight", unit="1/s", values=flooded, goal=Goal(times_kafka=6)),
            Figure(name="heartbeats, 200 x 1 in flight", unit="1/s", values=spread, goal=Goal(times_kafka=1.5)),
            Figure(name="an 11th member joins, p50", unit="ms", values=joined, goal=Goal(over_kafka=5)),
        ]

    async def _heartbeats(
        self, servers: Mapping[str, str], members: Mapping[str, Sequence[Member]], *, connections: int, window: int
    ) -> dict[str, float]:
        rates: Measurements = {name: [] for name in servers}
        for turn in range(self._load.turns):
            for name, bootstrap in servers.items():
                with self._console.status(f"{name}: heartbeats, {connections} x {window} in flight, turn {turn + 1}"):
                    rate = await heartbeats(
                        bootstrap,
                        members[name],
                        connections=connections,
                        window=window,
                        seconds=self._load.seconds / self._load.turns,
                    )
                rates[name].append(rate)
            what = f"heartbeats, {connections} x {window} in flight"
            self._tell(what, turn, {name: each[-1] for name, each in rates.items()})
        return _medians(rates)

    async def _joins(self, servers: Mapping[str, str]) -> dict[str, float]:
        groups = {name: JoiningGroup(at, f"bench-join-{name}", static=False) for name, at in servers.items()}
        taken: Measurements = {name: [] for name in servers}
        with self._console.status("an 11th member joins"):
            for group in groups.values():
                await group.form()
            for number in range(self._load.rounds + UNCOUNTED_ROUNDS):
                for name, group in groups.items():
                    elapsed_ms = await group.round()
                    if number >= UNCOUNTED_ROUNDS:
                        taken[name].append(elapsed_ms)
        return _medians(taken)

    # ---- memory --------------------------------------------------------------------------------------

    def memory_figures(self) -> list[Figure]:
        """The memory of sidecars that do nothing else."""
        members, connections = self._load.members, self._load.connections
        with running_sidecar(self._broker, GATHERING) as sidecar:
            empty = resident_bytes(sidecar.pid) / MB
            with self._console.status(f"{members:,} members join"):
                joined = uvloop.run(populate(sidecar.bootstrap, "bench-many", members=members))
            full = resident_bytes(sidecar.pid) / MB
        with running_sidecar(self._broker, CONFIG) as sidecar, self._console.status(f"{connections:,} connections"):
            idle = uvloop.run(_with_idle_connections(sidecar, connections)) / MB
        return [
            Figure(name="memory, nobody there", unit="MB", values={"sidecar": empty}),
            Figure(name=f"memory, {joined:,} members", unit="MB", values={"sidecar": full}, goal=Goal(at_most=300)),
            Figure(
                name=f"memory, {connections:,} idle connections",
                unit="MB",
                values={"sidecar": idle},
                goal=Goal(at_most=200),
            ),
        ]


async def _with_idle_connections(sidecar: MusterProcess, count: int) -> int:
    links = await idle_connections(sidecar.bootstrap, count)
    resident = resident_bytes(sidecar.pid)
    for link in links:
        link.close()
    return resident


def _pings(ways: Sequence[Way], request: tuple[str, int], topic: str) -> dict[str, float]:
    """Many short turns, since other load on the machine changes from one second to the next."""
    taken: Measurements = {way.name: [] for way in ways}
    for _ in range(PING_TURNS):
        for way in ways:
            taken[way.name].append(mean_ms(way, request, topic, count=PINGS))
    return _medians(taken)


def _rates(what: str, moved: Mapping[str, Sequence[Moved]]) -> list[Figure]:
    rates = {name: [each.mb_per_s for each in turns] for name, turns in moved.items()}
    per_cpu_s = {
        name: [each.mb_per_cpu_s for each in turns if each.mb_per_cpu_s is not None] for name, turns in moved.items()
    }
    return [
        Figure(
            name=f"{what}, records of 1 KB, flooded",
            unit="MB/s",
            values=_medians(rates),
            goal=Goal(part_of_kafka=0.85),
        ),
        Figure(
            name="... for each second the relay was on a core",
            unit="MB",
            values=_medians(per_cpu_s),
            goal=Goal(times_others=1),
        ),
    ]


def _medians(turns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in turns.items() if values}
