"""Declared topics."""

import pytest

from muster.coordinator.cluster import new_cluster
from muster.coordinator.topics import BadTopic, Topic, declare_topic, is_topic_name, topic_id


def test_a_topic_is_declared_with_its_partitions() -> None:
    assert declare_topic("orders:12") == Topic(name="orders", topic_id=topic_id("orders"), partitions=12)
    assert declare_topic(" orders ").partitions == 1


def test_a_topics_id_is_for_ever_the_same() -> None:
    """Clients remember it across restarts; the expected value is from the first version."""
    assert str(topic_id("orders")) == "25013ad9-5e53-572c-95a0-0567dc4cdb02"
    assert topic_id("orders") != topic_id("clicks")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":3",
        "orders:",
        "orders:0",
        "orders:-1",
        "orders:1_000",
        "orders:1.5",
        "orders:100001",
        "a b:1",
        "..:1",
        "x" * 250,
    ],
)
def test_a_bad_declaration_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadTopic):
        declare_topic(text)


@pytest.mark.parametrize(
    ("name", "is_name"),
    [("a", True), ("A.b_c-1", True), ("x" * 249, True), ("x" * 250, False), (".", False), ("é", False)],
)
def test_topic_names_are_kafkas(name: str, is_name: bool) -> None:
    assert is_topic_name(name) is is_name


def test_a_topic_cannot_be_declared_twice() -> None:
    with pytest.raises(BadTopic, match="orders"):
        new_cluster(
            cluster_id="c", node_id=1, host="h", port=1, topics=[declare_topic("orders:1"), declare_topic("orders:2")]
        )


def test_partitions_count_from_0() -> None:
    cluster = new_cluster(cluster_id="c", node_id=1, host="h", port=1, topics=[declare_topic("orders:2")])
    assert [cluster.has_partition("orders", index) for index in (-1, 0, 1, 2)] == [False, True, True, False]
    assert not cluster.has_partition("nope", 0)
