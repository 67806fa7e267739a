"""Metadata, FindCoordinator, DescribeCluster, ApiVersions, ListOffsets, Fetch, Produce: the cluster as clients
see it.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.wire import registry
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.authorized_operations import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)
from muster.coordinator.wire.registry import APIS
from tests.coordinator.kio_client import Exchange, versions
from tests.coordinator.scripted import CLUSTER, ManualTimers, ScriptedGroups, new_service

ORDERS = CLUSTER.topics["orders"]
NOBODYS_ID = UUID(int=99)
NODE = (1, "127.0.0.1", 9092)


def ask(name: str, version: int, **body: Any) -> Any:
    return Exchange(new_service(ScriptedGroups(lambda _command: None)), name, version, **body).response


def test_codecs_of_member_requests_are_loaded_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each offered version: without a free file descriptor it could not be loaded later."""
    loaded: set[tuple[int, int]] = set()
    monkeypatch.setattr(registry, "message", lambda key, version: loaded.add((key, version)))
    registry.load_messages_of_members()
    assert loaded == {(key, version) for key in (8, 9, 11, 12, 13, 14) for version in APIS[key].versions}


def metadata(version: int, topics: Any, *, operations: bool = False) -> Any:
    return ask(
        "Metadata",
        version,
        topics=topics,
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=operations,
        include_topic_authorized_operations=operations,
    )


@pytest.mark.parametrize("version", versions("Metadata"))
def test_metadata_of_a_declared_topic(version: int) -> None:
    response = metadata(version, [{"name": "orders", "topic_id": None}])
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [NODE]
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "orders")
    assert [(each.partition_index, each.leader_id, each.isr_nodes) for each in topic.partitions] == [
        (0, 1, (1,)),
        (1, 1, (1,)),
        (2, 1, (1,)),
    ]
    if version >= 7:
        assert {each.leader_epoch for each in topic.partitions} == {0}
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == "muster-test"
    if version >= 10:
        assert topic.topic_id == ORDERS.topic_id


@pytest.mark.parametrize("version", versions("Metadata"))
def test_all_topics_are_requested_in_each_versions_own_way(version: int) -> None:
    """An empty list means all topics in v0, and none afterwards."""
    everything: list[Any] | None = [] if version == 0 else None
    assert [topic.name for topic in metadata(version, everything).topics] == ["orders", "clicks"]
    if version >= 1:
        assert metadata(version, []).topics == ()


@pytest.mark.parametrize("version", versions("Metadata"))
def test_unknown_topics_are_not_made(version: int) -> None:
    response = metadata(version, [{"name": "nope", "topic_id": None}, {"name": "no such name!", "topic_id": None}])
    assert [(topic.name, topic.error_code, topic.partitions) for topic in response.topics] == [
        ("nope", ErrorCode.unknown_topic_or_partition, ()),
        ("no such name!", ErrorCode.invalid_topic_exception, ()),
    ]


@pytest.mark.parametrize("version", versions("Metadata", 12))
def test_topics_are_found_by_id(version: int) -> None:
    requested = [{"name": None, "topic_id": ORDERS.topic_id}, {"name": None, "topic_id": NOBODYS_ID}]
    response = metadata(version, requested)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        ("orders", ORDERS.topic_id, ErrorCode.none),
        (None, NOBODYS_ID, ErrorCode.unknown_topic_id),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_an_invalid_request_before_v12(version: int) -> None:
    (topic,) = metadata(version, [{"name": None, "topic_id": ORDERS.topic_id}]).topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("", ORDERS.topic_id, ErrorCode.invalid_request)


@pytest.mark.parametrize("version", versions("Metadata", 8))
@pytest.mark.parametrize("operations", [True, False])
def test_operations_are_returned_on_request(version: int, operations: bool) -> None:
    response = metadata(version, None, operations=operations)
    assert {topic.topic_authorized_operations for topic in response.topics} == {
        TOPIC_OPERATIONS if operations else AUTHORIZED_OPERATIONS_OMITTED
    }
    if version <= 10:
        assert response.cluster_authorized_operations == (
            CLUSTER_OPERATIONS if operations else AUTHORIZED_OPERATIONS_OMITTED
        )


