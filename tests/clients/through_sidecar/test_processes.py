"""Several processes of one host at one address: they look like one sidecar, and survive each other's end."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.coordinator.processes.held_addresses import TAKEN
from tests.brokers.broker import HOST, Broker, lasting_base, lasting_ports
from tests.brokers.child import leashed, only_child_of
from tests.clients.consumers import Confluent
from tests.clients.crew import crew
from tests.clients.through_sidecar.sidecar import assert_is_owned, new_topic
from tests.conformance.wire import Connection, Fields
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import WITHIN_S, until, until_so

pytestmark = [pytest.mark.clients, pytest.mark.broker]

FRONTENDS = 2
CONNECTIONS = 20
"""For each address: the kernel gives each frontend some of them."""


@contextmanager
def several(broker: Broker, name: str, *more: str) -> Iterator[tuple[MusterProcess, int]]:
    """A supervisor, and its metrics port. `more`: options."""
    (listen, metrics), base = lasting_ports(2), lasting_base()
    options = ["--listen", f"{HOST}:{listen}", "--upstream", broker.bootstrap, "--broker-base-port", str(base)]
    options += ["--processes", str(FRONTENDS), "--metrics", f"{HOST}:{metrics}", "--log-replication", "1"]
    with running_muster(log=f"kafka://{broker.bootstrap}/{name}", options=[*options, *more]) as muster:
        yield muster, metrics


def fetch(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def is_ready(port: int) -> bool:
    try:
        return fetch(port, "/readyz") == "ready\n"
    except OSError:
        return False


def members_told(port: int) -> float:
    """The members of all processes' groups, as the metrics of all tell it."""
    families = text_string_to_metric_families(fetch(port, "/metrics"))
    return sum(sample.value for family in families if family.name == "muster_members" for sample in family.samples)


def roles(supervisor: int) -> dict[str, int]:
    """The pids of the processes, by role and number."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="ascii").split()
    found = {}
    for pid in map(int, children):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if "--role" in line:  # otherwise it has only just started
            found[f"{line[line.index('--role') + 1]}-{line[line.index('--node-id') + 1]}"] = pid
    return found


def test_a_group_is_served_by_all_and_an_edge_that_dies_is_started_again(kafka_broker: Broker) -> None:
    """Its members keep their place; the metrics are those of all; SIGTERM ends all cleanly."""
    with several(kafka_broker, f"several-{os.getpid()}") as (muster, metrics):
        until_so(lambda: is_ready(metrics), lambda: muster.output[-2_000:])
        with crew(muster, Confluent, new_topic(kafka_broker.bootstrap)) as group:
            group.add("one")
            group.add("two")
            group.until_shared()
            assert_is_owned(kafka_broker.bootstrap, group.group_id)
            generation, assignments = group.generation, group.assignments
            until_so(lambda: members_told(metrics) == 2, lambda: fetch(metrics, "/metrics"))
            before = roles(muster.pid)
            assert len(before) == 1 + FRONTENDS
            frontend = next(pid for name, pid in before.items() if name.startswith("edge"))
            os.kill(frontend, signal.SIGKILL)
            muster.wait_for_event("process ended, restarting it")
            until_so(
                lambda: len(roles(muster.pid)) == 1 + FRONTENDS and is_ready(metrics), lambda: muster.output[-2_000:]
            )
            group.until_shared()
            assert (group.generation, group.assignments) == (generation, assignments)
        assert muster.stop() == 0


def test_a_client_that_connects_while_an_edge_is_dead_is_answered(kafka_broker: Broker) -> None:
    """At the bootstrap address and at a broker's, by its successor if the kernel has chosen that: none is reset."""
    with several(kafka_broker, f"several-{os.getpid()}-dead") as (muster, metrics):
        until_so(lambda: is_ready(metrics), lambda: muster.output[-2_000:])
        addresses = [muster.bootstrap, asyncio.run(broker_behind(muster.bootstrap))]
        frontend = next(pid for name, pid in roles(muster.pid).items() if name.startswith("edge"))

        async def scene() -> None:
            os.kill(frontend, signal.SIGKILL)
            await until(lambda: not lives(frontend))
            await asyncio.gather(*(brokers_told(address) for address in addresses * CONNECTIONS))

        asyncio.run(scene())
        assert len(muster.events("process ended, restarting it")) == 1


