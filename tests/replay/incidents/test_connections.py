"""The end of a connection distinguishes ended processes from machines that died, and from late polls."""

import re
from functools import partial

import pytest

from muster.replay.fleet.simulation.world import outages
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.render.incident_table import title_of
from tests.replay.incidents.fleet import OLDER, Fleet, expect, of_kind, statements
from tests.replay.whole import incidents

S = 1_000


def test_static_members_that_are_stopped_are_one_incident_and_no_network_cut() -> None:
    """Two of five, as if a StatefulSet is scaled down: a static member sends no LeaveGroup."""
    fleet = Fleet(5, static=5)
    for number in (4, 5):
        fleet[number].close()
        fleet.run(1 * S)
    fleet.rest(20 * S)
    stopped = fleet.only()
    expect(
        stopped,
        "stopped",
        "inferred",
        "2 static members ended within 1.0 s: 'app-4' (10.0.1.4) and 'app-5' (10.0.1.5); each closed its connection and"
        " sent no LeaveGroup, as a static member does that is stopped or killed",
        "app-4",
        "app-5",
    )
    assert statements(stopped, "recorded").count("was closed from its side") == 2
    assert "muster members retire orders app-4 app-5 before" in stopped.advice[0]
    assert fleet.only(OLDER).kind == "network-cut"


def test_all_static_members_that_are_stopped_are_one_incident() -> None:
    """Their silence is recorded, a crash is not."""
    fleet = Fleet(3, static=3)
    for number in (1, 2, 3):
        fleet[number].close()
        fleet.run(2 * S)
    fleet.rest(30 * S)
    headline = "3 static members ended within 4.0 s, and the group was empty: ...; each closed its connection and ..."
    expect(fleet.only(), "stopped", "inferred", headline, "app-1", "app-2", "app-3")


def test_static_and_dynamic_members_that_are_shut_down_together_are_one_incident() -> None:
    """With advice about the static members, whose sessions the group waits for."""
    fleet = Fleet(4, static=2)
    for number in (3, 1, 4, 2):
        fleet[number].close()
        fleet.run(2 * S)
    fleet.rest(30 * S)
    headline = (
        "2 static members ended and 2 dynamic members left within 6.0 s, and the group was empty: ...; each static"
        " member closed its connection and sent no LeaveGroup, as a static member does that is stopped or killed"
    )
    expect(fleet.only(), "stopped", "inferred", headline, "app-1", "app-2", "app-3", "app-4")
    assert "muster members retire orders app-1 app-2 before" in fleet.only().advice[0]
    assert {each.to_generation for each in fleet.only().rebalances} == {2, 3}


def test_a_dynamic_member_that_leaves_between_two_stops_belongs_to_one_of_them() -> None:
    """The second static member ends after the first was removed, and the dynamic one left within 3.5 s of both ends."""
    fleet = Fleet(5, static=4, session_ms=6 * S)
    fleet[1].close()
    fleet.run(3 * S)
    fleet[5].close()
    fleet.run(3_400)
    fleet[2].close()
    fleet.rest(30 * S)
    reported = [[each.client_id for each in incident.culprits] for incident in fleet.told()]
    assert reported == [["app-1", "app-5"], ["app-2"]]


def test_how_long_the_rebalance_took_is_not_how_long_it_took_them_to_end() -> None:
    """The members end within 6 s; the rebalance begins when the first session is over."""
    fleet = Fleet(6, static=3)
    for number in (1, 2, 3):
        fleet[number].close()
        fleet.run(3 * S)
    fleet.rest(30 * S)
    assert "ended within 6.0 s" in fleet.only().headline
    assert re.search(r"stopped \(inferred\), rebalance(s within| took) [0-9.]+ m?s$", title_of(fleet.only()))


def test_a_leader_that_shuts_down_with_all_others_is_not_a_slow_leader() -> None:
    """It ends while all members wait for its assignment, since they end one after another."""
    fleet = Fleet(3, static=2, session_ms=6 * S)
    fleet[3].close()
    fleet.run(2 * S)
    fleet[2].close()
    fleet.run(4 * S)
    fleet[1].close()
    fleet.rest(60 * S)
    assert [each.kind for each in fleet.told()] == ["stopped"]


