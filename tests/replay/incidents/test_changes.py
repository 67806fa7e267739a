"""The sentences about partitions, subscriptions, second rounds, and rebalances on request.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

import re

import pytest

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    Caller,
    ConfigChange,
    ConfigOperation,
)
from muster.coordinator.group.configs import REBALANCE, TARGET_GROUP_SIZE
from muster.events.causes import Cause
from muster.events.state import GroupState
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from tests.replay.histories import Script
from tests.replay.incidents.fleet import BOTH, QUIET_MS, Fleet, expect, statements
from tests.replay.whole import incidents

S = 1_000
ALTER_CONFIGS = 44
CACHED = "cached metadata has changed"


@pytest.mark.parametrize(
    ("reason", "grade"),
    [
        (None, "inferred"),
        ("cached metadata has changed from (..) at the beginning of the rebalance to (..)", "recorded"),
    ],
)
@BOTH
def test_partitions_are_shown_before_and_after(reason: str | None, grade: str, level: int) -> None:
    """From 12 to 24 partitions, with the same subscription."""
    fleet = Fleet(3)
    fleet.world.partitions["orders"] = 24
    fleet.world.leader().rejoin_soon(reason)
    fleet.rest(5 * S)
    incident = fleet.only(level)
    expect(
        incident,
        "partitions-changed",
        grade,
        "orders has 24 partitions instead of 12: the leader 'app-2' (10.0.1.2) rejoined with the same"
        " subscription for that",
    )
    assert "rejoined, still subscribed to orders" in statements(incident, "recorded")


@pytest.mark.parametrize(
    ("partitions", "kind", "headline"),
    [
        ({"orders": 12, "payments": 1}, "partitions-changed", "payments is new to the group, with 1 partition: ..."),
        ({"orders": 7}, "partitions-changed", "orders has 7 partitions instead of 12: ..."),
        ({"refunds": 3}, "enforced", "... asked for a new assignment with the same subscription; why is not recorded"),
        ({"orders": 12, "refunds": 3}, "partitions-changed", "refunds is new to the group, with 3 partitions: ..."),
    ],
)
def test_added_shrunk_and_removed_topics_are_reported(partitions: dict[str, int], kind: str, headline: str) -> None:
    """The members subscribed to all of them before. If none of the assigned partitions is left, nothing can be said."""
    fleet = Fleet(0)
    for number in (1, 2, 3):
        fleet.start(number, fleet.setup(number).but(topics=("orders", "payments", "refunds")))
    fleet.rest(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    fleet.world.partitions = partitions
    fleet.world.leader().rejoin_soon()
    fleet.rest(5 * S)
    culprits = ("app-2",) if kind == "enforced" else ()
    reported = [each for each in fleet.told() if each.kind != "unassigned-topic"]  # lost partitions have no owner
    expect(reported[0], kind, "inferred", headline, *culprits)
    assert len(reported) == 1


@BOTH
def test_a_changed_subscription_is_shown_before_and_after(level: int) -> None:
    """The leader's subscription."""
    fleet = Fleet(3)
    fleet.world.partitions["payments"] = 6
    leader = fleet.world.leader()
    leader.setup = leader.setup.but(topics=("orders", "payments"))
    leader.rejoin_soon()
    fleet.rest(5 * S)
    headline = "'app-2' (10.0.1.2) subscribed to other topics: orders, payments instead of orders"
    expect(fleet.only(level), "subscription-change", "recorded", headline, "app-2")


@BOTH
def test_a_second_round_begins_soon_after_the_end_of_the_first_however_long_that_was(level: int) -> None:
    """The leader was slow; neither the partitions nor the application caused it."""
    fleet = Fleet(11, library="kafka-python", rebalance_ms=300 * S, assignors=("cooperative-sticky",))
    fleet.world.leader().assign_slow_ms = 100 * S
    fleet.start(12)
    fleet.rest(200 * S)
    slow, new = fleet.told(level)
    assert (slow.kind, len(slow.rebalances), new.kind) == ("slow-leader", 2, "scale-up")


@BOTH
def test_a_second_round_lists_the_revoked_partitions(level: int) -> None:
    """And it belongs to the incident of the first round."""
    fleet = Fleet(3, assignors=("cooperative-sticky",))
    fleet.start(4)
    fleet.rest(10 * S)
    incident = fleet.only(level)
    expect(incident, "scale-up", "recorded", "a new process joined: 'app-4' (10.0.1.4)", "app-4")
    assert len(incident.rebalances) == 2
    for number in (1, 2, 3):
        gave_up = rf"'app-{number}' \(10.0.1.{number}\) rejoined without orders \d+, which it had revoked"
        assert re.search(gave_up, statements(incident, "recorded"))


