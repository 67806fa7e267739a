"""A group moves to the newer protocol (`group.protocol=consumer`) and back, as in docs/moving-groups.md."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, Protocol
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from muster import cli as command
from tests.brokers.cluster import Cluster
from tests.brokers.java_tools import JavaTool, RunningTool, running_tool
from tests.clients.consumers import SESSION_MS, Confluent
from tests.clients.crew import ALL
from tests.clients.through_sidecar.sidecar import assert_is_owned, offsets_at, produce, upstream_group
from tests.clients.through_sidecar.test_newcomers import NewConfluent
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

CLASSIC, NEWER = "classic", "consumer"
PROCESSES: Final = 2
COMMITTED: Final = dict.fromkeys(ALL, 1)
SHARED_WITHIN_S: Final = 60
"""The brokers have members of the newer protocol heartbeat every five seconds, and each of their steps takes one."""
TERMINAL: Final = {"COLUMNS": "200", "TERM": "dumb", "MUSTER_BOOTSTRAP": ""}


class Process(Protocol):
    """A process of the application: a consumer that commits what it has consumed."""

    def share(self) -> set[int]:
        """The partitions it has now. Raises if it has ended."""

    def close(self) -> None:
        """Close it cleanly, as an application does."""


class Librdkafka:
    """See Process."""

    def __init__(self, stack: ExitStack, protocol: str, bootstrap: str, group_id: str, topic: str) -> None:
        self._consumer = (NewConfluent if protocol == NEWER else Confluent)(bootstrap, group_id, topic)
        self._committed: set[int] = set()
        stack.callback(self._consumer.end)
        self._consumer.start()

    def share(self) -> set[int]:
        """The newer protocol only sends changes, so the library is asked for the whole."""
        assert self._consumer.error is None, self._consumer.error
        if not self._consumer.assignments:
            return set()
        for record in self._consumer.records:
            if record.partition not in self._committed:
                self._consumer.commit(record.partition, record.offset + 1)
                self._committed.add(record.partition)
        return {each.partition for each in self._consumer.do(self._consumer._consumer.assignment)}

    def close(self) -> None:
        self._consumer.close()


class Java:
    """See Process. This one commits by itself."""

    def __init__(self, stack: ExitStack, protocol: str, bootstrap: str, group_id: str, topic: str) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--group-id", group_id, "--topic", topic]
        arguments += ["--group-protocol", protocol, "--reset-policy", "earliest"]
        arguments += ["--session-timeout", str(SESSION_MS)] if protocol == CLASSIC else []
        self._tool: RunningTool = stack.enter_context(running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments))

    def share(self) -> set[int]:
        with suppress(TimeoutError):
            while self._tool.next_line(within_s=0.01):
                pass
        has: set[int] = set()
        for event in (line.event for line in self._tool.seen):
            assert event.get("name") != "shutdown_complete"
            partitions = {each["partition"] for each in event.get("partitions", []) if isinstance(each, dict)}
            if event.get("name") == "partitions_assigned":
                has |= partitions
            elif event.get("name") == "partitions_revoked":
                has -= partitions
        return has

    def close(self) -> None:
        self._tool.signal(signal.SIGTERM)
        self._tool.wait()


class Application:
    """The processes of one group, all of one library, connected to the sidecar."""

    def __init__(self, stack: ExitStack, kind: type[Librdkafka | Java], bootstrap: str, topic: str) -> None:
        self._stack, self._kind, self._bootstrap, self._topic = stack, kind, bootstrap, topic
        self.group_id = f"newer-{uuid4().hex[:8]}"
        self._processes: list[Process] = []

    def start(self, protocol: str) -> None:
        self._processes.append(self._kind(self._stack, protocol, self._bootstrap, self.group_id, self._topic))

    def roll(self, protocol: str) -> None:
        """A rolling restart: each process in turn comes back with this protocol, and has its share."""
        for _ in range(PROCESSES):
            self._processes.pop(0).close()
            self.start(protocol)
            self.until_shared()

    def until_shared(self) -> None:
        """Wait until each has a partition, and each partition one owner."""

        def shares() -> list[set[int]]:
            return [each.share() for each in self._processes]

        def shared() -> bool:
            found = shares()
            return all(found) and sum(map(len, found)) == len(ALL) and set().union(*found) == ALL

        until_so(shared, shares, within_s=SHARED_WITHIN_S)

    def until_committed(self) -> None:
        """Wait until the only record of each partition counts as consumed."""

        def committed() -> bool:
            self.until_shared()
            return self.offsets() == COMMITTED

        until_so(committed, self.offsets)

    def run(self, verb: str) -> None:
        """Run `muster adopt` or `muster release`."""
        done = CliRunner().invoke(command.app, [verb, self.group_id, "--bootstrap", self._bootstrap], env=TERMINAL)
        assert done.exit_code == 0, done.output
        assert f"all its {PROCESSES} members have rejoined" in done.output
        self.until_shared()

    def offsets(self) -> dict[int, int]:
        return offsets_at(self._bootstrap, self.group_id, self._topic)


@contextmanager
def application(kind: type[Librdkafka | Java], bootstrap: str, topic: str) -> Iterator[Application]:
    """Running, with the classic protocol."""
    with ExitStack() as stack:
        running = Application(stack, kind, bootstrap, topic)
        for _ in range(PROCESSES):
            running.start(CLASSIC)
        running.until_shared()
        yield running


@pytest.mark.parametrize("kind", [Librdkafka, Java])
def test_a_released_group_moves_to_the_newer_protocol_and_back_without_idle_members(
    sidecar: MusterProcess, kafka_cluster: Cluster, topic: str, kind: type[Librdkafka | Java]
) -> None:
    """Kafka's own online migration, through the sidecar, both ways; then the group is adopted. The offsets stay."""
    produce(kafka_cluster.bootstrap, topic, "before")
    with application(kind, sidecar.bootstrap, topic) as app:
        assert_is_owned(kafka_cluster.bootstrap, app.group_id)
        app.until_committed()
        app.run("release")
        app.roll(NEWER)
        assert upstream_group(kafka_cluster.bootstrap, app.group_id)["group_state"] == "Dead", "it is no classic one"
        app.roll(CLASSIC)
        assert upstream_group(kafka_cluster.bootstrap, app.group_id)["protocol_type"] == "consumer"
        app.run("adopt")
        assert_is_owned(kafka_cluster.bootstrap, app.group_id)
        assert app.offsets() == COMMITTED