@pytest.mark.clients
@pytest.mark.parametrize(
    ("operations", "names"),
    [
        (TOPIC_OPERATIONS, "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (GROUP_OPERATIONS, "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
        (
            CLUSTER_OPERATIONS,
            "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
        ),
    ],
    ids=["topic", "group", "cluster"],
)
def test_all_operations_of_a_resource_are_returned(operations: int, names: str) -> None:
    """Those of Kafka's AclEntry, by the client's codes: each is a bit."""
    from kafka.admin import ACLOperation  # a quick run has no client

    reported = {operation.name for operation in ACLOperation if operations >> operation.value & 1}
    assert reported == set(names.split())


def coordinators(version: int, key_type: int) -> list[tuple[Any, ...]]:
    response = ask("FindCoordinator", version, key="a", key_type=key_type, coordinator_keys=["a", "b"])
    found = [response] if version < 4 else response.coordinators
    if version >= 4:
        assert [each.key for each in found] == ["a", "b"]
    return [(each.error_code, each.node_id, each.host, each.port) for each in found]


@pytest.mark.parametrize("version", versions("FindCoordinator"))
def test_the_coordinator_of_every_group_is_the_node_that_metadata_names(version: int) -> None:
    assert set(coordinators(version, 0)) == {(ErrorCode.none, *NODE)}


@pytest.mark.parametrize("version", versions("FindCoordinator", 1))
@pytest.mark.parametrize(
    ("key_type", "error"),
    [(1, ErrorCode.coordinator_not_available), (2, ErrorCode.invalid_request), (9, ErrorCode.invalid_request)],
)
def test_there_are_no_other_coordinators(version: int, key_type: int, error: ErrorCode) -> None:
    assert set(coordinators(version, key_type)) == {(error, -1, "", -1)}


@pytest.mark.parametrize(
    ("key_type", "message"),
    [
        (0, "NONE"),
        (1, "There is no coordinator of transactions here."),
        (9, "There is no coordinator of key type 9 here."),
    ],
)
def test_a_missing_coordinator_is_explained(key_type: int, message: str) -> None:
    """Kafka does the same, and says NONE for success, until v3."""
    assert ask("FindCoordinator", 3, key="a", key_type=key_type).error_message == message
    (found,) = ask("FindCoordinator", 4, coordinator_keys=["a"], key_type=key_type).coordinators
    assert found.error_message == ("" if message == "NONE" else message)


@pytest.mark.parametrize("version", versions("DescribeCluster"))
def test_the_cluster_is_described(version: int) -> None:
    response = ask(
        "DescribeCluster",
        version,
        include_cluster_authorized_operations=True,
        endpoint_type=1,
        include_fenced_brokers=True,
    )
    assert (response.error_code, response.cluster_id, response.controller_id) == (ErrorCode.none, "muster-test", 1)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [NODE]
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", versions("DescribeCluster", 1))
@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.mismatched_endpoint_type), (7, ErrorCode.unsupported_endpoint_type)]
)
def test_there_are_no_controllers_to_talk_to(version: int, endpoint_type: int, error: ErrorCode) -> None:
    response = ask(
        "DescribeCluster",
        version,
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )
    assert (response.error_code, response.brokers) == (error, ())


@pytest.mark.parametrize("version", versions("ApiVersions"))
def test_exactly_what_is_registered_is_offered(version: int) -> None:
    response = ask("ApiVersions", version, client_software_name="kio", client_software_version="0.6.5")
    assert response.error_code is ErrorCode.none
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == sorted(
        (key, api.versions[0], api.versions[-1]) for key, api in APIS.items()
    )


KAFKA_OFFERS = {
    0: (3, 13),  # Kafka says 0, for old producers that compress (KAFKA-18659), and refuses what is below 3
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    32: (1, 4),
    42: (0, 2),
    44: (0, 1),
    47: (0, 0),
    60: (0, 2),
}


