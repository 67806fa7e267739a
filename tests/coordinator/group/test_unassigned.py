"""Partitions that are assigned to no member: finding them, and the one rebalance that a group is asked for."""

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group import unassigned
from muster.coordinator.group.commands import ConfigOperation, RebalanceUnassigned
from muster.coordinator.group.configs import UNASSIGNED_DELAY, UPSTREAM
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome
from muster.coordinator.group.turn import Now
from muster.coordinator.group.unassigned import may_rebalance, shares_of
from muster.events.causes import Cause
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import GroupAdvanced, GroupConfigured, RebalanceStarted
from muster.events.state import GroupState, MemberRole, TopicSize
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story
from tests.replay.played import history_of
from tests.replay.whole import rerun

BOTH_TOPICS = protocols(metadata=subscription("orders", "payments"))
ASKED = [(GroupConfigured, Cause.PARTITIONS_UNASSIGNED), (RebalanceStarted, Cause.PARTITIONS_UNASSIGNED)]
SETTLED = [(GroupConfigured, Cause.PARTITIONS_ASSIGNED), (GroupAdvanced, Cause.PARTITIONS_ASSIGNED)]


def sync(h: Harness, *clients: Client, partitions: int = 6, topic: str = "orders") -> None:
    """Sync all members; the leader assigns the partitions to them in turn."""
    ids = [client.member_id for client in clients]
    shares = {
        member_id: encode_assignment({topic: range(place, partitions, len(ids))}) for place, member_id in enumerate(ids)
    }
    for client in sorted(clients, key=lambda client: client.is_leader):
        client.sync(shares if client.is_leader else None)
    assert h.state is GroupState.STABLE


def configured(delay_ms: str = "60000") -> tuple[Harness, Client, Client]:
    """Two static members with the six partitions of orders, in a group with the config."""
    h = Harness(group_id="grown")
    a, b = h.form(h.static("a"), h.static("b"))
    sync(h, a, b)
    h.set(members_unassigned_rebalance_delay_ms=delay_ms)
    return h, a, b


def report(h: Harness, **topics: int) -> Decision:
    named = tuple(TopicSize(topic=topic, partitions=partitions) for topic, partitions in topics.items())
    return h.send(RebalanceUnassigned(group_id=h.group_id, topics=named))


def rejoin(h: Harness, *clients: Client, partitions: int = 6) -> None:
    for client in clients:
        client.join()
    sync(h, *clients, partitions=partitions)


def rebalanced_for(h: Harness) -> dict[str, int]:
    return {each.topic: each.partitions for each in h.live.config.rebalanced_for}


def test_a_rebalance_is_requested_once_for_a_topic_that_has_grown() -> None:
    """If its leader still does not assign them, it is not asked again, even by the next owner."""
    h, a, b = configured()
    assert story(report(h, orders=8).events) == ASKED
    rejoin(h, a, b)
    assert not report(h, orders=8).events
    h.takeover()
    assert rebalanced_for(h) == {"orders": 8}
    assert not report(h, orders=8).events
    assert story(report(h, orders=9).events) == ASKED


def test_a_reassigned_topic_is_forgotten_so_that_the_next_growth_counts() -> None:
    """A topic may be deleted, and grow to the same number again."""
    h, a, b = configured()
    report(h, orders=8)
    rejoin(h, a, b, partitions=8)
    assert story(report(h, orders=8).events) == SETTLED
    assert rebalanced_for(h) == {}
    assert not report(h, orders=4).events
    (a if a.is_leader else b).join()
    rejoin(h, a, b, partitions=4)
    assert story(report(h, orders=8).events) == ASKED


def test_a_topic_that_shrinks_lacks_nothing() -> None:
    h, _, _ = configured()
    assert not report(h, orders=3).events


def test_a_static_member_that_returns_with_another_topic_causes_a_rebalance() -> None:
    """Kafka absorbs its restart (ST11), so the topic would have no consumer."""
    h, _, b = configured()
    b = b.restarted(protocols=BOTH_TOPICS)
    b.join()
    assert h.state is GroupState.STABLE
    assert story(report(h, orders=6, payments=2).events) == ASKED
    assert rebalanced_for(h) == {"payments": 2}


def test_a_static_member_that_returns_without_its_topic_causes_a_rebalance() -> None:
    """It keeps partitions of a topic that it does not subscribe; the topic's partition count is not needed."""
    h, _, b = configured()
    b.restarted(protocols=protocols(metadata=subscription("payments"))).join()
    assert story(report(h, orders=0).events) == ASKED
    assert not report(h, orders=0).events


def test_an_unsubscribed_topic_is_not_reported() -> None:
    h, _, _ = configured()
    assert not report(h, audit=12).events


@pytest.mark.parametrize("delay_ms", [None, "0"])
def test_a_group_without_the_config_is_left_alone(delay_ms: str | None) -> None:
    h, _, _ = configured(delay_ms or "60000")
    if delay_ms is None:
        h.alter((UNASSIGNED_DELAY, ConfigOperation.DELETE, None))
    assert not report(h, orders=8).events


