"""The cost of incidents, by the definitions of docs/incidents.md."""

import msgspec
import pytest

from muster.coordinator.group.commands import LeaveGroup, LeavingMember, ReleaseGroup
from muster.coordinator.group.configs import COORDINATOR, MUSTER, UPSTREAM
from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.incidents.cost import cost_of, partition_ms
from muster.replay.rebalances.rebalance import Movement, Outcome
from muster.replay.render.incident_table import cost_text
from muster.replay.text.times import wall_ms_of
from tests.replay.histories import Script
from tests.replay.incidents.fleet import Fleet, of_kind, remove
from tests.replay.stories import a_night
from tests.replay.whole import incidents, rebalances


def test_partitions_that_come_back_have_moved_for_nothing() -> None:
    """A member leaves, and another process with its client id and host joins and gets its partitions."""
    script = Script().created()
    a, b = (script.member(name, static=False, client_id=name) for name in ("a", "b"))
    script.start(script.joined(a)).advanced(script.joined(b)).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({a.member_id: {"orders": [0, 1]}, b.member_id: {"orders": [2, 3]}})
    script.wait(60_000).start(script.removed(b, Cause.MEMBER_LEFT)).wait(500).complete(script.rejoined(a))
    script.stabilize({a.member_id: {"orders": [0, 1, 2, 3]}})
    again = script.member("b2", static=False, client_id="b")
    script.wait(5_000).start(script.joined(again)).wait(500).complete(script.rejoined(script.of("a")))
    script.stabilize({a.member_id: {"orders": [0, 1]}, again.member_id: {"orders": [2, 3]}})
    first, *both = rebalances(script.group_id, script.history().items)
    assert cost_of([first]).partitions_moved_back == 0
    cost = cost_of(both)
    assert (cost.partitions_moved, cost.partitions_moved_back, cost.rebalancing_ms) == (4, 4, 1_000)
    assert cost.partition_ms == 4 * 500 + 4 * 500
    assert cost_of(both[:1]).partitions_moved_back == 0


def test_indistinguishable_processes_are_not_reported_as_returned() -> None:
    """Two live members have one client id and host, so it is not known whose partitions they were."""
    script = Script().created()
    a, b = (script.member(name, static=False, client_id="app") for name in ("a", "b"))
    script.start(script.joined(a)).advanced(script.joined(b)).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({a.member_id: {"orders": [0, 1]}, b.member_id: {"orders": [2, 3]}})
    script.wait(60_000).start(script.removed(b, Cause.MEMBER_LEFT)).wait(500).complete(script.rejoined(a))
    script.stabilize({a.member_id: {"orders": [0, 1, 2, 3]}})
    again = script.member("b2", static=False, client_id="app")
    script.wait(5_000).start(script.joined(again)).wait(500).complete(script.rejoined(script.of("a")))
    script.stabilize({a.member_id: {"orders": [0, 1]}, again.member_id: {"orders": [2, 3]}})
    _, *both = rebalances(script.group_id, script.history().items)
    cost = cost_of(both)
    assert (cost.partitions_moved, cost.partitions_moved_back) == (4, 0)


def test_static_restarts_that_needed_no_rebalance_are_counted() -> None:
    """Static membership avoided these rebalances."""
    restarted = [each for each in incidents(a_night().history()) if each.cost.restarts_absorbed]
    assert [each.cost.restarts_absorbed for each in restarted] == [2, 1]


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("how", ["away", "paused"])
def test_members_that_join_again_after_an_outage_were_not_restarted(how: str, restarts: int) -> None:
    """librdkafka joins again after a session timeout without a response; a process that is replaced is counted."""
    fleet = Fleet(3, static=3, library="librdkafka")
    fleet.away(8_000) if how == "away" else fleet.paused(13_000)
    fleet.rest(20_000)
    if restarts:
        fleet.run(60_000)
        fleet.restart(2, 2_000)
        fleet.rest(30_000)
    found = fleet.told()
    change = of_kind(found, "coordinator-change")
    assert how == "away" or "came back to their places under new member ids" in change.headline
    assert change.cost.restarts_absorbed == 0
    assert sum(each.cost.restarts_absorbed for each in found) == restarts


def test_a_static_member_that_joins_again_on_its_connection_was_not_restarted() -> None:
    """It polled too late, or was unsubscribed for a while."""
    fleet = Fleet(3, static=3, library="librdkafka")
    fleet[2].stop_polling()
    fleet.world.at(4_000, fleet[2].poll_again)
    fleet.rest(20_000)
    late = fleet.only()
    assert (late.kind, late.rebalances, late.cost.restarts_absorbed) == ("poll-timeout", (), 0)


