"""Kafka's own tools, and with them the Java consumer, against Muster."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from uuid import uuid4

import pytest

from tests.brokers.java_tools import JavaTool, RunningTool, ToolLine, run_tool, running_tool
from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.probe import described, generation_of, remove_static_members, until_stable
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients

ENDED_BY_SIGTERM: Final = {0, 128 + signal.SIGTERM}


@pytest.fixture
def group_id() -> str:
    return f"java-{uuid4().hex[:8]}"


@contextmanager
def consumer(muster: MusterProcess, group_id: str, instance: str) -> Iterator[RunningTool]:
    """A VerifiableConsumer; it leaves nothing behind."""
    arguments = ("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group-id", group_id)
    with running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments, "--group-instance-id", instance) as tool:
        yield tool


def assigned(line: ToolLine) -> set[int]:
    """The partitions assigned by the line; empty for other lines."""
    if line.event.get("name") != "partitions_assigned":
        return set()
    return {each["partition"] for each in line.event["partitions"]}


def consumer_groups(muster: MusterProcess, *arguments: str) -> str:
    """The output of ConsumerGroupCommand."""
    done = run_tool(JavaTool.CONSUMER_GROUPS, "--bootstrap-server", muster.bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a tool's table by column; our cells contain no spaces."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    (head,) = (number for number, cells in enumerate(lines) if cells[0] == "GROUP")
    return [dict(zip(lines[head], cells, strict=False)) for cells in lines[head + 1 :]]


def test_static_java_consumers_restart_and_are_administered(muster: MusterProcess, group_id: str) -> None:
    """A restart keeps the generation; the group is described, emptied by an administrator, and deleted."""
    with ExitStack() as stack:
        first = stack.enter_context(consumer(muster, group_id, "first"))
        second = stack.enter_context(consumer(muster, group_id, "second"))
        until_stable(muster.bootstrap, group_id, members=2)
        generation = generation_of(muster.bootstrap, group_id)
        share = assigned(second.wait_for(lambda line: len(assigned(line)) == PARTITIONS // 2))

        second.signal(signal.SIGTERM)
        assert second.wait() in ENDED_BY_SIGTERM
        again = stack.enter_context(consumer(muster, group_id, "second"))
        assert assigned(again.wait_for(lambda line: bool(assigned(line)))) == share
        assert generation_of(muster.bootstrap, group_id) == generation

        rows = table(consumer_groups(muster, "--describe", "--group", group_id, "--members", "--verbose"))
        assert {row["GROUP-INSTANCE-ID"]: row["#PARTITIONS"] for row in rows} == {"first": "3", "second": "3"}
        (state,) = table(consumer_groups(muster, "--describe", "--group", group_id, "--state"))
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
        assert group_id in consumer_groups(muster, "--list").split()

        for tool in (first, again):
            tool.signal(signal.SIGTERM)
            assert tool.wait() in ENDED_BY_SIGTERM
    assert len(described(muster.bootstrap, group_id)["members"]) == 2, "static members do not leave"
    assert "is not empty" in consumer_groups(muster, "--delete", "--group", group_id)
    assert remove_static_members(muster.bootstrap, group_id, "first", "second") == [0, 0]
    assert "was successful" in consumer_groups(muster, "--delete", "--group", group_id)
    assert group_id not in consumer_groups(muster, "--list").split()


def test_consumer_performance_runs_to_its_end(muster: MusterProcess, group_id: str) -> None:
    """It joins, fetches, finds nothing, commits and leaves; its offsets are shown and can be set."""
    done = run_tool(
        JavaTool.CONSUMER_PERF_TEST,
        *("--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group", group_id),
        *("--num-records", "10", "--timeout", "2000"),  # milliseconds without a record after which it ends
    )
    assert done.returncode == 0, done.stderr
    assert "rebalance.time.ms" in done.stdout
    assert described(muster.bootstrap, group_id)["members"] == []
    rows = table(consumer_groups(muster, "--describe", "--group", group_id))
    assert [(row["PARTITION"], row["CURRENT-OFFSET"]) for row in rows] == [(str(n), "0") for n in range(PARTITIONS)]
    consumer_groups(muster, "--delete-offsets", "--group", group_id, "--topic", f"{TOPIC}:1")
    rows = table(consumer_groups(muster, "--describe", "--group", group_id))
    assert [row["PARTITION"] for row in rows] == ["0", "2", "3", "4", "5"]
