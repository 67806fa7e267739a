"""The process that coordinates groups is killed: how long they wait for answers, Muster beside Kafka in one run.

The brokers are three. Muster is two processes that share the partitions of a log there, and their clients know both.
First one of them is killed, then the broker that coordinates as many groups of the cluster's own.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import uvloop
from rich.console import Console

from benchmarks.measuring.groups import TOPIC
from benchmarks.measuring.scaling import PARTITIONS, declare_topic
from benchmarks.measuring.takeovers import Coordinated, Outage, commit, form_at_one, heartbeat, restart
from benchmarks.results import KAFKA, STANDALONE, Figure, Goal, Results
from tests.brokers.cluster import running_cluster
from tests.sharing_processes import sharing_process, until_shared

LOG_PARTITIONS = 50
ASKS = {"heartbeats": heartbeat, "restarts of static members": restart, "commits": commit}
GOALS_MS = {"heartbeats": 500, "commits": 3_000}
SETTINGS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
"""Kafka's defaults: the test brokers miss each other sooner."""


def measure(groups: int, console: Console) -> Results:
    """All figures, in one run."""
    waits: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(settings=SETTINGS))
        console.print(f"[dim]{cluster.how}[/]")
        declare_topic(cluster.bootstrap)
        log = f"kafka://{cluster.bootstrap}/__muster_events"
        processes = {}
        for node_id in (1, 2):
            process = sharing_process(
                log, node_id, partitions=LOG_PARTITIONS, replication=3, topics=[f"{TOPIC}:{PARTITIONS}"]
            )
            running = stack.enter_context(process)
            processes[running.bootstrap] = running
        until_shared(*processes.values(), partitions=LOG_PARTITIONS)
        brokers = {cluster.address(node): node for node in cluster.nodes}

        with console.status(f"forming {groups} groups of 10 static members, on each"):
            on_muster = uvloop.run(form_at_one(next(iter(processes)), "bench-takeover", groups=groups))
            on_kafka = uvloop.run(form_at_one(next(iter(brokers)), "bench-takeover", groups=groups))
        with console.status("Muster: the owner is killed"):
            survivor = next(address for address in processes if address != on_muster.address)
            waits["kafka-log"] = _waits_ms(processes[on_muster.address].kill, survivor, on_muster)
        with console.status("Kafka: the broker that coordinates is killed"):
            survivor = next(address for address in brokers if address != on_kafka.address)
            waits[KAFKA] = _waits_ms(lambda: cluster.kill(brokers[on_kafka.address]), survivor, on_kafka)
    columns = {server: STANDALONE[server] for server in (KAFKA, "kafka-log")}
    title = f"kill -9 of what coordinates {groups:,} groups of 10, until each has its answer"
    return Results(title=title, columns=columns, figures=list(_figures(waits)), kafka=cluster.how)


def _waits_ms(kill: Callable[[], None], survivor: str, coordinated: Coordinated) -> dict[str, list[float]]:
    since_s = time.perf_counter()
    kill()
    return uvloop.run(Outage(survivor, coordinated).waits_ms(ASKS, since_s=since_s))


def _figures(waits: dict[str, dict[str, list[float]]]) -> list[Figure]:
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
