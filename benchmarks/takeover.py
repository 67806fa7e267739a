"""The process that coordinates groups is killed: how long they wait for responses, with Muster and with Kafka in one
run.

There are three brokers. Two Muster processes share the partitions of a log there: first standalone, with clients that
know both; then in front of the cluster, once with all clients at the sidecar that is killed, and once with all of them
at a frontend. Finally a broker is killed that coordinates as many of the cluster's own groups.
"""

import secrets
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console

from benchmarks.measuring.groups import TOPIC
from benchmarks.measuring.scaling import PARTITIONS, declare_topic
from benchmarks.measuring.takeovers import Coordinated, Outage, commit, form_at_one, form_through, heartbeat, restart
from benchmarks.results import KAFKA, STANDALONE, Figure, Goal, Results
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from tests.brokers.broker import HOST
from tests.brokers.cluster import Cluster, running_cluster
from tests.muster_process import MusterProcess
from tests.sharing_processes import sharing_process, sharing_sidecar, until_served, until_shared

LOG_PARTITIONS = 50
ASKS = {"heartbeats": heartbeat, "restarts of static members": restart, "commits": commit}
GOALS_MS = {"heartbeats": 500, "commits": 3_000}
SETTINGS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
"""Kafka's defaults: the test brokers have shorter timeouts."""

AT_THE_KILLED, AT_A_FRONTEND = "sidecar", "edge"
COLUMNS = {
    KAFKA: STANDALONE[KAFKA],
    "kafka-log": STANDALONE["kafka-log"],
    AT_THE_KILLED: "Sidecars, clients at the killed one",
    AT_A_FRONTEND: "Sidecars, clients at an edge",
}

Waits = dict[str, list[float]]
"""The wait of each measured group in ms, by kind of request."""


def measure(groups: int, console: Console) -> Results:
    """Measure all figures in one run."""
    waits: dict[str, Waits] = {}
    with running_cluster(settings=SETTINGS) as cluster:
        console.print(f"[dim]{cluster.how}[/]")
        declare_topic(cluster.bootstrap)
        waits["kafka-log"] = _standalone(cluster, groups, console)
        for column in (AT_THE_KILLED, AT_A_FRONTEND):
            waits[column] = _in_front(cluster, groups, console, column=column)
        waits[KAFKA] = _kafka(cluster, groups, console)
    title = f"kill -9 of what coordinates {groups:,} groups of 10, until each has its answer"
    return Results(title=title, columns=COLUMNS, figures=list(_figures(waits)), kafka=cluster.how)


def _standalone(cluster: Cluster, groups: int, console: Console) -> Waits:
    log = f"kafka://{cluster.bootstrap}/__muster_events"
    with ExitStack() as stack:
        processes = {}
        for node_id in (1, 2):
            process = sharing_process(
                log, node_id, partitions=LOG_PARTITIONS, replication=3, topics=[f"{TOPIC}:{PARTITIONS}"]
            )
            running = stack.enter_context(process)
            processes[running.bootstrap] = running
        until_shared(*processes.values(), partitions=LOG_PARTITIONS)
        with console.status(f"forming {groups} groups of 10 static members"):
            formed = uvloop.run(form_at_one(next(iter(processes)), "bench-takeover", groups=groups))
        survivor = next(address for address in processes if address != formed.address)
        with console.status("Muster: the owner is killed"):
            return _waits_ms(processes[formed.address].kill, survivor, formed)


def _in_front(cluster: Cluster, groups: int, console: Console, *, column: str) -> Waits:
    log = f"kafka://{cluster.bootstrap}/muster-{column}"
    with ExitStack() as stack:
        secret = Path(stack.enter_context(TemporaryDirectory())) / "secret"
        secret.write_text(secrets.token_hex(32))

        def sidecar(node_id: int, *more: str) -> MusterProcess:
            options = ["--metrics", f"{HOST}:0", *more]
            process = sharing_sidecar(
                cluster.bootstrap,
                log,
                node_id,
                secret=secret,
                partitions=LOG_PARTITIONS,
                replication=3,
                options=options,
            )
            return stack.enter_context(process)

        killed, other = sidecar(1), sidecar(2)
        until_shared(killed, other, partitions=LOG_PARTITIONS)
        at = killed if column == AT_THE_KILLED else sidecar(3, "--role", "edge")
        survivor = other if column == AT_THE_KILLED else at
        until_served(killed, other, at)
        owned = killed.events("partitions shared")[-1]["ours"]
        candidates = (f"bench-{column}-{number}" for number in count())
        group_ids = (each for each in candidates if partition_for(GroupId(each), LOG_PARTITIONS) in owned)
        with console.status(f"forming {groups} groups of 10 static members through a sidecar"):
            formed = uvloop.run(form_through(at.bootstrap, list(islice(group_ids, groups))))
        with console.status(f"{COLUMNS[column]}: the owner is killed"):
            return _waits_ms(killed.kill, survivor.bootstrap, formed)


def _kafka(cluster: Cluster, groups: int, console: Console) -> Waits:
    brokers = {cluster.address(node): node for node in cluster.nodes}
    with console.status(f"forming {groups} groups of 10 static members on Kafka"):
        formed = uvloop.run(form_at_one(next(iter(brokers)), "bench-takeover", groups=groups))
    survivor = next(address for address in brokers if address != formed.address)
    with console.status("Kafka: the broker that coordinates is killed"):
        return _waits_ms(lambda: cluster.kill(brokers[formed.address]), survivor, formed)


def _waits_ms(kill: Callable[[], None], survivor: str, coordinated: Coordinated) -> Waits:
    since_s = time.perf_counter()
    kill()
    return uvloop.run(Outage(survivor, coordinated).waits_ms(ASKS, since_s=since_s))


def _figures(waits: dict[str, Waits]) -> list[Figure]:
    figures = []
    for kind in ASKS:
        goal = Goal(at_most=GOALS_MS[kind]) if kind in GOALS_MS else None
        longest = {server: max(of_server[kind]) for server, of_server in waits.items()}
        median = {server: statistics.median(of_server[kind]) for server, of_server in waits.items()}
        figures += [
            Figure(name=f"{kind}, the longest wait", unit="ms", values=longest, goal=goal),
            Figure(name=f"{kind}, p50", unit="ms", values=median),
        ]
    return figures
