"""Real clients that cannot join, and real static members whose new topic has no consumer: what is reported of them."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin

from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.forked import run_muster
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

pytestmark = pytest.mark.clients

ROUND_ROBIN: Mapping[type[RunningConsumer], dict[str, Any]] = {
    Aiokafka: {"partition_assignment_strategy": (AiokafkaRoundRobin,)},
    KafkaPython: {"partition_assignment_strategy": (KafkaPythonRoundRobin,)},
    Confluent: {"partition.assignment.strategy": "roundrobin"},
}
HALF_AN_HOUR_MORE = 3_600_000
LONG_SESSION: Mapping[type[RunningConsumer], dict[str, Any]] = {
    Aiokafka: {"session_timeout_ms": HALF_AN_HOUR_MORE, "rebalance_timeout_ms": HALF_AN_HOUR_MORE},
    KafkaPython: {
        "session_timeout_ms": HALF_AN_HOUR_MORE,
        "max_poll_interval_ms": HALF_AN_HOUR_MORE,
        "request_timeout_ms": 2 * HALF_AN_HOUR_MORE,
        "connections_max_idle_ms": 3 * HALF_AN_HOUR_MORE,
    },
    Confluent: {"session.timeout.ms": HALF_AN_HOUR_MORE, "max.poll.interval.ms": HALF_AN_HOUR_MORE},
}


def configured(
    library: type[RunningConsumer], config: Mapping[str, Any], topics: tuple[str, ...] = ()
) -> type[RunningConsumer]:
    """The library's consumer with these settings, subscribed to these topics if there are any."""
    changed: dict[str, Any] = {"OTHER_CONFIG": {**library.OTHER_CONFIG, **config}}  # type: ignore[attr-defined]
    if topics:
        changed["subscribe"] = lambda self, _: library.subscribe(self, topics)
    return type(library.__name__, (library,), changed)


def why_incidents(muster: MusterProcess, group_id: str) -> list[dict[str, Any]]:
    """The incidents of the group that `why` shows."""
    answer = run_muster("replay", "why", group_id, "--all", "--format", "jsonl", "--log", muster.log)
    assert answer.returncode == 0, answer.stderr
    return [each for line in answer.stdout.splitlines() if "kind" in (each := msgspec.json.decode(line))]


def history(muster: MusterProcess, group_id: str) -> str:
    answer = run_muster("replay", "history", group_id, "--log", muster.log)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def refused_lines(muster: MusterProcess, group_id: str) -> list[dict[str, Any]]:
    lines = (msgspec.json.decode(line) for line in muster.output.splitlines() if '"join refused' in line)
    return [line for line in lines if line["group_id"] == group_id]


def until_refused(muster: MusterProcess, group_id: str) -> dict[str, Any]:
    until_so(lambda: bool(refused_lines(muster, group_id)), lambda: muster.output[-2_000:])
    return refused_lines(muster, group_id)[0]


def test_a_client_with_another_assignor_is_reported_in_the_log_and_by_why(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """A common mistake when clients are mixed: their default assignors have no name in common."""
    group_id = f"mixed-{library.__name__}"
    first = Confluent(muster.bootstrap, group_id, "orders").start()
    until_so(lambda: len(first.assigned) == 6, lambda: repr(first.error))
    second = configured(library, ROUND_ROBIN[library])(muster.bootstrap, group_id, "orders").start()
    line = until_refused(muster, group_id)
    second.end()
    first.close()
    assert [each.name for each in threading.enumerate() if each.name.startswith("kafka-io-")] == []
    assert (line["offers"], line["all_members_have"]) == (["roundrobin"], ["range"])
    (refused,) = [each for each in why_incidents(muster, group_id) if each["kind"] == "refused"]
    assert "it offered roundrobin, and all members of the group have range" in refused["headline"]
    assert [each["client_id"] for each in refused["culprits"]] == [line["client_id"]]


def test_a_client_with_a_session_timeout_that_is_not_allowed_has_a_history_without_a_group(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    group_id = f"session-{library.__name__}"
    consumer = configured(library, LONG_SESSION[library])(muster.bootstrap, group_id, "orders").start()
    line = until_refused(muster, group_id)
    consumer.end()
    assert line["session_timeout_ms"] == HALF_AN_HOUR_MORE
    (refused,) = why_incidents(muster, group_id)
    assert refused["kind"] == "refused"
    assert "it asked for a session timeout of 60 min, which is outside of group.min." in refused["headline"]
    assert "existed only to record the refusal" in history(muster, group_id)
    admin = AdminClient({"bootstrap.servers": muster.bootstrap})
    assert group_id not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_a_client_with_an_undeclared_topic_is_reported_in_the_log(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """aiokafka and librdkafka never join because of that, so their group has no history."""
    topic = f"nowhere-{library.__name__}"
    consumer = library(muster.bootstrap, f"group-{topic}", topic).start()

    def lines() -> list[dict[str, Any]]:
        return [
            each for each in muster.events("client asks for a topic that is not declared") if each["topic"] == topic
        ]

    until_so(lambda: bool(lines()), lambda: muster.output[-2_000:])
    consumer.end()
    assert f"--topic {topic}:PARTITIONS" in lines()[0]["way_out"]
    assert lines()[0]["client_id"]


def test_a_static_client_that_returns_with_another_topic_is_reported_as_unconsumed(
    tmp_path: Path, library: type[RunningConsumer]
) -> None:
    """None of the client families requests a rebalance, as on Kafka."""
    with running_muster(log=sqlite_log(tmp_path), topics=["orders:6", "payments:2"]) as muster:
        one = library(muster.bootstrap, "orders-group", "orders", instance="one").start()
        two = library(muster.bootstrap, "orders-group", "orders", instance="two").start()
        until_so(lambda: len(one.assigned) == len(two.assigned) == 3, lambda: repr((one.error, two.error)))
        two.close()
        both = configured(library, {}, ("orders", "payments"))
        two = both(muster.bootstrap, "orders-group", "orders", instance="two").start()
        until_so(lambda: two.assignments > 0, lambda: repr(two.error))
        unassigned = [each for each in why_incidents(muster, "orders-group") if each["kind"] == "unassigned-topic"]
        assert ["payments is assigned to no member so far" in each["headline"] for each in unassigned] == [True]
        assert [each["group_instance_id"] for each in unassigned[0]["culprits"]] == ["two"]
        two.close()
        one.close()