def test_a_group_that_rebalances_or_has_retired_members_is_left_alone() -> None:
    """During a rebalance, and while retired members have left partitions unassigned on purpose."""
    h, a, b = configured()
    leader, follower = (a, b) if a.is_leader else (b, a)
    h.alter(("members.retired", ConfigOperation.SET, "a,b"))
    follower.leave()
    h.leave_instance(str(follower.instance))
    assert h.live.image.departures_gathered
    assert not report(h, orders=6).events
    h.alter(("members.retired", ConfigOperation.SET, ""))
    leader.join()
    assert h.state is not GroupState.STABLE
    assert not report(h, orders=8).events


def test_invalid_assignments_are_ignored() -> None:
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_unassigned_rebalance_delay_ms="60000")
    assert shares_of(h.live) is None
    assert not report(h, orders=8).events


def test_a_group_that_is_moving_to_the_cluster_is_not_rebalanced() -> None:
    h, _, _ = configured()
    assert may_rebalance(h.live)
    h.live.config = msgspec.structs.replace(h.live.config, coordinator=UPSTREAM)
    assert not may_rebalance(h.live)


def test_a_topic_subscribed_only_by_learners_is_not_unassigned() -> None:
    """A learner gets no partitions before its promotion, so a rebalance would change nothing."""
    h, _, _ = configured()
    h.set(members_learner_timeout_ms="600000")
    learner = h.static("c", protocols=BOTH_TOPICS)
    learner.join()
    learner.sync()
    assert h.live.members[learner.member_id].role is MemberRole.LEARNER
    assert not report(h, orders=6, payments=2).events


def test_a_group_that_is_not_of_consumers_is_left_alone() -> None:
    """Its metadata may look like a subscription by chance."""
    h = Harness()
    (a,) = h.form(h.static("a", protocol_type="connect"))
    sync(h, a)
    h.set(members_unassigned_rebalance_delay_ms="60000")
    assert shares_of(h.live) is None
    assert not report(h, orders=8).events


@pytest.mark.parametrize("limit", ["SHARES_MAX", "BYTES_MAX"])
def test_a_group_that_lists_more_than_can_be_examined_is_left_alone(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members may list as many topics as fit into a request."""
    h, _, _ = configured()
    monkeypatch.setattr(unassigned, limit, 6)
    assert shares_of(h.live) is None
    assert not report(h, orders=8).events


def test_partitions_that_are_missing_in_between_are_unassigned() -> None:
    """A leader may leave out the first ones, or assign numbers that the topic does not have."""
    h, a, b = configured()
    leader = a if a.is_leader else b
    for each in (a, b):
        each.join()
    for each in sorted((a, b), key=lambda client: client.is_leader):
        each.sync({a.member_id: encode_assignment({"orders": [1, 2, 9]})} if each is leader else None)
    shares = shares_of(h.live)
    assert shares is not None
    assert [sorted(shares.unassigned("orders", partitions)) for partitions in (1, 3, 4)] == [[0], [0], [0, 3]]
    assert rebalanced_for(h) == {}
    report(h, orders=3)
    assert rebalanced_for(h) == {"orders": 3}


def test_setting_the_config_again_allows_another_attempt() -> None:
    h, a, b = configured()
    report(h, orders=8)
    rejoin(h, a, b)
    h.set(members_unassigned_rebalance_delay_ms="30000")
    assert rebalanced_for(h) == {}
    assert story(report(h, orders=8).events) == ASKED


def test_a_log_that_cannot_keep_the_config_refuses_it() -> None:
    """With an older format level it would be lost at the next takeover."""
    h, _, _ = configured()
    call = h.alter((UNASSIGNED_DELAY, ConfigOperation.SET, "5000"))
    old = Now(monotonic_ms=h.now_ms, wall_ms=h.wall_ms, owner_epoch=0, incarnation=1, format_level=6)
    (reply,) = decide(call.command, h.group, h.soft, old, h.settings).replies
    assert isinstance(reply.outcome, AlterGroupConfigOutcome)
    assert reply.outcome.error is ErrorCode.invalid_config
    assert reply.outcome.message is not None
    assert "the event log has format level 6, which cannot store it" in reply.outcome.message
    assert "`muster log upgrade`" in reply.outcome.message


def test_the_rules_give_again_what_was_recorded() -> None:
    """`muster replay verify` derives the command from the events."""
    h, a, b = configured()
    report(h, orders=8)
    rejoin(h, a, b, partitions=8)
    report(h, orders=8)
    again = rerun(history_of(h, h.settings))
    assert again.differences == []
    named = [each.command for each in again.inputs if isinstance(each.command, RebalanceUnassigned)]
    assert [each.topics for each in named] == [
        (TopicSize(topic="orders", partitions=8),),
        (TopicSize(topic="orders", partitions=0),),
    ]


def test_a_topic_that_grows_again_is_requested_although_the_list_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on the list already; another topic would not fit."""
    monkeypatch.setattr(unassigned, "ASKED_MAX", 1)
    h, a, b = configured()
    report(h, orders=8)
    rejoin(h, a, b)
    assert story(report(h, orders=9).events) == ASKED
    assert rebalanced_for(h) == {"orders": 9}
