"""Groups of real consumers through the sidecar, on a real cluster: owned, and nothing lost."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from uuid import uuid4

import pytest

from tests.brokers.cluster import Cluster
from tests.brokers.java_tools import JavaTool, RunningTool, ToolLine, running_tool
from tests.clients.conftest import PARTITIONS
from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.clients.crew import ALL, Crew, crew
from tests.clients.foreign.consumers import Kafkajs
from tests.clients.probe import generation_of, until_stable
from tests.clients.through_sidecar.sidecar import assert_is_owned, offsets_at, produce
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

NO_STATIC_MEMBERS = {Kafkajs}


def until_consumed(consumers: Sequence[RunningConsumer], value: str) -> None:
    """Wait until they have this value from each partition."""

    def partitions() -> set[int]:
        assert [consumer.error for consumer in consumers if consumer.error] == []
        return {each.partition for consumer in consumers for each in consumer.records if each.value == value}

    until_so(lambda: partitions() == ALL, partitions)


def until_reassigned(consumer: RunningConsumer) -> None:
    """Wait until it has its share."""
    until_so(lambda: len(consumer.assigned) == PARTITIONS // 2, lambda: (consumer.assigned, consumer.error))


def goes_on_where_it_was(group: Crew, brokers: str, *, is_static: bool) -> None:
    """Two consume and commit; one restarts, gets no record twice, and no record is missed."""
    names = ("one", "two") if is_static else (None, None)
    first, second = (group.add(name) for name in names)
    group.until_shared()
    assert_is_owned(brokers, group.group_id)
    produce(group.bootstrap, group.topic, "before")
    until_consumed(group.consumers, "before")
    for consumer in group.consumers:
        for partition in consumer.assigned:
            consumer.commit(partition, 1)
    assert offsets_at(brokers, group.group_id, group.topic) == dict.fromkeys(ALL, 1)
    generation, assignments = group.generation, first.assignments

    group.close(second)
    again = group.add(names[1])
    until_reassigned(again)
    produce(group.bootstrap, group.topic, "after")
    until_consumed(group.consumers, "after")
    assert {each.value for each in again.records} == {"after"}
    assert again.committed(0) == 1
    if is_static:
        assert (group.generation, first.assignments) == (generation, assignments)


def test_consumers_restart(
    sidecar: MusterProcess, kafka_cluster: Cluster, library: type[RunningConsumer], topic: str
) -> None:
    """The Python libraries: a static restart causes no rebalance."""
    with crew(sidecar, library, topic) as group:
        goes_on_where_it_was(group, kafka_cluster.bootstrap, is_static=True)


def test_consumers_in_other_languages_restart(
    sidecar: MusterProcess, kafka_cluster: Cluster, foreign_library: type[RunningConsumer], topic: str
) -> None:
    """The libraries in other languages, one of which has no static members."""
    with crew(sidecar, foreign_library, topic) as group:
        goes_on_where_it_was(group, kafka_cluster.bootstrap, is_static=foreign_library not in NO_STATIC_MEMBERS)


def java_arguments(sidecar: MusterProcess, topic: str, group_id: str, instance: str) -> tuple[str, ...]:
    """The arguments of a VerifiableConsumer with the assignor that all libraries have."""
    server = ("--bootstrap-server", sidecar.bootstrap, "--topic", topic, "--group-id", group_id)
    assignor = ("--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor")
    return (*server, *assignor, "--group-instance-id", instance, "--reset-policy", "earliest")


def assigned(line: ToolLine) -> frozenset[int]:
    """The partitions assigned by the line."""
    if line.event.get("name") != "partitions_assigned":
        return frozenset()
    return frozenset(each["partition"] for each in line.event["partitions"])


def has_committed(line: ToolLine) -> bool:
    """Wait until the verifiable consumer reports a commit of its records."""
    return line.event.get("name") == "offsets_committed" and bool(line.event["success"])


def ended(tool: RunningTool) -> None:
    """End it cleanly."""
    tool.signal(signal.SIGTERM)
    assert tool.wait() in {0, 128 + signal.SIGTERM}


def test_processes_of_all_kinds_share_a_group(sidecar: MusterProcess, kafka_cluster: Cluster, topic: str) -> None:
    """Java's and those of three libraries have each partition once; a static restart of Java's is no rebalance."""
    group_id = f"mixed-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        libraries: tuple[type[RunningConsumer], ...] = (Confluent, Aiokafka)
        first, second = (
            library(sidecar.bootstrap, group_id, topic, instance=library.__name__).start() for library in libraries
        )
        for consumer in (first, second):
            stack.callback(consumer.end)
        java = stack.enter_context(
            running_tool(JavaTool.VERIFIABLE_CONSUMER, *java_arguments(sidecar, topic, group_id, "java"))
        )
        share = assigned(java.wait_for(lambda line: len(assigned(line)) == PARTITIONS // 3))
        until_so(
            lambda: sorted([*first.assigned, *second.assigned, *share]) == sorted(ALL),
            lambda: (first.assigned, second.assigned, share, first.error, second.error),
        )
        until_stable(sidecar.bootstrap, group_id, members=3)
        assert_is_owned(kafka_cluster.bootstrap, group_id)
        generation = generation_of(sidecar.bootstrap, group_id)
        produce(sidecar.bootstrap, topic, "before")
        java.wait_for(has_committed)

        ended(java)
        again = stack.enter_context(
            running_tool(JavaTool.VERIFIABLE_CONSUMER, *java_arguments(sidecar, topic, group_id, "java"))
        )
        assert assigned(again.wait_for(lambda line: bool(assigned(line)))) == share
        assert generation_of(sidecar.bootstrap, group_id) == generation

        # One of another library joins and one leaves: all take part, and no partition has two owners.
        third = KafkaPython(sidecar.bootstrap, group_id, topic).start()
        stack.callback(third.end)
        until_stable(sidecar.bootstrap, group_id, members=4)
        others = (first, second, third)
        shared = (PARTITIONS // 4, PARTITIONS // 4 + 1)

        def shares() -> list[int]:
            return sorted(partition for consumer in others for partition in consumer.assigned)

        until_so(
            lambda: all(len(each.assigned) in shared for each in others) and len(set(shares())) == len(shares()), shares
        )
        assert generation_of(sidecar.bootstrap, group_id) > generation
        offsets = offsets_at(kafka_cluster.bootstrap, group_id, topic)
        assert {partition for partition, offset in offsets.items() if offset == 1} >= share
        for consumer in others:
            consumer.close()
