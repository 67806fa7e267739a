"""Brokers that an event log can be kept on, by the versions of the requests that they know."""

from typing import Any

import pytest

from muster.events.kafka.exchange import NotOffered, Question, SupportedApi
from muster.events.kafka.requests import API_VERSIONS
from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.versions import READING, WRITING, check_versions

KAFKA_4 = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 19: (2, 7), 22: (0, 6), 32: (1, 4)}
"""The versions that Kafka 4.3 offers of the needed APIs."""
KAFKA_0_10 = {0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (0, 2), 10: (0, 0)}


@pytest.mark.parametrize("api", WRITING, ids=lambda api: api.name)
def test_the_versions_are_those_of_the_messages(api: SupportedApi) -> None:
    """A broker that offers one of them can be used; a broker whose versions are all newer or all older cannot."""
    others = {each.key: (0, 100) for each in WRITING}
    for version, messages in api.versions.items():
        request = getattr(messages.request, f"{api.name}Request")
        assert (request.__api_key__, request.__version__) == (api.key, version)
        check_versions("broker 1 at k:9092", {**others, api.key: (version, version)}, WRITING)
    after = max(api.versions) + 1
    with pytest.raises(LogMismatch, match=f"from v{after} on, and v{after - 1} is the newest"):
        check_versions("broker 1 at k:9092", {**others, api.key: (after, after)}, WRITING)
    with pytest.raises(LogMismatch, match=f"{api.name}.*, and v{min(api.versions)} is needed"):
        check_versions("broker 1 at k:9092", {**others, api.key: (0, min(api.versions) - 1)}, WRITING)


@pytest.mark.parametrize("api", [*WRITING, API_VERSIONS], ids=lambda api: api.name)
def test_a_request_is_sent_in_the_newest_version_that_the_broker_offers(api: SupportedApi) -> None:
    """None is sent to a broker that offers no version of it."""
    assert list(api.versions) == sorted(api.versions, reverse=True)
    question: Any = Question(api, lambda module: module)
    for version, messages in api.versions.items():
        assert question.prepare({api.key: (0, version)}) is messages
    with pytest.raises(NotOffered, match=f"{api.name} v{min(api.versions)}"):
        question.prepare({})


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


def test_a_standalone_muster_is_not_taken_for_an_old_broker() -> None:
    """To clients it looks like a new broker, and it creates no topics."""
    with pytest.raises(LogMismatch) as refused:
        check_versions("broker 0 at muster:9092", {key: KAFKA_4[key] for key in (0, 1, 2, 3, 10)}, WRITING)
    assert str(refused.value).startswith(
        "broker 0 at muster:9092 stores no topics: it does not offer CreateTopics. It "
    )
    assert "a standalone Muster" in str(refused.value)


def test_a_reader_needs_less_than_an_owner() -> None:
    """It claims nothing and makes nothing."""
    check_versions("broker 3 at k:9092", {key: KAFKA_4[key] for key in (1, 2, 3)}, READING)


def test_a_broker_that_is_too_new_is_named() -> None:
    """When it no longer supports the versions that Muster uses."""
    with pytest.raises(
        LogMismatch, match=r"broker 1 at k:9092 is too new .* it offers Produce from v8 on, and v7 is the newest"
    ):
        check_versions("broker 1 at k:9092", {**KAFKA_4, 0: (8, 13)}, WRITING)
