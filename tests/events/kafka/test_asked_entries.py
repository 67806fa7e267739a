"""A response must have each requested entry once, or it is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.events.kafka import requests
from muster.events.kafka.asked_entries import OtherEntries, check_entries
from muster.events.kafka.exchange import Question
from tests.events.log.kafka.kafka_messages import request_in

Named = SimpleNamespace
PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, DESCRIBE_CONFIGS = 0, 1, 2, 19, 32
RESPONSES = {
    PRODUCE: ("responses", "name", "partition_responses", "index"),
    FETCH: ("responses", "topic", "partitions", "partition_index"),
    LIST_OFFSETS: ("topics", "name", "partitions", "partition_index"),
}
REQUESTS = {
    PRODUCE: ("topic_data", "name", "partition_data", "index"),
    FETCH: ("topics", "topic", "partitions", "partition"),
    LIST_OFFSETS: RESPONSES[LIST_OFFSETS],
}


def message(key: int, names: tuple[str, str, str, str], topics: dict[str, list[int]]) -> Any:
    """A request or a response about these partitions."""
    in_message, name, partitions, number = names
    entries = [
        Named(**{name: topic, partitions: [Named(**{number: each}) for each in numbers]})
        for topic, numbers in topics.items()
    ]
    return Named(__api_key__=key, **{in_message: entries})


def check_partitions(key: int, requested: dict[str, list[int]], answered: dict[str, list[int]]) -> None:
    check_entries(message(key, REQUESTS[key], requested), message(key, RESPONSES[key], answered))


@pytest.mark.parametrize("key", REQUESTS)
def test_a_response_about_partitions_has_the_requested_ones(key: int) -> None:
    """Whatever their order."""
    request = {"a": [0, 1], "b": [0]}
    check_partitions(key, request, {"b": [0], "a": [1, 0]})
    for answered, reported in (
        ({"a": [1], "b": [0]}, "'a-0' is missing"),
        ({"b": [0]}, "'a-0' and 1 more are missing"),
        ({**request, "c": [7]}, "'c-7' was not asked about"),
        ({"c": [7, 8, 9]}, "'a-0' and 2 more are missing, 'c-7' and 2 more were not asked about"),
        ({**request, "b": []}, "'b-0' is missing, 'b-no partition' was not asked about"),
    ):
        with pytest.raises(OtherEntries) as other:
            check_partitions(key, request, answered)
        assert str(other.value) == f"is not about the partitions that were asked about: {reported}"
    with pytest.raises(OtherEntries, match=r"^names some of the partitions that were asked about more than once$"):
        check_partitions(key, request, {"a": [0, 1, 1], "b": [0]})


@pytest.mark.parametrize("key", REQUESTS)
def test_a_fetch_alone_may_be_answered_with_nothing(key: int) -> None:
    """A quota throttles it then."""
    if key == FETCH:
        check_partitions(key, {"a": [0]}, {})
    else:
        with pytest.raises(OtherEntries, match="'a-0' is missing"):
            check_partitions(key, {"a": [0]}, {})


@pytest.mark.parametrize(
    "question",
    [
        requests.produce("a", [(0, b"")], acks=1, timeout_ms=1),
        requests.fetch("a", 0, 0, bytes_max=1, wait_ms=1),
        requests.list_offsets("a", [0], -1),
    ],
    ids=["produce", "fetch", "list offsets"],
)
def test_the_partitions_of_kios_requests_are_found(question: Question) -> None:
    """Their fields have the names that are looked for."""
    request = request_in(question)
    key = request.__api_key__
    check_entries(request, message(key, RESPONSES[key], {"a": [0]}))
    with pytest.raises(OtherEntries, match="'a-0' is missing"):
        check_entries(request, message(key, RESPONSES[key], {"a": [1]}))


@pytest.mark.parametrize("answered", [["a", "b"], ["b"], ["a", "b", "c"], ["a", "b", "a"]])
def test_topics_and_configs_are_the_requested_ones(answered: list[str]) -> None:
    topics = Named(__api_key__=CREATE_TOPICS, topics=[Named(name="a"), Named(name="b")])
    configs = Named(__api_key__=DESCRIBE_CONFIGS, resources=[Named(resource_name="a"), Named(resource_name="b")])
    for request, response in (
        (topics, Named(topics=[Named(name=name) for name in answered])),
        (configs, Named(results=[Named(resource_name=name) for name in answered])),
    ):
        if answered == ["a", "b"]:
            check_entries(request, response)
        else:
            with pytest.raises(OtherEntries):
                check_entries(request, response)


def test_a_request_without_entries_is_not_checked() -> None:
    check_entries(request_in(requests.init_producer_id("t", transaction_timeout_ms=1)), Named())