def test_the_versions_are_those_of_kafka_4_3_1() -> None:
    """The expected versions were reported by a broker."""
    assert {key: (api.versions[0], api.versions[-1]) for key, api in APIS.items()} == KAFKA_OFFERS


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("name", ["", "-kio", "kio-", "k io", "kió"])
def test_software_with_an_odd_name_is_an_invalid_request(version: int, name: str) -> None:
    """KIP-511."""
    response = ask("ApiVersions", version, client_software_name=name, client_software_version="1")
    assert (response.error_code, response.api_keys) == (ErrorCode.invalid_request, ())


def offset(version: int, timestamp: int, index: int = 0, topic: str = "orders") -> tuple[ErrorCode, int, int]:
    """The error, the timestamp and the offset; the leader's epoch is that of Metadata if there is an offset."""
    response = ask(
        "ListOffsets",
        version,
        replica_id=-1,
        isolation_level=0,
        timeout=timedelta(seconds=1),
        topics=[{"name": topic, "partitions": [{"partition_index": index, "timestamp": timestamp}]}],
    )
    (partition,) = response.topics[0].partitions
    if version >= 4:
        assert partition.leader_epoch == (0 if partition.offset == 0 else -1)
    return partition.error_code, partition.timestamp, partition.offset


@pytest.mark.parametrize("version", versions("ListOffsets"))
def test_a_declared_topic_starts_and_ends_at_0(version: int) -> None:
    assert offset(version, -2) == (ErrorCode.none, -1, 0)
    assert offset(version, -1) == (ErrorCode.none, -1, 0)
    assert offset(version, 1_700_000_000_000) == (ErrorCode.none, -1, -1)


@pytest.mark.parametrize("version", versions("ListOffsets"))
def test_offsets_of_what_does_not_exist(version: int) -> None:
    assert offset(version, -1, index=3) == (ErrorCode.unknown_topic_or_partition, -1, -1)
    assert offset(version, -1, topic="nope") == (ErrorCode.unknown_topic_or_partition, -1, -1)


@pytest.mark.parametrize("version", versions("ListOffsets"))
@pytest.mark.parametrize(
    ("timestamp", "since", "found"), [(-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 99, 0)]
)
def test_special_timestamps_depend_on_the_version(version: int, timestamp: int, since: int, found: int) -> None:
    expected = (ErrorCode.none, -1, found) if version >= since else (ErrorCode.unsupported_version, -1, -1)
    assert offset(version, timestamp) == expected


def fetch(version: int, timers: ManualTimers, **changed: Any) -> Exchange:
    body: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "topics": [
            {
                "topic": "orders",
                "topic_id": ORDERS.topic_id,
                "partitions": [{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1_000}],
            }
        ],
        "forgotten_topics_data": [],
    }
    service = new_service(ScriptedGroups(lambda _command: None), timers)
    return Exchange(service, "Fetch", version, **(body | changed))


@pytest.mark.parametrize("version", versions("Fetch"))
def test_a_fetch_waits_and_gets_nothing(version: int) -> None:
    timers = ManualTimers()
    exchange = fetch(version, timers)
    assert exchange.answers == []
    assert [delay_ms for delay_ms, _ in timers.pending.values()] == [500]
    timers.pass_all()
    (topic,) = exchange.response.responses
    (partition,) = topic.partitions
    assert (partition.partition_index, partition.error_code, partition.records) == (1, ErrorCode.none, b"")
    assert partition.high_watermark == 0
    if version >= 7:
        assert (exchange.response.error_code, exchange.response.session_id) == (ErrorCode.none, 0)
    if version >= 13:
        assert topic.topic_id == ORDERS.topic_id
    else:
        assert topic.topic == "orders"


def test_a_fetch_leaves_no_timer_behind() -> None:
    timers = ManualTimers()
    exchange = fetch(13, timers)
    assert exchange.cancel is not None
    exchange.cancel()
    assert timers.pending == {}