def test_a_cooperative_assignor_stops_only_what_moves_or_is_lost() -> None:
    """An eager assignor stops all partitions."""
    reported = next(
        each for each in rebalances(GroupId("orders"), a_night().history().items) if each.movement is not None
    )
    assert reported.movement is not None
    movement = msgspec.structs.replace(reported.movement, moved=1, lost=2, stayed=9)
    eager = msgspec.structs.replace(reported, movement=movement, duration_ms=1_000, protocol_name="range")
    cooperative = msgspec.structs.replace(eager, protocol_name="cooperative-sticky")
    assert cost_of([eager]).partition_ms == 12 * 1_000
    assert cost_of([cooperative]).partition_ms == 3 * 1_000


def test_of_rebalances_of_which_one_is_not_known_the_sum_is_not() -> None:
    """The sum would be too small; the number of rebalances is known."""
    known = next(each for each in rebalances(GroupId("orders"), a_night().history().items) if each.movement is not None)
    unknown = msgspec.structs.replace(known, duration_ms=None, movement=None)
    cost = cost_of([known, unknown])
    assert (cost.rebalances, cost.rebalancing_ms, cost.partition_ms, cost.partitions_moved) == (2, None, None, None)


def test_partitions_passed_on_in_a_cooperative_second_round_have_moved() -> None:
    """It has no owner in between, so neither round alone moves it; a return to its former owner is no move."""
    fleet = Fleet(3, assignors=("cooperative-sticky",))
    fleet.start(4)
    fleet.rest(30_000)
    scale_up = fleet.only()
    movements = [each.movement for each in scale_up.rebalances if each.movement is not None]
    assert [(each.moved, each.lost, each.gained) for each in movements] == [(0, 3, 0), (0, 0, 3)]
    assert (scale_up.cost.partitions_moved, scale_up.cost.partitions_moved_back) == (3, 0)
    first, second = scale_up.rebalances
    given_back = msgspec.structs.replace(second, movement=reversed_(movements[0]))
    assert (cost_of([first, given_back]).partitions_moved, cost_of([first]).partitions_moved) == (0, 0)
    eager = [msgspec.structs.replace(each, protocol_name="range") for each in scale_up.rebalances]
    assert cost_of(eager).partitions_moved == 0


def reversed_(movement: Movement) -> Movement:
    """Return the moves back."""
    moves = (msgspec.structs.replace(each, previous=each.owner, owner=each.previous) for each in movement.moves)
    return msgspec.structs.replace(movement, moves=tuple(moves), lost=movement.gained, gained=movement.lost)


# ---- outside of rebalances ------------------------------------------------------------------------------------------


def test_the_partitions_of_a_silent_member_have_no_consumer() -> None:
    """From when it was last heard from until it was removed; a member that leaves is not silent."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.rest(60_000)
    crash = fleet.only()
    (rebalance,) = crash.rebalances
    silence_ms = rebalance.trigger.who[0].silence_ms
    assert silence_ms is not None
    assert silence_ms >= 10_000
    assert crash.cost.silent_partition_ms == 4 * silence_ms
    assert crash.cost.partition_ms == 4 * silence_ms + (partition_ms(rebalance) or 0)
    assert "(40.0 while a member was silent)" in cost_text(crash.cost)


def test_a_silence_within_a_rebalance_counts_once() -> None:
    """With an eager assignor all partitions stop while the phase waits for it."""
    fleet = Fleet(4)
    fleet[3].die()
    fleet.run(2_000)
    fleet.start(5)
    fleet.rest(20_000)
    crash = of_kind(fleet.told(), "crash")
    (rebalance,) = crash.rebalances
    silent_ms = crash.cost.silent_partition_ms
    assert silent_ms is not None
    assert 0 < silent_ms < 3 * 4_000
    assert crash.cost.partition_ms == silent_ms + 12 * (rebalance.duration_ms or 0)


def test_the_cost_of_a_silence_with_an_unrecorded_beginning_is_unknown() -> None:
    """The coordinator was unreachable meanwhile, so the member may have kept consuming. The rest is a lower bound."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.run(1_000)
    fleet.away(5_000)
    fleet.rest(60_000)
    crash = of_kind(fleet.told(), "crash")
    (rebalance,) = crash.rebalances
    assert (crash.cost.silent_partition_ms, crash.cost.partition_ms) == (None, None)
    assert crash.cost.known_partition_ms == partition_ms(rebalance)
    assert crash.cost.weight[0] == partition_ms(rebalance)
    seconds = f"{crash.cost.known_partition_ms / 1_000:.1f} partition-seconds without a consumer"
    assert f"at least {seconds} (an unknown time while a member was silent)" in cost_text(crash.cost)
    nothing = msgspec.structs.replace(crash.cost, known_partition_ms=0)
    assert "an unknown number of partition-seconds without a consumer" in cost_text(nothing)


