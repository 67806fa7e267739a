"""Clients of the newer protocol (`group.protocol=consumer`) that join a group of the classic one: they wait."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar, Final
from uuid import uuid4

import pytest

from tests.brokers.cluster import Cluster
from tests.brokers.java_tools import JavaTool, RunningTool, running_tool
from tests.clients.consumers import Confluent
from tests.clients.crew import ALL
from tests.clients.through_sidecar.sidecar import assert_is_owned
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

PUT_OFF: Final = re.compile(r"^muster_consumer_group_heartbeats_deferred_total (\S+)$", re.MULTILINE)
OFTEN: Final = 3
ASSIGNED, ENDED = "partitions_assigned", "shutdown_complete"


class NewConfluent(Confluent):
    """librdkafka's consumer without the settings that the broker determines in the newer protocol."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {
        "group.protocol": "consumer",
        "session.timeout.ms": None,
        "heartbeat.interval.ms": None,
        "partition.assignment.strategy": None,
    }


def put_off(muster: MusterProcess) -> float:
    """How often such clients were told to retry."""
    (value,) = PUT_OFF.findall(muster.asked("/metrics"))
    return float(value)


@contextmanager
def librdkafka(bootstrap: str, group_id: str, topic: str) -> Iterator[Callable[[], bool]]:
    """A client of the newer protocol; the result is whether all partitions are assigned to it."""
    consumer = NewConfluent(bootstrap, group_id, topic).start()
    try:

        def has_all() -> bool:
            assert consumer.error is None
            return set(consumer.assigned) == ALL

        yield has_all
    finally:
        consumer.end()


@contextmanager
def java(bootstrap: str, group_id: str, topic: str) -> Iterator[Callable[[], bool]]:
    """The same with Kafka's own consumer."""
    arguments = ("--bootstrap-server", bootstrap, "--group-id", group_id, "--topic", topic)

    def partitions(tool: RunningTool) -> set[int]:
        events = [line.event for line in tool.seen if line.event.get("name") in {ASSIGNED, ENDED}]
        assert all(event["name"] == ASSIGNED for event in events)
        return {each["partition"] for event in events for each in event["partitions"]}

    with running_tool(JavaTool.VERIFIABLE_CONSUMER, *arguments, "--group-protocol", "consumer") as tool:

        def has_all() -> bool:
            with suppress(TimeoutError):
                tool.next_line(within_s=0.01)
            return partitions(tool) == ALL

        yield has_all


@pytest.mark.parametrize("newcomer", [librdkafka, java])
def test_a_newcomer_waits_until_the_last_classic_member_has_gone(
    sidecar: MusterProcess, kafka_cluster: Cluster, topic: str, newcomer: Callable[..., Any]
) -> None:
    """It retries about once a second; then the group is its own, and no setting has changed."""
    group_id = f"newcomers-{uuid4().hex[:8]}"
    with ExitStack() as stack:
        classic = Confluent(sidecar.bootstrap, group_id, topic).start()
        stack.callback(classic.end)
        until_so(lambda: set(classic.assigned) == ALL, lambda: (classic.assigned, classic.error))
        assert_is_owned(kafka_cluster.bootstrap, group_id)

        before = put_off(sidecar)
        has_all = stack.enter_context(newcomer(sidecar.bootstrap, group_id, topic))
        until_so(lambda: put_off(sidecar) >= before + OFTEN, lambda: (put_off(sidecar), has_all()))
        assert not has_all()
        assert_is_owned(kafka_cluster.bootstrap, group_id)
        assert classic.error is None
        assert set(classic.assigned) == ALL

        classic.close()
        until_so(has_all, lambda: put_off(sidecar))