@pytest.mark.parametrize("gap_ms", [0, 2 * S])
def test_static_and_dynamic_members_that_are_killed_at_once_are_one_crash(gap_ms: int) -> None:
    """A dynamic member that is closed sends a LeaveGroup, so this was no shutdown."""
    fleet = Fleet(5, static=2)
    for number in (1, 4, 2):
        fleet[number].die()
        fleet.run(gap_ms)
    fleet.rest(60 * S)
    headline = "3 processes ended without leaving within ...; each closed its connection, and no process has taken ..."
    expect(fleet.only(), "crash", "inferred", headline, "app-1", "app-2", "app-4")
    assert fleet.only().advice[1].startswith("if they were stopped on purpose: static members, Kafka Streams, and")


def test_a_dynamic_member_that_is_killed_later_was_not_killed_with_a_static_one() -> None:
    """Each may have ended independently."""
    fleet = Fleet(5, static=2)
    fleet[1].die()
    fleet.run(5 * S)
    fleet[4].die()
    fleet.rest(60 * S)
    assert sorted(each.kind for each in fleet.told()) == ["crash", "stopped"]


def test_static_and_dynamic_members_that_end_together_are_one_incident() -> None:
    """They were on one host, and the other members stayed."""
    fleet = Fleet(5, static=2)
    for number in (1, 4):
        fleet[number].close()
        fleet.run(500)
    fleet.rest(30 * S)
    headline = (
        "a static member ended and a dynamic member left within 500 ms: 'app-1' (10.0.1.1) and 'app-4' (10.0.1.4); the"
        " static member closed its connection and ..."
    )
    expect(fleet.only(), "stopped", "inferred", headline, "app-1", "app-4")


@pytest.mark.parametrize("reason", [None, "the consumer unsubscribed from all topics"])
def test_a_member_that_leaves_for_another_reason_was_not_stopped_with_a_static_one(reason: str | None) -> None:
    """It left later, or its reason shows that it did not end."""
    fleet = Fleet(5, static=2)
    fleet[1].close()
    fleet.run(500 if reason else 5 * S)
    fleet[4].close(reason)
    fleet.rest(30 * S)
    assert sorted(each.kind for each in fleet.told()) == ["scale-down", "stopped"]


def test_static_members_whose_machines_died_were_cut_off() -> None:
    """Their connections were never closed."""
    fleet = Fleet(5, static=5)
    for number in (4, 5):
        fleet[number].die(with_machine=True)
    fleet.rest(20 * S)
    cut = fleet.only()
    headline = "2 members fell silent at the same moment, all from 10.0.1.x, and 3 others did not: ..."
    assert cut.kind == "network-cut"
    assert statements(cut, "recorded").count("was still open when it was removed") == 2
    assert cut.headline.startswith(headline.partition(",")[0])


def test_dynamic_members_that_are_killed_at_once_are_one_crash() -> None:
    """This is no network cut: their connections were closed."""
    fleet = Fleet(6)
    for number in (2, 3):
        fleet[number].die()
    fleet.rest(20 * S)
    headline = (
        "2 processes ended without leaving within 0 ms: 'app-2' (10.0.1.2) and 'app-3' (10.0.1.3); each closed its"
        " connection, and no process has taken their places so far"
    )
    expect(fleet.only(), "crash", "inferred", headline, "app-2", "app-3")
    assert fleet.only(OLDER).kind == "network-cut"


def test_a_member_whose_connection_stays_open_points_to_its_machine_or_network() -> None:
    """Its process may be paused, too."""
    fleet = Fleet(3)
    fleet[2].die(with_machine=True)
    fleet.rest(20 * S)
    crash = fleet.only()
    assert crash.headline.startswith("'app-2' (10.0.1.2) fell silent without leaving, its connection still open, was")
    assert "look at its machine, and at the network to it" in crash.advice[0]


