"""The admin clients of librdkafka and kafka-python: their requests, and the errors that they pass on."""

from collections.abc import Iterator, Mapping
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions as Offsets
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import MemberToRemove

from tests.clients.conftest import TOPIC
from tests.clients.consumers import Confluent
from tests.clients.crew import Crew, crew
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.clients


@pytest.fixture
def group(muster: MusterProcess) -> Iterator[Crew]:
    """A stable group of two static members."""
    with crew(muster, Confluent) as group:
        group.add("a")
        group.add("b")
        group.until_shared()
        yield group


def empty(group: Crew, admin: Any) -> None:
    """Close its consumers, and remove them."""
    for consumer in list(group.consumers):
        group.close(consumer)
    reported = admin.remove_group_members(
        group.group_id, [MemberToRemove(group_instance_id=name, reason="scaled in") for name in ("a", "b")]
    )
    assert set(reported.values()) == {kafka.errors.NoError}


@pytest.fixture
def kafka_python(muster: MusterProcess) -> Iterator[Any]:
    """kafka-python's, the only one of the three that removes members."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=muster.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def librdkafka(muster: MusterProcess) -> AdminClient:
    """confluent-kafka's."""
    return AdminClient({"bootstrap.servers": muster.bootstrap, "log_level": 0})


def code(futures: Mapping[Any, Any]) -> int:
    """The error code of the only future."""
    (future,) = futures.values()
    try:
        future.result(timeout=30)
    except KafkaException as error:
        found: int = error.args[0].code()
        return found
    return 0


def test_librdkafka_administers_a_group(group: Crew, librdkafka: AdminClient, kafka_python: Any) -> None:
    """It is described and listed; changes of offsets and of the group are refused while it has members (CH2, CH5 to
    CH7).
    """
    (described,) = librdkafka.describe_consumer_groups([group.group_id]).values()
    reported = described.result(timeout=30)
    assert (reported.state.name, reported.partition_assignor, reported.is_simple_consumer_group) == (
        "STABLE",
        "range",
        False,
    )
    shares = {member.group_instance_id: len(member.assignment.topic_partitions) for member in reported.members}
    assert shares == {"a": 3, "b": 3}
    listed = librdkafka.list_consumer_groups().result(timeout=30)
    assert group.group_id in {each.group_id for each in listed.valid}
    assert listed.errors == []

    at_5 = [Offsets(group.group_id, [TopicPartition(TOPIC, 0, 5)])]
    (altered,) = librdkafka.alter_consumer_group_offsets(at_5).values()
    assert [each.error.code() for each in altered.result(timeout=30).topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]
    assert code(librdkafka.delete_consumer_groups([group.group_id])) == KafkaError.NON_EMPTY_GROUP
    empty(group, kafka_python)
    assert code(librdkafka.alter_consumer_group_offsets(at_5)) == 0
    (offsets,) = librdkafka.list_consumer_group_offsets([Offsets(group.group_id)]).values()
    assert [(each.partition, each.offset) for each in offsets.result(timeout=30).topic_partitions] == [(0, 5)]
    assert code(librdkafka.delete_consumer_groups([group.group_id])) == 0
    assert code(librdkafka.delete_consumer_groups([group.group_id])) == KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_administers_a_group(group: Crew, kafka_python: Any) -> None:
    """Several members are removed in one request, each with its own result (CH3, CH4, CH6)."""
    partition = kafka.TopicPartition(TOPIC, 0)
    group.consumers[0].commit(0, 5)
    deleted = kafka_python.delete_group_offsets(group.group_id, [partition])
    assert deleted == {partition: kafka.errors.GroupSubscribedToTopicError}
    reported = kafka_python.remove_group_members(
        group.group_id,
        [MemberToRemove(group_instance_id="nobody"), MemberToRemove(member_id="nobody either")],
    )
    assert reported == {"nobody": kafka.errors.UnknownMemberIdError, "nobody either": kafka.errors.UnknownMemberIdError}
    empty(group, kafka_python)
    assert kafka_python.delete_group_offsets(group.group_id, [partition]) == {partition: kafka.errors.NoError}
    assert kafka_python.delete_groups([group.group_id]) == {group.group_id: "OK"}
