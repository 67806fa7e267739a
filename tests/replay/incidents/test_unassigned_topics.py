"""The sentences about subscribed topics that are assigned to no member."""

import pytest

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    RebalanceUnassigned,
)
from muster.coordinator.group.configs import REBALANCE
from muster.events.consumer_protocol import encode_assignment
from muster.events.ids import MemberId
from muster.events.state import TopicSize
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history.window import AtTime
from muster.replay.render.incident_table import cost_text
from muster.replay.text.times import wall_ms_of
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.replay.incidents.fleet import BOTH, Fleet, expect, of_kind, statements
from tests.replay.played import history_of
from tests.replay.whole import incidents, state_at

S = 1_000


def restart_with(fleet: Fleet, number: int, *topics: str) -> None:
    """End a static member and start it at once with another subscription."""
    fleet[number].close()
    fleet.run(S)
    fleet.start(number, fleet.setup(number).but(topics=topics))
    fleet.run(5 * S)


def rebalance(fleet: Fleet) -> None:
    """Let an administrator ask for a rebalance."""
    change = ConfigChange(name=REBALANCE, operation=ConfigOperation.SET, value="force")
    fleet.world.administer(
        fleet.story,
        lambda caller: AlterGroupConfig(group_id=GROUP_ID, caller=caller, changes=(change,), validate_only=False),
    )
    fleet.rest(5 * S)


@BOTH
def test_a_static_member_that_returns_with_another_topic_is_reported(level: int) -> None:
    """There was no rebalance, so it has no owner; the member's restart is an incident of its own."""
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    restart_with(fleet, 2, "orders", "payments")
    fleet.run(60 * S)
    found = fleet.told(level)
    assert sorted(each.kind for each in found) == ["restart", "unassigned-topic"]
    unassigned = of_kind(found, "unassigned-topic")
    expect(
        unassigned,
        "unassigned-topic",
        "recorded",
        "'app-2' (10.0.1.2) came back with another subscription, and the group did not rebalance: payments is"
        " assigned to no member so far",
        "app-2",
    )
    assert statements(unassigned) == (
        "'app-2' (10.0.1.2) came back subscribed to orders, payments instead of orders, and was given the assignment"
        " that it had"
    )
    assert "muster members rebalance orders" in unassigned.advice[0]
    assert unassigned.rebalances == ()


def test_the_state_of_the_group_has_a_note_until_it_is_assigned() -> None:
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    restart_with(fleet, 2, "orders", "payments")
    state = state_at(fleet.history(), AtTime(fleet.wall_ms))
    assert state is not None
    assert state.notes == ("subscribed by members and assigned to no member: payments",)
    rebalance(fleet)
    healed = state_at(fleet.history(), AtTime(fleet.wall_ms))
    assert healed is not None
    assert healed.notes == ()


def test_it_ends_with_the_next_requested_rebalance() -> None:
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    restart_with(fleet, 2, "orders", "payments")
    fleet.run(55 * S)
    rebalance(fleet)
    unassigned = of_kind(fleet.told(), "unassigned-topic")
    assert unassigned.headline.endswith("payments is assigned to no member, for 1 min 01 s, until the next assignment")
    assert unassigned.ended_at is not None
    began_ms, ended_ms = wall_ms_of(unassigned.started_at), wall_ms_of(unassigned.ended_at)
    assert unassigned.cost.unassigned_partition_ms == unassigned.cost.partition_ms == 6 * (ended_ms - began_ms)
    assert cost_text(unassigned.cost) == (
        "368.2 partition-seconds without a consumer (368.2 while no member was assigned their topic)"
    )


def test_a_topic_removed_by_the_leader_costs_its_partitions() -> None:
    """Also if it is still unassigned; the other topic was assigned all the time."""
    fleet = Fleet(2)
    fleet.world.partitions["payments"] = 6
    for number in (1, 2):
        fleet[number].setup = fleet[number].setup.but(topics=("orders", "payments"))
    fleet.world.leader().rejoin_soon()
    fleet.rest(20 * S)
    del fleet.world.partitions["payments"]
    fleet.world.leader().rejoin_soon()
    fleet.rest(60 * S)
    unassigned = of_kind(fleet.told(), "unassigned-topic")
    assert unassigned.ended_at is not None
    lasted_ms = wall_ms_of(unassigned.ended_at) - wall_ms_of(unassigned.started_at)
    assert unassigned.cost.unassigned_partition_ms == 6 * lasted_ms


def test_a_deployment_with_another_subscription_is_reported_once() -> None:
    """All members come back with it: a deployment, and the topic that it left unassigned."""
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    for number in (1, 2, 3):
        restart_with(fleet, number, "orders", "payments")
    fleet.run(60 * S)
    unassigned = of_kind(fleet.told(), "unassigned-topic")
    assert {each.group_instance_id for each in unassigned.culprits} == {"app-1", "app-2", "app-3"}