@pytest.mark.parametrize("polls_late", [False, True])
def test_a_second_round_lists_only_members_that_revoked(*, polls_late: bool) -> None:
    """Two of five had more than two partitions; the second may rejoin last, after members that kept theirs."""
    fleet = Fleet(5, assignors=("cooperative-sticky",))
    fleet.start(6)
    fleet.run(2 * S)
    if polls_late:
        fleet[1].setup = fleet[1].setup.but(poll_ms=8 * S)
    fleet.rest(10 * S)
    assert statements(fleet.only()).count("which it had revoked") == 2


def test_a_second_round_in_which_a_process_comes_back_is_of_the_incident_of_the_first() -> None:
    """The restart's incident has the rebalance that the process started."""
    fleet = Fleet(4, assignors=("cooperative-sticky",))
    fleet[2].close()
    fleet.rest(10 * S)
    fleet.start(5)
    rebalances = len(fleet.world.view.rebalances)
    while len(fleet.world.view.rebalances) < rebalances + 1 or not fleet.world.leader().is_joining:
        fleet.run(10)
    fleet.start(2)
    fleet.rest(10 * S)
    restart, scale_up = fleet.told()
    assert (restart.kind, len(restart.rebalances)) == ("restart", 1)
    assert (scale_up.kind, len(scale_up.rebalances)) == ("scale-up", 2)


def test_a_requested_rebalance_beside_a_plan_is_a_separate_incident() -> None:
    """The plan came first."""
    fleet = Fleet(3)
    fleet.configure(TARGET_GROUP_SIZE, "3")
    fleet.run(S)
    fleet.configure(REBALANCE, "force")
    fleet.rest(10 * S)
    assert {each.kind for each in fleet.told()} == {"planned", "enforced"}


def test_a_plan_lists_the_changed_configs_with_old_and_new_values() -> None:
    """The reader would otherwise have to look up the value in `history`."""
    fleet = Fleet(3)
    fleet.configure(TARGET_GROUP_SIZE, "3")
    fleet.run(S)
    fleet.configure(TARGET_GROUP_SIZE, "2")
    fleet.rest(10 * S)
    (planned,) = (each for each in fleet.told() if each.kind == "planned")
    assert f"{TARGET_GROUP_SIZE} was set to 3 and {TARGET_GROUP_SIZE} from 3 to 2" in planned.headline


def test_a_rebalance_that_follows_since_an_assignment_could_not_be_stored_is_of_the_same_incident() -> None:
    """Nothing else happened in between."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.wait(S).start(why=script.why(Cause.ASSIGNMENT_NOT_STORED, script.of("a")))
    script.wait(S).complete(script.rejoined(script.of("a"))).stabilize({"a": {"orders": [0]}})
    (incident,) = incidents(script.history())
    assert (incident.kind, [each.to_generation for each in incident.rebalances]) == ("start", [1, 2])


@BOTH
def test_a_rebalance_that_the_application_enforced_is_its(level: int) -> None:
    """The headline names the client that asked, and quotes its reason."""
    fleet = Fleet(3)
    fleet.world.leader().rejoin_soon("rebalance enforced by user")
    fleet.rest(5 * S)
    headline = "'app-2' (10.0.1.2) asked for a rebalance; the client says: \"rebalance enforced by user\""
    expect(fleet.only(level), "enforced", "recorded", headline, "app-2")


OWN_WORDS = "triggered followup rebalance scheduled for 1795880000000"


@BOTH
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_an_applications_own_reason_is_quoted(assignor: str, level: int) -> None:
    """Kafka Streams' leader asks repeatedly, also right after a rebalance that another member began."""
    fleet = Fleet(3, assignors=(assignor,))
    fleet.start(4)
    fleet.rest(8 * S)
    fleet.world.leader().rejoin_soon(OWN_WORDS)
    fleet.rest(5 * S)
    headline = f"'app-2' (10.0.1.2) asked for a rebalance; the client says: \"{OWN_WORDS}\""
    _, found = fleet.told(level)
    expect(found, "enforced", "recorded", headline, "app-2")
    assert len(found.rebalances) == 1


@pytest.mark.parametrize("reason", ["rebalance failed due to DisconnectException", "group is already rebalancing"])
def test_a_clients_own_action_is_not_an_application_request(reason: str) -> None:
    """Its reason is quoted if it says more than the event."""
    fleet = Fleet(3)
    fleet.world.leader().rejoin_soon(reason)
    fleet.rest(5 * S)
    why = f'the client says: "{reason}"' if "failed" in reason else "why is not recorded"
    headline = f"'app-2' (10.0.1.2) asked for a new assignment with the same subscription; {why}"
    expect(fleet.only(), "enforced", "inferred", headline, "app-2")