def test_a_group_that_was_emptied_has_no_consumer_until_its_next_assignment() -> None:
    """Its members died: the time counts from the end of the last one until the first new member has its partitions."""
    fleet = Fleet(1)
    fleet[1].die()
    fleet.rest(70_000)
    fleet.start(2)
    fleet.rest(20_000)
    found = fleet.told()
    lost, started = (rebalance for each in found for rebalance in each.rebalances)
    assert (lost.outcome, started.outcome) == (Outcome.EMPTIED, Outcome.STABLE)
    expected = 12 * (started.ended_ms - lost.ended_ms)
    assert expected > 12 * 60_000
    assert [each.cost.empty_partition_ms for each in found] == [expected, 0]


def test_a_group_that_was_shut_down_costs_nothing_while_it_is_empty() -> None:
    """This was intended."""
    fleet = Fleet(2)
    fleet[1].close(None)
    fleet[2].close(None)
    fleet.rest(70_000)
    fleet.start(3)
    fleet.rest(20_000)
    assert {each.kind for each in fleet.told()} == {"shutdown", "start"}
    assert [each.cost.empty_partition_ms for each in fleet.told()] == [0, 0]


def test_contested_instance_ids_are_not_restarts() -> None:
    """A duel avoids no rebalance."""
    fleet = Fleet(2, static=2)
    twin = fleet.setup(1).but(host="/10.0.3.3")
    for _ in range(3):
        fleet.start(1, twin)
        fleet.run(5_000)
    fleet.rest(20_000)
    duel = of_kind(fleet.told(), "duel")
    assert duel.cost.restarts_absorbed == 0
    assert duel.cost.silent_partition_ms == 0  # the holder of the id is alive


def test_a_static_member_that_was_silent_when_an_administrator_removed_it_had_no_consumer() -> None:
    """It had been closed; a member that was alive until its removal was not silent."""
    fleet = Fleet(3, static=3, session_ms=45_000)
    fleet.run(3_000)
    closed = fleet[2]
    closed.close()
    fleet.run(12_000)
    silent_ms = fleet.world.now_ms - closed.last_heard_ms
    remove(fleet, 2, 3)
    fleet.rest(20_000)
    removed = of_kind(fleet.told(), "removed-by-admin")
    assert {each.group_instance_id for each in removed.affected} == {"app-2", "app-3"}
    assert silent_ms >= 12_000
    assert removed.cost.silent_partition_ms == 4 * silent_ms


@pytest.mark.parametrize("static", [0, 3])
def test_a_member_unheard_during_a_coordinator_pause_was_not_silent(static: int) -> None:
    """The coordinator cannot know how long the member was silent, and the log shows that."""
    fleet = Fleet(3, static=static)
    fleet[2].die()
    fleet.run(1_000)
    fleet.paused(30_000)
    fleet.run(30_000)
    fleet.start(2)
    fleet.rest(60_000)
    assert of_kind(fleet.told(), "coordinator-outage").cost.silent_partition_ms is None


def test_a_rebalance_without_an_assignment_stops_the_assigned_partitions() -> None:
    """A leader that dies in the sync phase stops all of them, and no partition has moved yet."""
    reported = next(
        each for each in rebalances(GroupId("orders"), a_night().history().items) if each.movement is not None
    )
    superseded = msgspec.structs.replace(
        reported,
        outcome=Outcome.SUPERSEDED,
        movement=None,
        partitions_before=12,
        duration_ms=1_000,
        protocol_name="range",
    )
    cooperative = msgspec.structs.replace(superseded, protocol_name="cooperative-sticky")
    assert (cost_of([superseded]).partition_ms, cost_of([superseded]).partitions_moved) == (12_000, 0)
    assert cost_of([cooperative]).partition_ms is None


def test_each_rebalance_knows_how_many_partitions_had_an_owner() -> None:
    """None for the first rebalance; for the others, those of the previous assignment."""
    first, *others = rebalances(GroupId("orders"), a_night().history().items)
    assert first.partitions_before == 0
    assert all(each.partitions_before == 12 for each in others if each.movement is not None), others