def test_a_nonexistent_topic_is_reported_as_not_assigned_by_the_leader() -> None:
    """The reason is not recorded."""
    fleet = Fleet(3)
    fleet.start(4, fleet.setup(4).but(topics=("orders", "odrers")))
    fleet.rest(5 * S)
    fleet.run(60 * S)
    unassigned = of_kind(fleet.told(), "unassigned-topic")
    expect(
        unassigned,
        "unassigned-topic",
        "inferred",
        "odrers is subscribed and assigned to no member so far: there is no such topic, or the leader's client does not"
        " know of it",
    )
    assert statements(unassigned, "recorded") == "the leader's assignment has no partition of odrers"
    assert unassigned.cost.partition_ms is None
    assert cost_text(unassigned.cost) == "an unknown number of partition-seconds without a consumer"


@pytest.mark.parametrize("topics", [("orders",), ("orders", "payments")])
def test_topics_that_other_members_have_are_not_reported(topics: tuple[str, ...]) -> None:
    """A static member comes back with a topic that other members read already."""
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    leader = fleet.world.leader()
    leader.setup = leader.setup.but(topics=("orders", "payments"))
    leader.rejoin_soon()
    fleet.rest(5 * S)
    other = next(number for number in (1, 2, 3) if fleet[number] is not leader)
    restart_with(fleet, other, *topics)
    fleet.run(60 * S)
    assert "unassigned-topic" not in {each.kind for each in fleet.told()}


def test_a_topic_assigned_within_seconds_is_not_reported() -> None:
    """A new member makes all rebalance."""
    fleet = Fleet(3, static=3)
    fleet.world.partitions["payments"] = 6
    restart_with(fleet, 2, "orders", "payments")
    fleet.start(4)
    fleet.rest(5 * S)
    assert "unassigned-topic" not in {each.kind for each in fleet.told()}


def assign(clients: tuple[Client, ...], *numbers: int) -> None:
    """The leader assigns all of these partitions of orders to itself."""
    leader = next(client for client in clients if client.is_leader)
    shares: dict[MemberId, bytes] = {
        client.member_id: encode_assignment({"orders": numbers if client is leader else ()}) for client in clients
    }
    for client in sorted(clients, key=lambda client: client.is_leader):
        client.sync(shares if client is leader else None)


def rebalanced(h: Harness, clients: tuple[Client, ...], *numbers: int) -> None:
    for client in clients:
        client.join()
    assign(clients, *numbers)


@pytest.mark.parametrize(
    ("assigned", "since"),
    [
        ([(0, 1, 2, 3, 4, 5)], "orders grew from 6 to 8 partitions"),
        ([(0, 1, 2, 6, 7)], "orders 3-5 were assigned to no member"),
        ([(0, 1, 2, 3, 4, 6, 7)], "orders 5 was assigned to no member"),
        ([tuple(range(8)), (0, 1, 2, 3, 4, 5)], "orders 6-7 were assigned to no member"),
        ([(0, 1, 2, 3, 5)], "orders 4, 6-7 were assigned to no member, and it grew from 6 to 8 partitions"),
        ([()], "orders was subscribed, and none of its 8 partitions was assigned"),
    ],
)
def test_a_topic_grew_only_if_the_assignments_had_fewer_partitions(assigned: list[tuple[int, ...]], since: str) -> None:
    """A leader may leave out partitions of a topic that has not grown."""
    h = Harness(group_id="grown")
    clients = h.form(h.static("a"), h.static("b"))
    assign(clients, *assigned[0])
    for numbers in assigned[1:]:
        h.sleep(1_000)
        next(client for client in clients if client.is_leader).join()
        rebalanced(h, clients, *numbers)
    h.set(members_unassigned_rebalance_delay_ms="60000")
    h.sleep(1_000)
    h.send(RebalanceUnassigned(group_id=h.group_id, topics=(TopicSize(topic="orders", partitions=8),)))
    rebalanced(h, clients, *range(8))
    requested = of_kind(incidents(history_of(h, h.settings)), "enforced")
    assert requested.headline == (
        f"Muster asked the group to rebalance (members.unassigned.rebalance.delay.ms), since {since}"
    )
    assert "metadata.max.age.ms" in requested.advice[0]


def test_a_topic_that_grew_since_the_last_request_has_grown() -> None:
    """The number of its partitions is then recorded."""
    h = Harness(group_id="grown")
    clients = h.form(h.static("a"), h.static("b"))
    assign(clients, *range(6))
    h.set(members_unassigned_rebalance_delay_ms="60000")
    for partitions in (8, 10):
        h.sleep(1_000)
        h.send(RebalanceUnassigned(group_id=h.group_id, topics=(TopicSize(topic="orders", partitions=partitions),)))
        rebalanced(h, clients, *range(6))
    reported = [each.headline for each in incidents(history_of(h, h.settings)) if each.kind == "enforced"]
    assert reported[1].endswith("since orders 6-9 were assigned to no member, and it grew from 8 to 10 partitions")