@pytest.mark.parametrize("static", [0, 4])
def test_a_process_that_rejoins_on_its_connection_had_polled_too_late(static: int) -> None:
    """This is within minutes of a deployment of the others, which it does not belong to."""
    fleet = Fleet(4, static=static, library="librdkafka")
    for number in (1, 2, 3):
        fleet.restart(number, 2 * S)
        fleet.run(8 * S)
    fleet[4].stop_polling()
    fleet.world.at(25 * S, fleet[4].poll_again)
    fleet.rest(60 * S)
    found = fleet.told()
    assert {each.member_id.rpartition("-")[0] for each in of_kind(found, "deployment").culprits} == {
        "app-1",
        "app-2",
        "app-3",
    }
    how, still = ("fell silent", ", stalled") if static else ("left", "")
    headline = (
        f"'app-4' (10.0.1.4) {how}, and came back ... later, on the same connection: its process had not ended, but"
        f" polled too late{still}, or unsubscribed and subscribed again"
    )
    late = of_kind(found, "poll-timeout")
    expect(late, "poll-timeout", "inferred", headline, "app-4")
    assert "max.poll.interval.ms is 1 min" in late.advice[0]


def test_a_member_that_repeatedly_polls_too_late_is_not_a_crash_loop() -> None:
    """It is reported once, with the number of times."""
    fleet = Fleet(3, library="librdkafka")
    for _ in range(4):
        fleet[2].stop_polling()
        fleet.world.at(15 * S, fleet[2].poll_again)
        fleet.rest(80 * S)
    late = fleet.only()
    assert (late.kind, fleet.only(OLDER).kind) == ("poll-timeout", "crash-loop")
    assert late.headline.startswith("'app-2' (10.0.1.2) left 4 times within")


def test_a_late_poll_and_an_unsubscribe_of_one_member_are_two_incidents() -> None:
    """Its client gives no reason for either, so they look the same."""
    fleet = Fleet(3, library="librdkafka")
    fleet[2].stop_polling()
    fleet.world.at(15 * S, fleet[2].poll_again)
    fleet.rest(80 * S)
    fleet[2].unsubscribe()
    fleet.world.at(3 * S, fleet[2].poll_again)
    fleet.rest(80 * S)
    found = fleet.told()
    assert [each.kind for each in found] == ["poll-timeout", "poll-timeout"]
    assert [each.headline.partition(", on the same")[0] for each in found] == [
        "'app-2' (10.0.1.2) left, and came back 15.0 s later",
        "'app-2' (10.0.1.2) left, and came back 3.0 s later",
    ]


def test_members_behind_one_proxy_that_end_together_may_have_lost_the_proxy() -> None:
    """They have one address, so one common cause is possible."""
    fleet = Fleet(6, static=2)
    for number in (1, 2):
        fleet[number].die()
    fleet.rest(30 * S)
    assert "whether the processes ended, or a proxy" not in statements(fleet.only())

    fleet = Fleet(6)
    for number in (5, 6):
        fleet[number].close()
    fleet.run(700 * S)
    fleet.began_ms = fleet.wall_ms
    for number in (7, 8):
        fleet.start(number, fleet.setup(number).but(host="/10.0.9.9"))
    fleet.run(700 * S)
    fleet.began_ms = fleet.wall_ms
    for number in (7, 8):
        fleet[number].die()
    fleet.rest(30 * S)
    assert "all 2 connections came from 10.0.9.9 and ended within" in statements(fleet.only(), "unknown")


def test_a_cut_off_member_that_is_heard_again_is_not_reported_as_a_late_poll() -> None:
    """It uses its old member id first."""
    fleet = Fleet(4)
    outages.cut(fleet.world, [fleet[2]])
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, [fleet[2]]))
    fleet.rest(45 * S)
    assert fleet.only().kind == "restart"
    assert "had not died" in statements(fleet.only())


@pytest.mark.parametrize("sooner", [True, False])
def test_a_static_member_that_stood_still_had_not_polled_too_late_if_it_had_just_come(sooner: bool) -> None:
    """librdkafka comes back on its connection without its old member id; later it may have been either."""
    fleet = Fleet(2, static=3, library="librdkafka")
    fleet.start(3)
    fleet.rest(20 * S if sooner else 120 * S)
    fleet[3].stop_polling()  # like librdkafka after SIGSTOP: it does not use its old member id again
    fleet.world.at(20 * S, fleet[3].poll_again)
    fleet.rest(60 * S)
    found = fleet.told()
    if sooner:
        restart = of_kind(found, "restart")
        headline = (
            "'app-3' (10.0.1.3) ... on the same connection: it had not died, but stalled, was unsubscribed for a"
            " while or was cut off"
        )
        expect(restart, "restart", "inferred", headline, "app-3")
        assert "before its max.poll.interval.ms of 1 min could be over: it had not polled too late" in statements(
            restart
        )
        return
    late = of_kind(found, "poll-timeout")
    assert "but polled too late, stalled, or unsubscribed and subscribed again" in late.headline
    assert [each.partition(":")[0] for each in late.advice] == [
        "if it polled too late",
        "to tell a poll timeout from a process that stalled",
    ]