def test_an_application_that_asks_when_a_topic_has_grown_is_quoted_with_that() -> None:
    """It is not known which of the two was the cause, so both are reported."""
    fleet = Fleet(3)
    fleet.world.partitions["orders"] = 24
    fleet.world.leader().rejoin_soon(OWN_WORDS)
    fleet.rest(5 * S)
    headline = f'... asked for a rebalance; the client says: "{OWN_WORDS}"; orders has 24 partitions instead of 12'
    expect(fleet.only(), "enforced", "recorded", headline, "app-2")


def test_the_words_of_an_application_that_changes_its_subscription_are_quoted() -> None:
    """The Java client's own reasons are not quoted: they say no more than the event."""
    for reason, ending in ((OWN_WORDS, f'; the client says: "{OWN_WORDS}"'), ("the subscription has changed from", "")):
        fleet = Fleet(3)
        fleet.world.partitions["payments"] = 6
        leader = fleet.world.leader()
        leader.setup = leader.setup.but(topics=("orders", "payments"))
        leader.rejoin_soon(reason)
        fleet.rest(5 * S)
        headline = f"'app-2' (10.0.1.2) subscribed to other topics: orders, payments instead of orders{ending}"
        expect(fleet.only(), "subscription-change", "recorded", headline, "app-2")


def test_the_reasons_of_members_that_leave_are_quoted_also_where_they_differ() -> None:
    """A few distinct ones are quoted; that a client was closed is no reason of its own."""
    fleet = Fleet(6)
    reasons = ("moving to another cluster", "the consumer is being closed", "low on memory", "low on memory", None)
    for number, reason in enumerate(reasons, start=1):
        fleet[number].close(reason)
    fleet.rest(20 * S)
    assert fleet.only().headline.endswith('; the clients say: "moving to another cluster" and "low on memory"')


@BOTH
def test_a_rebalance_requested_by_an_administrator_names_the_administrator(level: int) -> None:
    """The headline has client, address and principal."""
    fleet = Fleet(3)
    forced = ConfigChange(name=REBALANCE, operation=ConfigOperation.SET, value="force")

    def alter(caller: Caller) -> AlterGroupConfig:
        return AlterGroupConfig(group_id=GROUP_ID, caller=caller, changes=(forced,), validate_only=False)

    fleet.world.administer(fleet.story, alter, api_key=ALTER_CONFIGS)
    fleet.rest(5 * S)
    headline = "an administrator (client admin-1 at 10.0.200.1, User:admin) asked for a rebalance"
    expect(fleet.only(level), "enforced", "recorded", headline)


@pytest.mark.parametrize(
    ("after_ms", "kinds"), [(500, ["scale-up"]), (8 * S, ["scale-up", "enforced"])], ids=["at once", "later"]
)
def test_an_immediate_second_request_of_a_leader_is_the_same_incident(after_ms: int, kinds: list[str]) -> None:
    """kafka-python's leader does so, without a reason, if it had not noticed its assignment."""
    fleet = Fleet(3, poll_ms=0)
    fleet.start(4)
    fleet.rest(S)
    fleet.run(after_ms)
    fleet.world.leader().rejoin_soon()
    fleet.rest(5 * S)
    assert [each.kind for each in fleet.told()] == kinds


def test_an_immediate_second_request_of_a_leader_with_a_reason_is_a_separate_incident() -> None:
    """The leader had finished its assignment, and its reason is about a later change."""
    fleet = Fleet(3, poll_ms=0)
    fleet.start(4)
    fleet.rest(S)
    fleet.world.partitions["orders"] = 24
    fleet.world.leader().rejoin_soon("cached metadata has changed from (..) to (..)")
    fleet.rest(5 * S)
    assert [each.kind for each in fleet.told()] == ["scale-up", "partitions-changed"]


def test_topics_that_the_leader_did_not_know_at_first_are_of_the_change_of_subscription() -> None:
    """The leader assigned none of their partitions, learned about them, and asked again: no partitions were added."""
    fleet = Fleet(3, poll_ms=0)
    leader = fleet.world.leader()
    other = next(each for each in fleet.world.live if each is not leader)
    other.setup = other.setup.but(topics=("orders", "payments"))
    other.rejoin_soon()
    fleet.rest(4 * S)
    fleet.world.partitions["payments"] = 6
    leader.rejoin_soon()
    fleet.rest(5 * S)
    (incident,) = fleet.told()
    assert (incident.kind, len(incident.rebalances)) == ("subscription-change", 2)


def test_members_with_different_subscriptions_are_reported_separately() -> None:
    """The first member's change used to be reported for all of them."""
    fleet = Fleet(3)
    fleet.world.partitions["payments"] = 6
    for number, topics in ((1, ("orders", "payments")), (2, ("payments",))):
        fleet[number].setup = fleet[number].setup.but(topics=topics)
        fleet[number].rejoin_soon()
        fleet.rest(20 * S)
    first, second = fleet.told()
    headline = "'app-1' (10.0.1.1) subscribed to other topics: orders, payments instead of orders"
    expect(first, "subscription-change", "recorded", headline, "app-1")
    headline = "'app-2' (10.0.1.2) subscribed to other topics: payments instead of orders"
    expect(second, "subscription-change", "recorded", headline, "app-2")


