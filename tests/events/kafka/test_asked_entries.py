"""A response to one of aiokafka's requests is about what was asked, once each, or it is refused."""

from types import SimpleNamespace

import pytest

from muster.events.kafka.asked_entries import OtherEntries, check_tuples

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS = 0, 1, 2, 19, 22, 32


def of_partitions(*partitions: tuple[str, int]) -> SimpleNamespace:
    return SimpleNamespace(topics=[(topic, [(number, "and more")]) for topic, number in partitions])


def check_partitions(key: int, asked: list[tuple[str, int]], answered: list[tuple[str, int]]) -> None:
    request = of_partitions(*asked)
    request.API_KEY = key
    check_tuples(request, of_partitions(*answered))


@pytest.mark.parametrize("key", [PRODUCE, FETCH, LIST_OFFSETS])
def test_a_response_about_partitions_has_those_that_were_asked_about(key: int) -> None:
    """Whatever their order."""
    asked = [("a", 0), ("a", 1), ("b", 0)]
    check_partitions(key, asked, asked[::-1])
    for answered, told in (
        (asked[1:], "'a-0' is missing"),
        (asked[2:], "'a-0' and 1 more are missing"),
        ([*asked, ("c", 7)], "'c-7' was not asked about"),
        ([("c", 7), ("c", 8), ("c", 9)], "'a-0' and 2 more are missing, 'c-7' and 2 more were not asked about"),
    ):
        with pytest.raises(OtherEntries) as other:
            check_partitions(key, asked, answered)
        assert str(other.value) == f"is not about the partitions that were asked about: {told}"
    with pytest.raises(OtherEntries, match=r"^names some of the partitions that were asked about more than once$"):
        check_partitions(key, asked, [*asked, ("a", 1)])


@pytest.mark.parametrize(("key", "may_be_empty"), [(PRODUCE, False), (FETCH, True), (LIST_OFFSETS, False)])
def test_a_fetch_alone_may_be_answered_with_nothing(key: int, may_be_empty: bool) -> None:
    """A quota throttles it then."""
    if may_be_empty:
        check_partitions(key, [("a", 0)], [])
    else:
        with pytest.raises(OtherEntries, match="'a-0' is missing"):
            check_partitions(key, [("a", 0)], [])


def test_a_topic_without_partitions_is_no_partition() -> None:
    request = of_partitions(("a", 0))
    request.API_KEY = LIST_OFFSETS
    with pytest.raises(OtherEntries, match="'a-0' is missing, 'a-no partition' was not asked about"):
        check_tuples(request, SimpleNamespace(topics=[("a", [])]))


@pytest.mark.parametrize("answered", [["a", "b"], ["b"], ["a", "b", "c"], ["a", "b", "a"]])
def test_topics_that_are_made_and_configs_that_are_described_are_those_that_were_asked_for(answered: list[str]) -> None:
    """Names stand where Kafka has them: the first of a topic, the second and fourth of a resource."""
    topics = SimpleNamespace(API_KEY=CREATE_TOPICS, create_topic_requests=[("a", 1), ("b", 1)])
    configs = SimpleNamespace(API_KEY=DESCRIBE_CONFIGS, resources=[(2, "a", None), (2, "b", None)])
    for request, response in (
        (topics, SimpleNamespace(topic_errors=[(name, 0, None) for name in answered])),
        (configs, SimpleNamespace(resources=[(0, None, 2, name, []) for name in answered])),
    ):
        if answered == ["a", "b"]:
            check_tuples(request, response)
        else:
            with pytest.raises(OtherEntries):
                check_tuples(request, response)


def test_what_has_no_entries_is_not_looked_at() -> None:
    check_tuples(SimpleNamespace(API_KEY=INIT_PRODUCER_ID), SimpleNamespace())
