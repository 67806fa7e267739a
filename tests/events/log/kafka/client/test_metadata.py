"""The state of followed topics by Metadata's responses, and the requests: a table, without connection or clock."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata import v1, v4, v10

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.exchange import NotOffered
from muster.events.kafka.metadata import MetadataQuestion
from muster.events.log.kafka.client.followed import MISSING_FOR_S, FollowedTopics, MovedLeader

messages: Any = v10.response
ID, OTHER_ID = UUID(int=1), UUID(int=2)
METADATA = 3


def answer(*topics: Any, nodes: tuple[int, ...] = (1, 2), cluster_id: str = "c") -> Any:
    return messages.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=tuple(messages.MetadataResponseBroker(node_id=n, host="h", port=9000 + n) for n in nodes),
        cluster_id=cluster_id,
        controller_id=1,
        topics=topics,
    )


def topic(
    *leaders: tuple[int, int], name: str = "t", topic_id: UUID | None = ID, error: ErrorCode = ErrorCode.none
) -> Any:
    """`leaders`: the node and the leader epoch of each partition."""
    partitions = tuple(
        messages.MetadataResponsePartition(
            error_code=ErrorCode.none, partition_index=number, leader_id=node, leader_epoch=epoch, replica_nodes=(1, 2)
        )
        for number, (node, epoch) in enumerate(leaders)
    )
    return messages.MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)


MISSING = topic(error=ErrorCode.unknown_topic_or_partition, topic_id=None)


def answer_of_v4(*leaders: int) -> Any:
    """Without leader epochs and topic ids."""
    old: Any = v4.response
    partitions = tuple(
        old.MetadataResponsePartition(
            error_code=ErrorCode.none, partition_index=number, leader_id=node, replica_nodes=(1, 2), isr_nodes=(1, 2)
        )
        for number, node in enumerate(leaders)
    )
    return old.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=tuple(old.MetadataResponseBroker(node_id=n, host="h", port=9000 + n, rack=None) for n in (1, 2)),
        cluster_id="c",
        controller_id=1,
        topics=(
            old.MetadataResponseTopic(error_code=ErrorCode.none, name="t", is_internal=False, partitions=partitions),
        ),
    )


def following(*answers: Any) -> FollowedTopics:
    view = FollowedTopics()
    view.follow(["t"])
    for number, each in enumerate(answers):
        view.learn(each, float(number))
    return view


# ---- leaders ----------------------------------------------------------------------------------------


def test_the_contents_of_a_response_are_known() -> None:
    view = following(answer(topic((1, 0), (2, 0)), topic((2, 0), name="other")))
    assert [view.leader("t", 0), view.leader("t", 1), view.leader("t", 2)] == [1, 2, None]
    assert view.leader("other", 0) is None, "nobody follows it"
    assert view.brokers == {1: BrokerAddress("h", 9001), 2: BrokerAddress("h", 9002)}
    assert view.cluster_id == "c"


def test_a_leader_that_moved_is_reported_with_its_old_address() -> None:
    view = following(answer(topic((1, 0), (2, 0))))
    moved = view.learn(answer(topic((2, 1), (2, 0)), nodes=(2,)), 1.0)
    assert moved == [MovedLeader(topic="t", partition=0, was_at=BrokerAddress("h", 9001))]
    assert view.leader("t", 0) == 2


def test_a_broker_that_lags_behind_is_not_believed() -> None:
    """Its leader epoch is older, so its response is from before the move."""
    view = following(answer(topic((2, 5))))
    assert view.learn(answer(topic((1, 4))), 1.0) == []
    assert view.leader("t", 0) == 2
    assert view.learn(answer(topic((1, 5))), 2.0) != []


def test_an_answer_without_leader_epochs_is_older_than_one_with() -> None:
    """A broker from before Kafka 2.1 (Metadata v6) among newer ones, as in a rolling upgrade of brokers."""
    view = following(answer(topic((2, 0))))
    assert view.learn(answer_of_v4(1), 1.0) == []
    assert view.leader("t", 0) == 2
    older = following(answer_of_v4(1))
    assert older.leader("t", 0) == 1
    assert older.learn(answer(topic((2, 0))), 1.0) != []


def test_a_partition_without_a_leader_has_none_and_nothing_moves_from_there() -> None:
    view = following(answer(topic((1, 0))), answer(topic((-1, 1))))
    assert view.leader("t", 0) is None
    assert view.learn(answer(topic((2, 2))), 3.0) == []
    assert view.leader("t", 0) == 2


def test_a_response_without_brokers_is_ignored() -> None:
    """A broker that has just started knows no others yet."""
    view = following(answer(topic((1, 0))))
    assert view.learn(answer(MISSING, nodes=(), cluster_id="another"), 1.0) == []
    view.learn(answer(MISSING, nodes=()), 1.0 + MISSING_FOR_S)
    assert (view.leader("t", 0), view.cluster_id, sorted(view.brokers), view.refusals) == (1, "c", [1, 2], {})


@pytest.mark.parametrize("said", [topic(), topic((2, 9), error=ErrorCode.leader_not_available)])
def test_a_topic_with_an_error_or_without_partitions_is_ignored(said: Any) -> None:
    view = following(answer(topic((1, 0))), answer(said))
    assert (view.leader("t", 0), view.refusals) == (1, {})


def test_a_topic_that_is_no_longer_followed_is_forgotten() -> None:
    view = following(answer(topic((1, 0))))
    view.follow(["other"])
    assert view.leader("t", 0) is None
    assert list(view.topics) == ["other"]


# ---- topics that are not the same any more ----------------------------------------------------------


@pytest.mark.parametrize(("for_s", "is_deleted"), [(0.0, False), (MISSING_FOR_S - 0.1, False), (MISSING_FOR_S, True)])
def test_a_topic_counts_as_deleted_when_it_has_been_missing_for_a_while(for_s: float, is_deleted: bool) -> None:
    view = following(answer(topic((1, 0))))
    for now_s in (10.0, 10.0 + for_s):
        view.learn(answer(MISSING), now_s)
    assert list(view.refusals) == (["t"] if is_deleted else [])
    if is_deleted:  # another log is another name of the shadows upstream, which keep theirs for a while
        assert "only after its former shadow has left the cluster: within 30 minutes" in str(view.refusals["t"])


def test_a_topic_that_existed_in_between_starts_to_be_missing_again() -> None:
    view = following(answer(topic((1, 0))))
    for now_s, reported in ((10.0, MISSING), (12.0, topic((1, 0))), (10.0 + MISSING_FOR_S, MISSING)):
        view.learn(answer(reported), now_s)
    assert view.refusals == {}


def test_a_topic_that_was_never_seen_is_not_deleted() -> None:
    view = following(answer(MISSING))
    view.learn(answer(MISSING), 100.0)
    assert view.refusals == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (topic((2, 9), topic_id=OTHER_ID), "recreated while it was in use: "),
        (topic((2, 9), topic_id=OTHER_ID), "Restore the first one, or delete the new one and restart (it is created"),
        (topic((2, 9), (2, 9)), "has 2 partitions instead of 1"),
    ],
)
def test_a_topic_that_is_another_one_is_refused_and_not_followed(said: Any, why: str) -> None:
    view = following(answer(topic((1, 0))), answer(said))
    assert why in str(view.refusals["t"])
    assert view.leader("t", 0) == 1


def test_a_topic_id_learned_later_is_taken_as_the_first() -> None:
    """Brokers before Kafka 2.8 have none; a cluster has one after its upgrade."""
    view = following(answer(topic((1, 0), topic_id=None)), answer(topic((1, 0))), answer(topic((1, 0), topic_id=None)))
    assert view.refusals == {}
    view.learn(answer(topic((1, 0), topic_id=OTHER_ID)), 3.0)
    assert list(view.refusals) == ["t"]


# ---- the question -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("offered", "version"), [((0, 12), 10), ((10, 10), 10), ((0, 9), 4), ((4, 4), 4)])
def test_the_best_version_is_used_and_creates_no_topic(offered: tuple[int, int], version: int) -> None:
    requested = MetadataQuestion({"b", "a"}).prepare({METADATA: offered})
    request = requested.request
    assert requested.API_VERSION == version  # noqa: SIM300 -- it is not a constant
    assert request.allow_auto_topic_creation is False
    assert [each.name for each in request.topics] == ["a", "b"]
    assert requested._response is {10: v10, 4: v4}[version].response.MetadataResponse


def test_a_broker_that_would_create_topics_is_queried_about_none() -> None:
    """Before v4."""
    for first in (0, 1):
        requested = MetadataQuestion(()).prepare({METADATA: (first, 3)})
        assert (requested.API_VERSION, requested.request) == (1, v1.request.MetadataRequest(topics=()))
    for offered in ({METADATA: (0, 3)}, {METADATA: (11, 12)}, {}):
        with pytest.raises(NotOffered, match="Metadata v4"):
            MetadataQuestion({"t"}).prepare(offered)


def test_a_broker_without_metadata_is_queried_about_none() -> None:
    """Not even for its own name."""
    with pytest.raises(NotOffered, match="Metadata v4"):
        MetadataQuestion(()).prepare({})