@pytest.mark.parametrize("leaver_ms", [0, 20])
def test_the_incident_that_empties_a_group_has_that_rebalance_and_its_cost(leaver_ms: int) -> None:
    """One of three members leaves and begins the rebalance in which an administrator removes the other two."""
    fleet = Fleet(3)
    fleet[1].close("closing")
    fleet.run(leaver_ms)
    members = [fleet[number] for number in (2, 3)]
    leaving = tuple(
        LeavingMember(member_id=each.member_id, group_instance_id=None, reason="removed by an admin")
        for each in members
    )
    for each in members:
        each.go_away()
        fleet.world.at(5_000, each.poll_again)
    fleet.world.administer(
        fleet.story, lambda caller: LeaveGroup(group_id=GROUP_ID, caller=caller, members=leaving), api_key=13
    )
    fleet.rest(20_000)
    found = fleet.told()
    left, removed = (of_kind(found, kind) for kind in ("scale-down", "removed-by-admin"))
    emptied, started = removed.rebalances
    assert emptied.outcome is Outcome.EMPTIED
    assert left.rebalances == ()
    assert (left.cost.partition_ms, removed.cost.empty_partition_ms) == (
        0,
        12 * (started.ended_ms - emptied.ended_ms),
    )
    assert removed.headline.endswith("; the group was then empty")
    assert removed.cost.empty_partition_ms > 12 * 5_000
    assert [each.client_id for each in removed.culprits] == ["admin-1"]
    assert {each.client_id for each in removed.affected} == {"app-2", "app-3"}
    assert wall_ms_of(removed.started_at) <= emptied.ended_ms < started.started_ms


def test_members_that_join_and_all_leave_at_once_cost_nothing_while_the_group_is_empty() -> None:
    """The new member began the rebalance in which all left in an orderly way: the group was not emptied by mistake."""
    fleet = Fleet(2)
    fleet.start(3)
    fleet.run(5)
    for number in (1, 2, 3):
        fleet[number].close()
    fleet.rest(30_000)
    fleet.start(4)
    fleet.rest(20_000)
    assert sum(each.cost.empty_partition_ms for each in fleet.told()) == 0


def released(fleet: Fleet) -> None:
    """Release the group; its members continue in the cluster upstream."""
    for each in fleet.world.live:
        each.go_away()
    fleet.configure(COORDINATOR, UPSTREAM)


def adopted(fleet: Fleet) -> None:
    """Adopt the group; all members come back a second later."""
    fleet.configure(COORDINATOR, MUSTER)
    fleet.run(1_000)
    for each in fleet.world.live:
        each.poll_again()
    fleet.rest(20_000)


def test_a_group_that_the_cluster_upstream_has_is_not_empty() -> None:
    """It is released, and adopted 50 s later: the only cost is the second until its members are back."""
    fleet = Fleet(3)
    released(fleet)
    fleet.run(50_000)
    adopted_ms = fleet.wall_ms
    adopted(fleet)
    incident = fleet.only()
    *_, started = incident.rebalances
    assert incident.kind == "planned"
    assert incident.cost.empty_partition_ms == 12 * (started.ended_ms - adopted_ms)


def test_a_group_lost_to_the_upstream_cluster_is_not_empty_until_the_next_join() -> None:
    """There is no config for it, so the log does not show when the cluster stopped coordinating it."""
    fleet = Fleet(3)
    for each in fleet.world.live:
        each.go_away()
    fleet.world.administer(fleet.story, lambda caller: ReleaseGroup(group_id=GROUP_ID, caller=caller), api_key=-1)
    fleet.run(50_000)
    for each in fleet.world.live:
        each.poll_again()
    fleet.rest(20_000)
    incident = fleet.only()
    started = incident.rebalances[-1]
    assert incident.cost.empty_partition_ms == 12 * (started.ended_ms - started.started_ms)


def test_a_group_that_was_empty_before_it_was_released_was_empty_until_then() -> None:
    """Its only member died; a member that continues in the cluster upstream consumes there."""
    fleet = Fleet(1)
    fleet[1].die()
    fleet.rest(30_000)
    fleet.configure(COORDINATOR, UPSTREAM)
    released_ms = fleet.wall_ms
    fleet.run(100_000)
    fleet.configure(COORDINATOR, MUSTER)
    adopted_ms = fleet.wall_ms
    fleet.start(2)
    fleet.rest(20_000)
    found = fleet.told()
    crash = of_kind(found, "crash")
    started = next(each for incident in found for each in incident.rebalances if each.outcome is Outcome.STABLE)
    empty_ms = released_ms - crash.rebalances[-1].ended_ms + started.ended_ms - adopted_ms
    assert crash.cost.empty_partition_ms == 12 * empty_ms