def test_partitions_that_are_added_are_no_second_round_of_a_cooperative_assignor() -> None:
    """They are added within a minute after a member joined, whose two rounds are another incident."""
    fleet = Fleet(3, assignors=("cooperative-sticky",))
    fleet.start(4)
    fleet.rest(10 * S)
    fleet.world.partitions["orders"] = 24
    fleet.world.leader().rejoin_soon("cached metadata has changed")
    fleet.rest(5 * S)
    scale_up, added = fleet.told()
    assert (scale_up.kind, len(scale_up.rebalances)) == ("scale-up", 2)
    assert (added.kind, len(added.rebalances)) == ("partitions-changed", 1)
    assert added.headline.startswith("orders has 24 partitions instead of 12: ")


def test_a_topic_that_the_leader_restores_at_once_is_not_new() -> None:
    """The leader unsubscribed and assigned before it knew the partitions of this topic, which another member keeps."""
    fleet = Fleet(2, poll_ms=0)
    fleet.world.partitions["payments"] = 6
    for number in (1, 2):
        fleet[number].setup = fleet[number].setup.but(topics=("orders", "payments"))
        fleet[number].rejoin_soon()
    fleet.rest(10 * S)
    leader = fleet.world.leader()
    leader.setup = leader.setup.but(topics=("orders",))
    del fleet.world.partitions["payments"]
    leader.rejoin_soon("subscription has changed")
    fleet.rest(S)
    fleet.world.partitions["payments"] = 6
    leader.rejoin_soon("cached metadata has changed")
    fleet.rest(5 * S)
    *_, unsubscribed = fleet.told()
    assert (unsubscribed.kind, len(unsubscribed.rebalances)) == ("subscription-change", 2)


@BOTH
def test_the_clients_word_on_metadata_is_reported_if_partitions_are_unchanged(level: int) -> None:
    """The client may have forgotten its topics briefly: no partitions were changed."""
    fleet = Fleet(3)
    fleet.world.leader().rejoin_soon(CACHED)
    fleet.rest(5 * S)
    expect(
        fleet.only(level),
        "metadata-changed",
        "recorded",
        "the leader 'app-2' (10.0.1.2) asked for a new assignment; the client says: \"cached metadata has changed\";"
        " the same partitions were assigned as before",
    )


def test_without_partitions_in_the_log_only_the_clients_word_is_reported() -> None:
    """An assignment cannot be decoded."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({"a": b"?"})
    script.wait(QUIET_MS).start(script.rejoined(script.of("a"), Cause.LEADER_REJOINED, reason=CACHED))
    script.wait(S).complete().stabilize({"a": b"?"})
    *_, found = incidents(script.history())
    assert (found.kind, found.grade) == ("metadata-changed", "recorded")
    assert found.headline.endswith("; whether its topics have other partitions is not in the log")


def test_partitions_are_shown_from_the_next_assignment_after_another_rebalance() -> None:
    """A process joined while the leader assigned the new partitions."""
    fleet = Fleet(3)
    fleet.world.partitions["orders"] = 24
    leader = fleet.world.leader()
    leader.assign_slow_ms = 2 * S
    leader.rejoin_soon(CACHED)
    while fleet.world.state is not GroupState.COMPLETING_REBALANCE:
        fleet.run(10)
    fleet.start(4)
    fleet.rest(10 * S)
    added, _ = fleet.told()
    assert added.kind == "partitions-changed"
    assert added.headline.startswith("orders has 24 partitions instead of 12: ")


def test_a_member_that_requests_repeatedly_is_reported_once() -> None:
    """The incident has the number of requests, the first and the last time; Kafka Streams' reason contains a time."""
    fleet = Fleet(3)
    for number in range(4):
        fleet.world.leader().rejoin_soon(f"triggered followup rebalance scheduled for {number}")
        fleet.rest(20 * S)
    incident = fleet.only()
    headline = (
        "'app-...' (...) asked for a rebalance 4 times within 1 min ...; the client says: "
        '"triggered followup rebalance scheduled for 0", and the last time "triggered followup rebalance scheduled for'
        ' 3"'
    )
    assert len(incident.culprits) == 1
    expect(incident, "enforced", "recorded", headline, incident.culprits[0].client_id)
    assert len(incident.rebalances) == 4
    assert [each.text.rpartition(") ")[2] for each in incident.chain if "asked the" in each.text] == [
        "asked the first time",
        "asked the last time",
    ]
