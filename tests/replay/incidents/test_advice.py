"""The advice for each kind of incident: how to avoid the cost, or where to look."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from muster.coordinator.group.configs import REBALANCE
from muster.replay.fleet.simulation.world import outages
from muster.replay.incidents.kinds.restart import HELD_UP
from tests.replay import memberships
from tests.replay.incidents.fleet import QUIET_MS, Fleet, of_kind, remove
from tests.replay.played import history_of
from tests.replay.whole import incidents

S = 1_000


def outage() -> Fleet:
    fleet = Fleet(3, library="librdkafka", session_ms=6 * S)
    fleet.away(14 * S)
    fleet.rest(20 * S)
    return fleet


def late_poll() -> Fleet:
    fleet = Fleet(3)
    fleet[2].stop_polling()
    fleet.world.at(40 * S, fleet[2].poll_again)
    fleet.rest(45 * S)
    return fleet


def crash_loop() -> Fleet:
    fleet = Fleet(3)
    for _ in range(3):
        fleet.restart(2, 15 * S, kill=True)
        fleet.rest(30 * S)
    return fleet


def cut() -> Fleet:
    fleet = Fleet(4)
    cut_off = [fleet[1], fleet[2]]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    return fleet


def newcomers() -> Fleet:
    fleet = Fleet(2)
    for number in (3, 4):
        fleet.start(number)
        fleet.rest(20 * S)
    return fleet


def slow_member() -> Fleet:
    fleet = Fleet(3)
    fleet[2].slow_ms = 30 * S
    fleet.start(4)
    fleet.rest(50 * S)
    return fleet


def dynamic_restart() -> Fleet:
    fleet = Fleet(3)
    fleet.restart(2, 20 * S)
    fleet.rest(30 * S)
    return fleet


def static_restart_beyond_its_session() -> Fleet:
    fleet = Fleet(3, static=3)
    fleet.restart(2, 20 * S, kill=True)
    fleet.rest(30 * S)
    return fleet


def asks(reason: str | None) -> Fleet:
    """The leader rejoins with the same subscription."""
    fleet = Fleet(3, poll_ms=0)
    fleet.world.leader().rejoin_soon(reason)
    fleet.rest(10 * S)
    return fleet


def asks_again_and_again() -> Fleet:
    fleet = Fleet(3, poll_ms=0)
    for _ in range(3):
        fleet.world.leader().rejoin_soon("rebalance enforced by user")
        fleet.rest(10 * S)
    return fleet


def rebalance_by_an_administrator() -> Fleet:
    fleet = Fleet(3)
    fleet.configure(REBALANCE, "force")
    fleet.rest(5 * S)
    return fleet


def changed(topics: tuple[str, ...] = ("orders",), assignors: tuple[str, ...] = ("range",)) -> Fleet:
    """A member that stays comes with another subscription, or with other assignors."""
    fleet = Fleet(3)
    fleet.world.partitions["payments"] = 6
    leader = fleet.world.leader()
    leader.setup = leader.setup.but(topics=topics, assignors=assignors)
    leader.rejoin_soon()
    fleet.rest(5 * S)
    return fleet


def other_partitions(number: int) -> Fleet:
    fleet = Fleet(3)
    fleet.world.partitions = {"orders": number}
    fleet.world.leader().rejoin_soon()
    fleet.rest(5 * S)
    return fleet


@pytest.mark.parametrize(
    ("story", "kind", "advice"),
    [
        (partial(asks, "rebalance enforced by user"), "enforced", "the application calls enforceRebalance()"),
        (partial(asks, "rebalance failed due to DisconnectException"), "enforced", "look at its log before this"),
        (partial(asks, None), "enforced", "a leader rejoins when its metadata changed"),
        (asks_again_and_again, "enforced", "the application calls enforceRebalance()"),
        (rebalance_by_an_administrator, "enforced", "look for who calls muster members rebalance"),
        (partial(changed, ("orders", "payments")), "subscription-change", "where the application calls subscribe()"),
        (partial(changed, assignors=("roundrobin", "range")), "assignor-change", "once all members offer it"),
        (partial(other_partitions, 24), "partitions-changed", "nothing to do: the new partitions have consumers now"),
        (partial(other_partitions, 6), "partitions-changed", "find out who deleted or recreated the topic"),
        (partial(asks, "cached metadata has changed (...)"), "metadata-changed", "nothing to do if it happened once"),
        (outage, "coordinator-outage", "a session timeout longer than the coordinator's restart"),
        (late_poll, "poll-timeout", "raise max.poll.interval.ms, or lower max.poll.records"),
        (crash_loop, "crash-loop", "find out from its own log why this process ends"),
        (cut, "network-cut", "look at the network and at the machines"),
        (newcomers, "scale-up", "members.expansion.delay.ms gathers them"),
        (slow_member, "slow-member", "shorten its batches, or lower max.poll.interval.ms"),
        (dynamic_restart, "restart", "with a group.instance.id, and"),
        (static_restart_beyond_its_session, "restart", "the session timeout is shorter than the restart: "),
    ],
)
def test_each_trouble_has_its_advice(story: Callable[[], Fleet], kind: str, advice: str) -> None:
    """And no other advice."""
    (reported,) = of_kind(story().told(), kind).advice
    assert advice in reported


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_removal_names_who_may_remove_and_that_a_live_process_rejoins(*, comes_back: bool) -> None:
    """An administrator removes static members; one whose process had ended does not come back."""
    fleet = Fleet(3, static=3)
    if not comes_back:
        fleet[2].die()
    remove(fleet, 2)
    fleet.rest(20 * S)
    removed = of_kind(fleet.told(), "removed-by-admin")
    *again, who = removed.advice
    assert "find out what runs as client admin-1 at 10.0.200.1" in who
    assert ["joins again" in each for each in again] == [True] * comes_back


def test_a_member_that_left_silently_may_have_polled_too_late() -> None:
    """The sentence has two possible causes, and there is advice for both."""
    fleet = Fleet(3, library="librdkafka")
    fleet.restart(2, 20 * S, reason=None)
    fleet.rest(30 * S)
    reported = of_kind(fleet.told(), "restart")
    assert "a restart or a poll timeout" in reported.headline
    assert [each[:26] for each in reported.advice] == ["with a group.instance.id, ", "if it was a poll timeout: "]


def test_a_member_that_was_heard_again_is_not_advised_to_restart_faster() -> None:
    """It had not died, so neither an instance id nor a longer session would help."""
    fleet = Fleet(3)
    process = fleet[2]
    process.freeze()
    fleet.world.at(60 * S, process.thaw)
    fleet.rest(90 * S)
    reported = of_kind(fleet.told(), "restart")
    assert "it had not died" in reported.headline
    assert reported.advice == (HELD_UP,)


def test_one_newcomer_needs_no_advice() -> None:
    """There are no other joins to gather it with."""
    fleet = Fleet(2)
    fleet.start(3)
    fleet.rest(20 * S)
    assert of_kind(fleet.told(), "scale-up").advice == ()


def test_a_duel_is_ended_by_an_instance_id_for_each() -> None:
    """Neither a longer session nor a look at the network would help."""
    (reported,) = of_kind(incidents(history_of(memberships.duel())), "duel").advice
    assert "give each process a group.instance.id of its own" in reported


@pytest.mark.parametrize(
    ("static", "heartbeat_s", "least", "why"),
    [
        (0, 3, "9 s", "3 of its heartbeat intervals; group.min.session.timeout.ms is 6 s"),
        (4, 1, "6 s", "group.min.session.timeout.ms is 6 s"),
    ],
)
def test_a_crash_for_which_all_waited_long_names_the_session_timeout(
    static: int, heartbeat_s: int, least: str, why: str
) -> None:
    """The advice has the value to lower it to, and the price of that."""
    fleet = Fleet(4, static=static, session_ms=60 * S, rebalance_ms=300 * S)
    for each in fleet.world.live:
        each.setup = each.setup.but(heartbeat_ms=heartbeat_s * S)
    fleet.run(20 * S)
    fleet.world.leader().rejoin_soon()  # each member's silences are counted from here on
    fleet.rest(QUIET_MS)
    fleet[3].die()
    fleet.run(8 * S)
    fleet.start(5)
    fleet.rest(80 * S)
    *_, session = of_kind(fleet.told(), "stopped" if static else "crash").advice
    assert re.match(r"all waited \d\d\.\d s for it because its session timeout is 1 min: with ", session)
    assert f"with {least} ({why}) it would have been" in session
    trade_off = "a restart that takes longer than" if static else "a member that stalls for longer than"
    assert f"{trade_off} {least}" in session


def test_a_restart_that_delayed_the_group_names_the_session_timeout() -> None:
    """A process comes back at once under a new member id, and the join phase waits for the old one."""
    fleet = Fleet(3, session_ms=60 * S, rebalance_ms=300 * S)
    fleet.restart(2, 2 * S, kill=True)
    fleet.rest(80 * S)
    (session,) = [each for each in of_kind(fleet.told(), "restart").advice if "session timeout is 1 min" in each]
    assert "with 9 s" in session


@pytest.mark.parametrize("session_s", [10, 60])
def test_a_crash_without_a_wait_does_not_mention_the_session_timeout(session_s: int) -> None:
    """Its removal began the rebalance; nor is it worth lowering a session timeout from 10 s to 9 s."""
    fleet = Fleet(4, session_ms=session_s * S)
    fleet[3].die()
    if session_s == 10:
        fleet.run(S)
        fleet.start(5)
    fleet.rest(80 * S)
    assert not [each for each in of_kind(fleet.told(), "crash").advice if "session timeout" in each]