@pytest.mark.parametrize("version", versions("Fetch"))
def test_a_fetch_of_what_does_not_exist_is_answered_at_once(version: int) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    requested = [
        {"topic": "nope", "topic_id": NOBODYS_ID, "partitions": [partition]},
        {"topic": "orders", "topic_id": ORDERS.topic_id, "partitions": [partition, partition | {"partition": 3}]},
    ]
    response = fetch(version, ManualTimers(), topics=requested).response
    unknown = ErrorCode.unknown_topic_or_partition
    assert [[each.error_code for each in topic.partitions] for topic in response.responses] == [
        [ErrorCode.unknown_topic_id if version >= 13 else unknown],
        [ErrorCode.none, unknown],
    ]
    nowhere = response.responses[1].partitions[1]
    assert (nowhere.high_watermark, nowhere.last_stable_offset, nowhere.log_start_offset if version >= 5 else -1) == (
        -1,
        -1,
        -1,
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"max_wait": timedelta(0)},
        {"min_bytes": 0},
        {"topics": []},
        {"topics": [{"topic": "orders", "partitions": []}]},
        {"max_wait": timedelta(milliseconds=-5)},
    ],
)
def test_a_fetch_that_may_not_wait_does_not(changed: dict[str, Any]) -> None:
    assert fetch(12, ManualTimers(), **changed).response.error_code is ErrorCode.none


@pytest.mark.parametrize("version", versions("Fetch", 7))
@pytest.mark.parametrize(("session_id", "session_epoch"), [(5, 1), (0, 3)])
def test_there_are_no_fetch_sessions(version: int, session_id: int, session_epoch: int) -> None:
    response = fetch(version, ManualTimers(), session_id=session_id, session_epoch=session_epoch).response
    assert (response.error_code, response.responses) == (ErrorCode.fetch_session_id_not_found, ())


def test_a_position_behind_the_start_is_where_the_topic_ends() -> None:
    """A declared topic can be fetched from indefinitely, from any position."""
    timers = ManualTimers()
    partition = {"partition": 0, "fetch_offset": 77, "partition_max_bytes": 1_000}
    exchange = fetch(12, timers, topics=[{"topic": "orders", "partitions": [partition]}])
    timers.pass_all()
    found = exchange.response.responses[0].partitions[0]
    assert (found.error_code, found.high_watermark) == (ErrorCode.none, 77)


def produce(version: int, *, acks: int = -1) -> Exchange:
    partitions = [{"index": index, "records": b"anything"} for index in (0, 3)]
    return Exchange(
        new_service(ScriptedGroups(lambda _command: None)),
        "Produce",
        version,
        transactional_id=None,
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=[{"name": "orders", "topic_id": ORDERS.topic_id, "partition_data": partitions}],
    )


@pytest.mark.parametrize("version", versions("Produce"))
def test_a_producer_is_refused_permanently(version: int) -> None:
    """The log names it, where its operator may look."""
    with capture_logs() as lines:
        (topic,) = produce(version).response.responses
    assert [line["event"] for line in lines] == ["records refused: declared topics hold no data"]
    assert lines[0]["peer"].startswith("/")
    there, missing = topic.partition_responses
    assert there.error_code is ErrorCode.policy_violation
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    if version >= 8:
        assert "no data" in there.error_message


def test_a_producer_that_wants_no_answer_is_cut_off() -> None:
    with pytest.raises(ProtocolError, match="no data") as raised:
        produce(12, acks=0)
    assert raised.value.fault is Fault.REFUSED_PRODUCE


@pytest.mark.parametrize("version", versions("Metadata"))
def test_a_topic_named_many_times_is_answered_once(version: int) -> None:
    """Its response is many times longer than its name."""
    requested = [{"name": name, "topic_id": None} for name in ("orders", "nope", "orders", "orders")]
    assert [topic.name for topic in metadata(version, requested).topics] == ["orders", "nope"]
