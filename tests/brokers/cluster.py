"""A real cluster of several brokers, each of which can be killed, stopped and restarted.

Each node is a plain process, broker and controller in one, so any one of three may be down and the cluster continues.
They are formatted and started in parallel. Internal topics have a replica on each node, and two of them must be in
sync. Only plain processes: containers would need their own network for the controllers, without any advantage.

    with running_cluster() as cluster:
        print(cluster.bootstrap, cluster.address(2))
        cluster.kill(2)
        cluster.wait_until_brokers_are({1, 3})
        cluster.start(2)
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.brokers.broker import BrokerFailed, Node, PortTaken, lasting_ports
from tests.brokers.child import only_child_of, signal_group
from tests.brokers.process import (
    NO_SECURITY,
    PreparedBroker,
    Security,
    format_storage,
    new_cluster_id,
    written_broker,
)
from tests.brokers.readiness import node_ids_named_by

STARTS: Final = 3
STOP_TIMEOUT_S: Final = 60
SEEN_WITHIN_S: Final = 120
CHECK_INTERVAL_S: Final = 0.05

# Several brokers share one small machine: little memory, few threads, and no optimising compiler.
JVM_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# A killed broker is noticed after 3 s instead of 9, and loses all its leaderships then.
CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


def replicated(replicas: int) -> dict[str, str]:
    """Settings with which all topics have `replicas` replicas, all but one of which must be in sync."""
    factor, in_sync = str(replicas), str(max(1, replicas - 1))
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


class Cluster:
    """See the module. All nodes run at first."""

    def __init__(self, prepared: Mapping[int, PreparedBroker]) -> None:
        self._prepared = prepared
        self._held: dict[int, tuple[AbstractContextManager[subprocess.Popen[bytes]], subprocess.Popen[bytes]]] = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return tuple(self._prepared)

    @property
    def serving(self) -> frozenset[int]:
        """The ids of the running nodes."""
        return frozenset(self._held)

    @property
    def bootstrap(self) -> str:
        """`host:port` of each node, separated by commas, in the clients' form; unchanged by restarts."""
        return self.bootstrap_of("PLAINTEXT")

    def bootstrap_of(self, listener: str) -> str:
        """The same for another listener."""
        return ",".join(self.address(node, listener=listener) for node in self.nodes)

    @property
    def how(self) -> str:
        """One sentence: what is used."""
        (first, *_) = self._prepared.values()
        return f"{len(self.nodes)} nodes of {first.how}"

    def address(self, node: int, *, listener: str = "PLAINTEXT") -> str:
        """`host:port` of one node, unchanged by restarts."""
        return self._prepared[node].node.address(listener)

    def said(self, node: int) -> str:
        """The log of one node so far."""
        return self._prepared[node].log.read_text(encoding="utf-8", errors="replace")

    def start(self, *nodes: int) -> None:
        """Start these nodes in parallel, and wait until all running nodes know each other. Raises `BrokerFailed`."""
        for node in nodes:
            assert node not in self._held
            running = self._prepared[node].running()
            self._held[node] = (running, running.__enter__())
        for node in nodes:
            self._prepared[node].wait_until_answering(self._held[node][1])
        self.wait_until_brokers_are(self.serving)

    def kill(self, node: int) -> None:
        """Kill it with SIGKILL, and wait until it has ended; the others have not noticed yet."""
        running, _ = self._held.pop(node)
        running.__exit__(None, None, None)

    def pause(self, node: int) -> None:
        """Make it hang: the kernel accepts connections and requests for it, but it does not respond. Linux only."""
        _, leash = self._held[node]
        os.kill(only_child_of(leash.pid), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Resume it."""
        _, leash = self._held[node]
        os.kill(only_child_of(leash.pid), signal.SIGCONT)

    def stop(self, node: int) -> None:
        """Stop it cleanly: it hands over its leaderships first. Waits until it has ended."""
        _, leash = self._held[node]
        signal_group(leash, signal.SIGTERM)
        try:
            leash.wait(timeout=STOP_TIMEOUT_S)
        finally:
            self.kill(node)

    def end(self) -> None:
        """Leave nothing behind."""
        for node in self.serving:
            self.kill(node)

    def wait_until_brokers_are(self, nodes: Collection[int], *, within_s: float = SEEN_WITHIN_S) -> None:
        """Return when each running node lists exactly these brokers in Metadata. Raises `BrokerFailed`."""
        deadline = time.monotonic() + within_s
        wanted = {node: set(nodes) for node in self.serving}
        while (named := self._named()) != wanted:
            if time.monotonic() >= deadline:
                raise BrokerFailed(f"after {within_s:.0f} s the brokers of Metadata are {named}, not {set(nodes)}")
            time.sleep(CHECK_INTERVAL_S)

    def _named(self) -> dict[int, set[int]]:
        return {node: self._named_by(node) for node in self.serving}

    def _named_by(self, node: int) -> set[int]:
        try:
            return node_ids_named_by(self.address(node))
        except OSError:  # it has no connection left, or has just ended by itself
            return set()


@contextmanager
def running_cluster(
    brokers: int = 3,
    *,
    node_ids: Sequence[int] | None = None,
    settings: Mapping[str, str] | None = None,
    security: Security = NO_SECURITY,
    jvm_options: tuple[str, ...] = JVM_OPTIONS,
) -> Iterator[Cluster]:
    """A cluster that responds, while the block lasts.

    `node_ids` are 1 to `brokers` by default. `settings` are each broker's own, over the test settings. Raises
    `BrokerFailed` with the end of the log of the broker that failed.
    """
    ids = tuple(range(1, brokers + 1)) if node_ids is None else tuple(node_ids)
    own = {**CLUSTER_SETTINGS, **replicated(len(ids)), **(settings or {})}
    with ExitStack() as stack:
        for _ in range(STARTS - 1):
            try:
                cluster = _started(stack, ids, own, security, jvm_options)
                break
            except PortTaken:
                stack.close()
        else:
            cluster = _started(stack, ids, own, security, jvm_options)
        yield cluster


def _started(
    stack: ExitStack, ids: Sequence[int], settings: Mapping[str, str], security: Security, jvm_options: tuple[str, ...]
) -> Cluster:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-kafka-cluster-")))
    nodes = _addressed(ids, security)
    prepared = {}
    for node in nodes:
        directory = scratch / str(node.node_id)
        directory.mkdir()
        prepared[node.node_id] = written_broker(
            node, directory, settings=settings, voters=nodes, security=security, jvm_options=jvm_options
        )
    _format_all(list(prepared.values()), security)
    cluster = Cluster(prepared)
    stack.callback(cluster.end)
    cluster.start(*ids)
    return cluster


def _addressed(ids: Sequence[int], security: Security) -> list[Node]:
    ports = iter(lasting_ports(len(ids) * (1 + len(security.protocols))))
    return [
        Node(node_id=node_id, ports={name: next(ports) for name in security.protocols}, controller_port=next(ports))
        for node_id in ids
    ]


def _format_all(prepared: Sequence[PreparedBroker], security: Security) -> None:
    cluster_id = new_cluster_id()

    def format_one(each: PreparedBroker) -> None:
        format_storage(each, cluster_id=cluster_id, arguments=security.format_arguments)

    with ThreadPoolExecutor(len(prepared)) as pool:
        list(pool.map(format_one, prepared))
