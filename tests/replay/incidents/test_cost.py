"""The cost of incidents, by the definitions of docs/incidents.md."""

import msgspec

from muster.events.causes import Cause
from muster.events.ids import GroupId
from muster.replay.incidents.cost import cost_of
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.whole import incidents, rebalances


def test_partitions_that_come_back_have_moved_for_nothing() -> None:
    """A member leaves, and another process at its client id and host comes: its partitions are there again."""
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


def test_of_processes_that_cannot_be_told_apart_nothing_is_said_to_have_come_back() -> None:
    """Two live members have one client id at one host: whose partitions were there before is not known."""
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
    """They are what static membership saved."""
    restarted = [each for each in incidents(a_night().history()) if each.cost.restarts_absorbed]
    assert [each.cost.restarts_absorbed for each in restarted] == [2, 1]


def test_a_cooperative_assignor_stops_only_what_moves_or_is_lost() -> None:
    """An eager one stops all partitions."""
    told = next(each for each in rebalances(GroupId("orders"), a_night().history().items) if each.movement is not None)
    assert told.movement is not None
    movement = msgspec.structs.replace(told.movement, moved=1, lost=2, stayed=9)
    eager = msgspec.structs.replace(told, movement=movement, duration_ms=1_000, protocol_name="range")
    cooperative = msgspec.structs.replace(eager, protocol_name="cooperative-sticky")
    assert cost_of([eager]).partition_ms == 12 * 1_000
    assert cost_of([cooperative]).partition_ms == 3 * 1_000


def test_of_rebalances_of_which_one_is_not_known_the_sum_is_not() -> None:
    """It would be too little; how many there were is known."""
    known = next(each for each in rebalances(GroupId("orders"), a_night().history().items) if each.movement is not None)
    unknown = msgspec.structs.replace(known, duration_ms=None, movement=None)
    cost = cost_of([known, unknown])
    assert (cost.rebalances, cost.rebalancing_ms, cost.partition_ms, cost.partitions_moved) == (2, None, None, None)
