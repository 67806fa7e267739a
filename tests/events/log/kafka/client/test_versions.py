"""Brokers that an event log can be kept on, by the versions of the requests that they know."""

import pytest
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.versions import READING, WRITING, check_versions

METADATA = 3
"""Spoken with kio's messages, in v4 and v10."""
KAFKA_4 = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 19: (2, 7), 22: (0, 6), 32: (1, 4)}
"""The versions that Kafka 4.3 offers of the needed APIs."""
KAFKA_0_10 = {0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (0, 2), 10: (0, 0)}


def test_the_last_versions_are_those_that_the_client_speaks() -> None:
    """With another version of it the table is to be looked at again."""
    classes = {
        request.API_KEY: [each.API_VERSION for each in request._CLASSES]
        for request in (
            ProduceRequest,
            FetchRequest,
            OffsetRequest,
            FindCoordinatorRequest,
            CreateTopicsRequest,
            InitProducerIdRequest,
            DescribeConfigsRequest,
        )
    }
    last = {METADATA: 10, **{key: max(versions) for key, versions in classes.items()}}
    offered = {key: (version, version) for key, version in last.items()}
    check_versions("broker 1 at k:9092", offered, WRITING)
    for key, version in last.items():
        with pytest.raises(LogMismatch, match=f"and v{version} is the last"):
            check_versions("broker 1 at k:9092", {**offered, key: (version + 1, version + 1)}, WRITING)
    assert all(each.first in classes[each.api_key] for each in WRITING if each.api_key != METADATA)


def test_kafka_4_is_well() -> None:
    """For readers and for owners."""
    check_versions("broker 1 at k:9092", KAFKA_4, WRITING)
    check_versions("broker 1 at k:9092", KAFKA_4, READING)


def test_a_broker_that_is_too_old_is_named_with_the_api_and_the_version() -> None:
    """And what it has instead."""
    with pytest.raises(LogMismatch) as old:
        check_versions("broker 3 at k:9092", KAFKA_0_10, READING)
    assert str(old.value) == (
        "broker 3 at k:9092 is too old to keep an event log: it offers Fetch up to v3, and v7 is needed; use a newer"
        " version of Kafka, or another --log"
    )
    with pytest.raises(LogMismatch, match="it does not offer InitProducerId, and v0 is needed"):
        check_versions("broker 3 at k:9092", {key: versions for key, versions in KAFKA_4.items() if key != 22}, WRITING)


def test_a_muster_that_stands_alone_is_not_taken_for_an_old_broker() -> None:
    """It speaks to clients as a new one does, and makes no topics."""
    with pytest.raises(LogMismatch) as refused:
        check_versions("broker 0 at muster:9092", {key: KAFKA_4[key] for key in (0, 1, 2, 3, 10)}, WRITING)
    assert str(refused.value).startswith("broker 0 at muster:9092 keeps no topics: it does not offer CreateTopics. It ")
    assert "a Muster that stands alone" in str(refused.value)


def test_a_reader_needs_less_than_an_owner() -> None:
    """It claims nothing and makes nothing."""
    check_versions("broker 3 at k:9092", {key: KAFKA_4[key] for key in (1, 2, 3)}, READING)


def test_a_broker_that_is_too_new_is_named() -> None:
    """When it has dropped what is spoken here."""
    with pytest.raises(
        LogMismatch, match=r"broker 1 at k:9092 is too new .* it offers Produce from v8 on, and v7 is the last"
    ):
        check_versions("broker 1 at k:9092", {**KAFKA_4, 0: (8, 13)}, WRITING)
