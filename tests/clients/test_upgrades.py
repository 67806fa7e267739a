"""Groups that move from dynamic to static members and back while they run, and the effect of restarts on their
order.
"""

import signal
from contextlib import ExitStack
from uuid import uuid4

import pytest

from tests.brokers.java_tools import JavaTool, RunningTool, running_tool
from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import Confluent, KafkaPython, RunningConsumer
from tests.clients.crew import ALL, Crew, crew
from tests.clients.probe import described, generation_of, remove_static_members, until_stable
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

STREAMS_THREADS = ("pod-1-1", "pod-1-2", "pod-11-1")
"""Instance ids as in Kafka Streams: the process's own with the number of the thread."""


def instances(bootstrap: str, group_id: str) -> set[str | None]:
    return {member["group_instance_id"] for member in described(bootstrap, group_id)["members"]}


def assert_restarts_are_absorbed(group: Crew) -> None:
    """Each static member of the group is closed and restarted without an effect on the others."""
    generation = group.generation
    for old in [consumer for consumer in group.consumers if consumer.instance is not None]:
        share, others = old.assigned, [consumer for consumer in group.consumers if consumer is not old]
        noticed = [consumer.assignments for consumer in others]
        group.close(old)
        new = group.add(old.instance)
        group.until_shared()
        assert new.assigned == share
        assert [consumer.assignments for consumer in others] == noticed
    assert group.generation == generation


def test_dynamic_members_become_static_one_by_one(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Each process is closed and comes back with an instance id; from then on its restarts are absorbed."""
    with crew(muster, library) as group:
        dynamic = [group.add() for _ in range(3)]
        group.until_shared()
        for number, old in enumerate(dynamic):
            group.close(old)
            group.add(f"{number}")
            group.until_shared()
            assert_restarts_are_absorbed(group)
        assert instances(muster.bootstrap, group.group_id) == {"0", "1", "2"}


def test_static_members_become_dynamic_by_leave_group(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Each process is closed, removed by instance id, and comes back without one; no session has to expire."""
    with crew(muster, library) as group:
        static = [group.add(f"{number}") for number in range(3)]
        group.until_shared()
        for old in static:
            group.close(old)
            assert remove_static_members(muster.bootstrap, group.group_id, str(old.instance)) == [0]
            group.add()
            group.until_shared()
        assert instances(muster.bootstrap, group.group_id) == {None}
    group.until_empty()


def test_restarts_do_not_change_the_assignments(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """aiokafka's assignors sort by member id, the others' by instance id: both keep the order of the instances, also in
    rebalances after restarts, when all member ids are new.
    """
    with crew(muster, library) as group:
        for name in STREAMS_THREADS:
            group.add(name)
        group.until_shared()
        for _ in range(2):
            shares = {str(consumer.instance): sorted(consumer.assigned) for consumer in group.consumers}
            assert shares == {"pod-1-1": [0, 1], "pod-1-2": [2, 3], "pod-11-1": [4, 5]}
            assert_restarts_are_absorbed(group)
            first = next(consumer for consumer in group.consumers if consumer.instance == "pod-1-1")
            group.close(first)
            assert remove_static_members(muster.bootstrap, group.group_id, "pod-1-1") == [0]
            group.until_shared()
            group.add("pod-1-1")
            group.until_shared()


# ---- Java beside others --------------------------------------------------------------------------


def java_consumer(stack: ExitStack, muster: MusterProcess, group_id: str, instance: str | None = None) -> RunningTool:
    arguments = ["--bootstrap-server", muster.bootstrap, "--topic", TOPIC, "--group-id", group_id]
    if instance is not None:
        arguments += ["--group-instance-id", instance]
    return stack.enter_context(running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments))


def partitions_assigned(tool: RunningTool, count: int) -> frozenset[int]:
    """The next assignment with this many partitions."""
    line = tool.wait_for(
        lambda line: line.event.get("name") == "partitions_assigned" and len(line.event["partitions"]) == count
    )
    return frozenset(each["partition"] for each in line.event["partitions"])


@pytest.mark.parametrize("beside", [Confluent, KafkaPython], ids=lambda library: library.__name__)
def test_java_consumers_become_static_and_dynamic_again(muster: MusterProcess, beside: type[RunningConsumer]) -> None:
    """In one group with a consumer of another library: dynamic first, then static and restarted, then removed."""
    group_id = f"java-and-{beside.__name__.lower()}-{uuid4().hex[:8]}"
    half = PARTITIONS // 2
    with ExitStack() as stack:
        other = beside(muster.bootstrap, group_id, TOPIC, instance="other").start()
        stack.callback(other.end)
        dynamic = java_consumer(stack, muster, group_id)
        partitions_assigned(dynamic, half)
        dynamic.signal(signal.SIGTERM)
        dynamic.wait()
        until_so(lambda: other.assigned == ALL, lambda: other.assigned)

        static = java_consumer(stack, muster, group_id, "java")
        share = partitions_assigned(static, half)
        until_stable(muster.bootstrap, group_id, members=2)
        generation = generation_of(muster.bootstrap, group_id)
        static.signal(signal.SIGTERM)
        static.wait()
        assert instances(muster.bootstrap, group_id) == {"other", "java"}
        again = java_consumer(stack, muster, group_id, "java")
        assert partitions_assigned(again, half) == share
        assert generation_of(muster.bootstrap, group_id) == generation

        again.signal(signal.SIGTERM)
        again.wait()
        assert remove_static_members(muster.bootstrap, group_id, "java") == [0]
        until_so(lambda: other.assigned == ALL, lambda: other.assigned)
        java_consumer(stack, muster, group_id)
        until_so(lambda: len(other.assigned) == half, lambda: other.assigned)
        assert instances(muster.bootstrap, group_id) == {"other", None}