async def brokers_told(bootstrap: str) -> list[Fields]:
    """The brokers in the Metadata response, however long that takes, on a connection that must stay open."""
    connection = await Connection.open(bootstrap)
    pending = connection.send("Metadata", 1, topics=[])
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                with suppress(TimeoutError):
                    brokers: list[Fields] = (await pending.get())["brokers"]
                    return brokers
    finally:
        connection.close()


async def broker_behind(bootstrap: str) -> str:
    """The address of a broker's listener."""
    (broker,) = await brokers_told(bootstrap)
    return f"{broker['host']}:{broker['port']}"


def test_two_hosts_with_one_node_id_do_not_end_each_other_in_turn(kafka_broker: Broker, tmp_path: Path) -> None:
    """All of the first one end, log the reason, and are not restarted; the second one serves."""
    secret, name = tmp_path / "secret", f"twins-{os.getpid()}"
    secret.write_text("0" * 32, encoding="ascii")
    shared = ["--share-partitions", "--node-id", "1", "--peer-secret-file", str(secret), "--peer-listen"]
    peers = [f"{HOST}:{port}" for port in lasting_ports(2)]
    with several(kafka_broker, name, *shared, peers[0]) as (first, metrics):
        until_so(lambda: is_ready(metrics), lambda: first.output[-2_000:])
        with several(kafka_broker, name, *shared, peers[1]) as (second, metrics_of_second):
            assert first.wait() == 2
            assert "give each process of a log its own --node-id" in first.output
            until_so(lambda: is_ready(metrics_of_second), lambda: second.output[-2_000:])
            assert second.stop() == 0


def test_all_end_when_their_supervisor_is_killed(kafka_broker: Broker) -> None:
    """They stop cleanly, so that clients find none of them."""
    with several(kafka_broker, f"several-{os.getpid()}-orphans") as (muster, metrics):
        until_so(lambda: is_ready(metrics), lambda: muster.output[-2_000:])
        pids = [muster.pid, *roles(muster.pid).values()]
        os.kill(muster.pid, signal.SIGKILL)
        until_so(lambda: not any(map(lives, pids)), lambda: muster.output[-2_000:])


def test_a_supervisor_is_started_again_while_the_processes_of_the_one_that_was_killed_stop(
    kafka_broker: Broker,
) -> None:
    """It waits for their addresses, and then serves; an address in use by another program leads to an error in
    the end.
    """
    with several(kafka_broker, f"several-{os.getpid()}-again") as (muster, metrics):
        until_so(lambda: is_ready(metrics), lambda: muster.output[-2_000:])
        left = roles(muster.pid)
        os.kill(left["edge-1000001"], signal.SIGSTOP)  # it keeps its address for longer
        muster.kill()
        go_on = Timer(3.0, os.kill, [left["edge-1000001"], signal.SIGCONT])
        go_on.start()
        muster.start()
        assert muster.events(TAKEN)
        until_so(lambda: is_ready(metrics), lambda: muster.output[-2_000:])
        assert not any(map(lives, left.values()))
        go_on.join()


def test_as_pid_1_of_a_container_it_stops_on_request_and_leaves_no_zombies(kafka_broker: Broker) -> None:
    """SIGTERM ends all cleanly; orphans of other processes are reaped, too."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine has no namespaces for us: it was not tried as the first process of a container")
    (listen, metrics), base = lasting_ports(2), lasting_base()
    command = [*unshare, sys.executable, "-m", "muster", "serve", "--listen", f"{HOST}:{listen}"]
    command += ["--upstream", kafka_broker.bootstrap, "--broker-base-port", str(base), "--processes", "2"]
    command += ["--log", f"kafka://{kafka_broker.bootstrap}/several-{os.getpid()}-init", "--log-replication", "1"]
    command += ["--metrics", f"{HOST}:{metrics}"]
    with leashed(command, stdout=subprocess.DEVNULL) as leash:
        until_so(lambda: is_ready(metrics), "it is not ready")
        supervisor = only_child_of(only_child_of(leash.pid))
        before = set(children_of(supervisor))
        orphan = ["sh", "-c", "(sh -c 'sleep 0.2' &) ; exit 0"]
        entered = ["nsenter", "--user", "--preserve-credentials", "--pid", "--target", str(supervisor), *orphan]
        subprocess.run(entered, check=True, capture_output=True)
        until_so(lambda: set(children_of(supervisor)) == before, lambda: children_of(supervisor))
        os.kill(supervisor, signal.SIGTERM)
        assert leash.wait(WITHIN_S) == 0
        assert not any(map(lives, before))


def children_of(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())]


def lives(pid: int) -> bool:
    """Return whether there is such a process; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