def test_a_dynamic_member_that_leaves_soon_after_joining_was_unsubscribed() -> None:
    """It gives no reason and comes back on its connection; its max.poll.interval.ms had not passed."""
    fleet = Fleet(2, library="librdkafka")
    fleet.start(3)
    fleet.rest(20 * S)
    fleet[3].unsubscribe()
    fleet.world.at(3 * S, fleet[3].poll_again)
    fleet.rest(30 * S)
    headline = (
        "'app-3' (10.0.1.3) left and came back 3.0 s later, on the same connection: its application unsubscribed, and"
        " subscribed again"
    )
    expect(of_kind(fleet.told(), "unsubscribe"), "unsubscribe", "inferred", headline, "app-3")


def test_a_static_member_that_ends_while_it_waits_for_its_join_had_stopped_at_once() -> None:
    """It sends no heartbeats meanwhile, so it was last heard from long before its connection is closed."""
    fleet = Fleet(4, static=4, session_ms=30_000)
    fleet[1].die()
    fleet.run(20 * S)
    fleet[2].close()
    fleet.run(28 * S)
    fleet[3].close()
    fleet.rest(90 * S)
    assert {each.kind for each in fleet.told()} == {"stopped"}


def stayed(fleet: Fleet, stayed_ms: int) -> Process:
    """Return a member that has just joined and stays for this long."""
    fleet.start(4, fleet.setup(4).but(poll_ms=0))
    fleet.rest(10 * S)
    assert fleet.world.rules.group is not None
    joined_ms = fleet.world.rules.group.members[fleet[4].member_id].joined_ms
    fleet.run(joined_ms + stayed_ms - fleet.wall_ms)
    return fleet[4]


@pytest.mark.parametrize(("stayed_ms", "kind"), [(58_900, "unsubscribe"), (59_000, "poll-timeout")])
def test_a_member_that_leaves_a_second_before_its_poll_interval_is_over_did_not_poll_late(
    stayed_ms: int, kind: str
) -> None:
    """It leaves at its late poll, not a heartbeat later; a second allows for clocks and timers."""
    fleet = Fleet(3, library="librdkafka")
    newcomer = stayed(fleet, stayed_ms)
    newcomer.unsubscribe()
    fleet.world.at(5 * S, newcomer.poll_again)
    fleet.rest(30 * S)
    assert of_kind(fleet.told(), kind).culprits


@pytest.mark.parametrize(("stayed_ms", "kind"), [(54_000, "restart"), (58_900, "poll-timeout")])
def test_a_member_may_fall_silent_a_heartbeat_after_it_was_last_heard(stayed_ms: int, kind: str) -> None:
    """It was last heard from up to a heartbeat before its late poll."""
    fleet = Fleet(3, static=4, library="librdkafka")
    newcomer = stayed(fleet, stayed_ms)
    newcomer.stop_polling()
    fleet.world.at(20 * S, newcomer.poll_again)
    fleet.rest(60 * S)
    assert of_kind(fleet.told(), kind).culprits


def test_how_long_a_member_stayed_is_unknown_where_the_next_coordinators_clock_is_behind() -> None:
    """So it may have polled too late."""
    fleet = Fleet(3, library="librdkafka")
    newcomer = stayed(fleet, 20 * S)
    fleet.away(200, orderly=True)
    fleet.world.rules.wall_offset_ms -= 3_600 * S
    fleet.away(200, orderly=True)
    fleet.run(5 * S)
    newcomer.unsubscribe()
    fleet.world.at(5 * S, newcomer.poll_again)
    fleet.rest(30 * S)
    restart = of_kind(incidents(fleet.history()), "restart")
    assert restart.headline == "'app-4' (10.0.1.4) left, then came back 5.0 s later: a restart or a poll timeout"
