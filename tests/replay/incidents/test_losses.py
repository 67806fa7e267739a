"""The sentences about members that died, were paused, were cut off, or polled too late.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

from functools import partial

import msgspec
import pytest

from muster.coordinator.group.configs import TARGET_GROUP_SIZE
from muster.replay.fleet.simulation.world import outages
from muster.replay.history.items import Coordinated, Happened
from muster.replay.incidents.kinds.replaced import IF_NOT_BACK
from muster.replay.incidents.kinds.restart import HELD_UP, REVOKING, SLOW_BEAT
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.text.times import wall_ms_of
from tests.replay import memberships
from tests.replay.incidents.fleet import BOTH, OLDER, QUIET_MS, Fleet, crashed, expect, of_kind, shown, statements
from tests.replay.played import history_of
from tests.replay.whole import incidents

S = 1_000


@BOTH
def test_a_phase_that_waited_for_a_dead_member_is_its_crash(level: int) -> None:
    """It is not caused by the new process that began it."""
    fleet = Fleet(4)
    fleet[3].die()
    fleet.run(2 * S)
    fleet.start(5)
    fleet.rest(20 * S)
    crash, scale_up = fleet.told(level)
    grade, how = crashed(level)
    expect(
        crash,
        "crash",
        grade,
        f"'app-3' (10.0.1.3) {how}, was removed after 10.0 s (session timeout 10 s), and"
        " no process has taken its place so far; a join phase waited 7.0 s for it; 'app-5' (10.0.1.5) had joined in the"
        " meantime",
        "app-3",
    )
    assert "it waited for 'app-3' (10.0.1.3), which was not heard from again" in statements(crash, "recorded")
    assert scale_up.rebalances == ()


@BOTH
def test_a_dead_member_that_the_rebalance_timeout_removes_is_a_crash(level: int) -> None:
    """Its session is longer than that."""
    fleet = Fleet(4, session_ms=100 * S, rebalance_ms=20 * S)
    fleet[3].die()
    fleet.run(2 * S)
    fleet.start(5)
    fleet.rest(60 * S)
    crash = of_kind(fleet.told(level), "crash")
    grade, how = crashed(level)
    expect(
        crash,
        "crash",
        grade,
        f"'app-3' (10.0.1.3) {how}, was removed when the rebalance timeout of 20 s had passed"
        " without its join, and no process has taken its place so far; a join phase waited 20.0 s for it; 'app-5'"
        " (10.0.1.5) had joined in the meantime",
        "app-3",
    )
    assert "it waited for 'app-3' (10.0.1.3), which did not join within the rebalance timeout" in statements(crash)


@BOTH
def test_a_phase_that_waited_for_several_is_of_the_incident_that_began_it(level: int) -> None:
    """It waited for a member that had died for good and for one of a deployment, whose first process had left."""
    fleet = Fleet(5, session_ms=100 * S, rebalance_ms=20 * S)
    fleet[2].die()
    fleet.restart(3, 40 * S, kill=True)
    fleet.restart(1, 30 * S)
    fleet.rest(90 * S)
    found = fleet.told(level)
    deployment, crash = (of_kind(found, kind) for kind in ("deployment", "crash"))
    waited = deployment.rebalances[0]
    assert "client app-1) left the group" in waited.trigger.text
    assert "it waited for 'app-2' (10.0.1.2) and 'app-3' (10.0.1.3)" in statements(deployment)
    assert not crash.rebalances, shown(crash)


def test_a_process_that_stood_still_had_not_died() -> None:
    """Format level 4 distinguishes this from a restart."""
    fleet = Fleet(3)
    process = fleet[2]
    process.freeze()
    fleet.world.at(25 * S, process.thaw)
    fleet.rest(30 * S)
    expect(
        fleet.only(),
        "restart",
        "inferred",
        "'app-2' (10.0.1.2) was not heard from for longer than its session timeout of 10 s, and came back 26.1"
        " s after its last sign of life, on the same connection: it had not died, but stalled or was cut off",
        "app-2",
    )
    assert "had not died: it was heard from again under its old member id" in statements(fleet.only(), "recorded")
    assert fleet.only(OLDER).headline.endswith("sign of life: a restart, or it stalled or was cut off")
    assert "had not died" not in statements(fleet.only(OLDER))


def test_a_member_that_fell_silent_when_notified_may_have_been_revoking_partitions() -> None:
    """kafka-python sends no heartbeats while the application's rebalance listener revokes partitions."""
    fleet = Fleet(3)
    process = fleet[2]
    process.slow_ms = 30 * S
    fleet.start(4)
    fleet.run(6 * S)
    process.freeze()
    fleet.world.at(25 * S, process.thaw)
    fleet.rest(40 * S)
    restart = of_kind(fleet.told(), "restart")
    headline = (
        "'app-2' (10.0.1.2) was not heard from for longer than its session timeout of 10 s, and came back ... it had"
        " not died, but stalled, was cut off, or was busy revoking its partitions"
    )
    expect(restart, "restart", "inferred", headline, "app-2")
    assert restart.advice == (HELD_UP, REVOKING)


@BOTH
def test_cut_off_members_are_reported_with_their_network(level: int) -> None:
    """Five of ten; format level 4 shows that they had not died."""
    fleet = Fleet(10)
    cut_off = [fleet[number] for number in range(1, 6)]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    incident = fleet.only(level)
    expect(
        incident,
        "network-cut",
        "inferred",
        "5 members fell silent at the same moment, all from 10.0.1.x, and 5 others did not: ...; all came back",
        *(f"app-{number}" for number in range(1, 6)),
    )
    assert statements(incident, "recorded").count("had not died") == (5 if level > OLDER else 0)


def test_the_network_of_cut_off_members_is_not_named_if_all_others_share_it() -> None:
    """Behind a sidecar all members have its address."""
    fleet = Fleet(4)
    cut_off = [fleet[number] for number in (1, 2)]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    headline = "2 members fell silent at the same moment, and 2 others did not: ...; all came back"
    expect(fleet.only(), "network-cut", "inferred", headline, "app-1", "app-2")


def test_static_members_that_are_all_closed_after_a_restart_without_a_rebalance_are_no_network_cut() -> None:
    """The one that came back to its place does not count as one that stayed."""
    fleet = Fleet(3, static=3)
    fleet.restart(2, 2 * S)
    fleet.rest(5 * S)
    for number in (1, 2, 3):
        fleet[number].die()
    fleet.rest(30 * S)
    assert "network-cut" not in {each.kind for each in fleet.told()}


def test_the_number_of_cut_off_members_that_returned_is_reported() -> None:
    """One of three had died meanwhile."""
    fleet = Fleet(6)
    cut_off = [fleet[number] for number in (1, 2, 3)]
    outages.cut(fleet.world, cut_off)
    fleet[3].die()
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    expect(
        fleet.only(),
        "network-cut",
        "inferred",
        "3 members fell silent at the same moment, all from 10.0.1.x, and 3 others did not: ...; 2 of them came back",
        *(f"app-{number}" for number in (1, 2, 3)),
    )


@BOTH
def test_a_crash_loop_of_eight_is_one_incident(level: int) -> None:
    """It has sixteen rebalances, and their cost. An older log does not record whether the process was alive."""
    fleet = Fleet(3)
    for _ in range(8):
        fleet.restart(2, 15 * S, kill=True)
        fleet.rest(30 * S)
    incident = fleet.only(level)
    headline = "'app-2' (10.0.1.2) disappeared and came back 8 times within 3 min 36 s"
    if level == OLDER:
        headline += "; it is not recorded whether it had ended each time, or was only silent"
    expect(incident, "crash-loop", "inferred" if level > OLDER else "unknown", headline, "app-2")
    assert len(incident.rebalances) == incident.cost.rebalances == 16
    assert incident.cost.rebalancing_ms == sum(each.duration_ms or 0 for each in incident.rebalances)


def test_a_live_process_with_slow_heartbeats_is_not_a_crash_loop() -> None:
    """It was heard from under each of its lost member ids, although it is alone in the group."""
    fleet = Fleet(1, session_ms=10 * S)
    usual = fleet[1].setup
    fleet[1].setup = usual.but(heartbeat_ms=12 * S)
    fleet.run(50 * S)
    fleet[1].setup = usual
    fleet.rest(30 * S)
    headline = (
        "'app-1' (10.0.1.1) lost its place ... times within ..., and came back each time: it had not died, but"
        " stalled, was cut off, or its heartbeats come too slowly for a session timeout of 10 s"
    )
    incident = fleet.only()
    expect(incident, "restart", "inferred", headline, "app-1")
    times = len([each for each in incident.rebalances if each.outcome is Outcome.EMPTIED])
    assert times >= 3
    assert statements(incident, "recorded").count("had not died: it was heard from again") == times
    assert incident.advice == (HELD_UP, SLOW_BEAT)


@pytest.mark.parametrize(("known_ms", "kinds"), [(60 * S, ["restart"]), (700 * S, ["restart", "crash"])])
def test_a_process_that_beats_too_slowly_and_was_lost_last_may_live(known_ms: int, kinds: list[str]) -> None:
    """It came back each time before; if it is missing for more than ten minutes, it may not be alive."""
    fleet = Fleet(2, session_ms=10 * S)
    fleet[1].setup = fleet[1].setup.but(heartbeat_ms=12 * S)
    fleet.run(50 * S)
    fleet[1].die(with_machine=True)
    fleet.run(known_ms)
    fleet[2].leave(None)
    fleet.rest(20 * S)
    reported = [each for each in fleet.told() if each.kind != "shutdown"]
    assert [each.kind for each in reported if each.kind in ("restart", "crash")] == kinds
    assert ("whether it had ended by then is not known" in reported[0].headline) == (kinds == ["restart"])


@pytest.mark.parametrize("beats_ms", [27 * S, 38 * S])
def test_a_live_process_lost_three_times_is_not_a_crash(beats_ms: int) -> None:
    """Two losses are not a loop: the third is reported with the second, as a process that may return."""
    fleet = Fleet(2, session_ms=10 * S)
    fleet[1].setup = fleet[1].setup.but(heartbeat_ms=12 * S)
    fleet.run(beats_ms)
    fleet[1].die(with_machine=True)
    fleet.rest(40 * S)
    first, second = fleet.told()
    headline = "'app-1' (10.0.1.1) was not heard from for longer than ...: it had not died, but stalled or was cut off"
    expect(first, "restart", "inferred", headline, "app-1")
    headline = (
        "'app-1' (10.0.1.1) was not heard from for longer than ...: it had not died, but stalled, was cut off, or"
        " its heartbeats come too slowly for a session timeout of 10 s; then it lost its place again, and whether it"
        " had ended by then is not known"
    )
    expect(second, "restart", "inferred", headline, "app-1")
    assert second.advice == (HELD_UP, SLOW_BEAT, IF_NOT_BACK)
    assert {each.to_generation for each in second.rebalances} == {3, 4, 5}


def test_a_live_process_that_was_lost_once_and_then_ended_has_crashed() -> None:
    """It closed its connection."""
    fleet = Fleet(3)
    fleet[2].freeze()
    fleet.world.at(25 * S, fleet[2].thaw)
    fleet.rest(40 * S)
    fleet[2].die()
    fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["restart", "crash"]


def test_the_last_crash_of_a_loop_is_part_of_it() -> None:
    """It has not come back."""
    fleet = Fleet(3)
    for _ in range(4):
        fleet.restart(2, 15 * S, kill=True)
        fleet.rest(30 * S)
    fleet[2].die()
    fleet.rest(30 * S)
    loop = fleet.only()
    headline = (
        "'app-2' (10.0.1.2) disappeared and came back 4 times within ...; then it disappeared again, and no process has"
        " taken its place so far"
    )
    expect(loop, "crash-loop", "inferred", headline, "app-2")
    assert len(loop.rebalances) == 9
    assert "was closed from its side" in statements(loop, "recorded")


def test_a_process_of_a_loop_that_was_cut_off_with_others_is_part_of_the_cut() -> None:
    """Its last silence began together with theirs."""
    fleet = Fleet(6)
    for _ in range(3):
        fleet.restart(2, 15 * S, kill=True)
        fleet.rest(30 * S)
    cut_off = [fleet[number] for number in (1, 2, 3)]
    outages.cut(fleet.world, cut_off)
    fleet.rest(30 * S)
    loop, cut = fleet.told()
    assert (loop.kind, cut.kind) == ("crash-loop", "network-cut")
    assert {each.client_id for each in cut.culprits} == {"app-1", "app-2", "app-3"}


def late_polls(static: int = 0) -> Fleet:
    """A member polls too late three times, and comes back each time; then it leaves again."""
    fleet = Fleet(3, library="aiokafka", static=static)
    for _ in range(3):
        fleet[2].stop_polling()
        fleet.run(30 * S)
        fleet[2].poll_again()
        fleet.rest(60 * S)
    fleet[2].stop_polling()
    return fleet


@pytest.mark.parametrize(
    ("static", "ending"),
    [
        (0, "left 3 times within ...; then it left again, and has not come back so far"),
        (
            3,
            "fell silent 3 times within ...; then it lost its place again, and whether it had ended ... is not known",
        ),
    ],
)
def test_a_member_that_polled_late_often_and_is_gone_may_come_back(static: int, ending: str) -> None:
    """As each time before: it is neither a scale-down nor a crash."""
    fleet = late_polls(static)
    fleet.rest(40 * S)
    expect(fleet.only(), "poll-timeout", "inferred", f"'app-2' (10.0.1.2) {ending}", "app-2")
    assert fleet.only().advice[-1] == IF_NOT_BACK


def test_a_member_that_polled_late_often_and_leaves_with_others_was_shut_down() -> None:
    """Or it has been missing for longer than ever."""
    fleet = late_polls()
    fleet.run(5 * S)
    fleet[1].close()
    fleet[3].close()
    fleet.rest(40 * S)
    assert [each.kind for each in fleet.told()] == ["poll-timeout", "shutdown"]
    fleet = late_polls()
    fleet.run(700 * S)
    fleet.start(4)
    fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["poll-timeout", "scale-down", "scale-up"]


def test_a_process_that_was_heard_again_and_did_not_join_had_not_crashed() -> None:
    """It sent a request with its lost member id, and ended before it joined."""
    fleet = Fleet(4)
    process = fleet[2]
    process.freeze()
    fleet.run(20 * S)
    process.thaw()
    fleet.run(5)
    process.die()
    fleet.start(5)
    fleet.rest(20 * S)
    headline = (
        "'app-2' (10.0.1.2) lost its place, and was heard from again ... after its last sign of life: it had not died,"
        " but stalled or was cut off; that it joined again is not known"
    )
    expect(of_kind(fleet.told(), "restart"), "restart", "inferred", headline, "app-2")
    assert [each.kind for each in fleet.told()] == ["restart", "scale-up"]


def test_two_lives_of_one_process_are_not_two_members_that_were_cut_off() -> None:
    """It dies twice within the time in which members fall silent at the same moment."""
    fleet = Fleet(3, session_ms=6 * S)
    fleet[2].die()
    fleet.run(S)
    fleet.start(2).die()
    fleet.rest(30 * S)
    assert "network-cut" not in [each.kind for each in fleet.told()]


@BOTH
@pytest.mark.parametrize("reason", [None, "the consumer unsubscribed from all topics"])
def test_a_static_member_that_sends_leave_group_was_unsubscribed(reason: str | None, level: int) -> None:
    """No client sends one when it closes a static member or polls too late, so its process did not end."""
    fleet = Fleet(3, library="java" if reason else "librdkafka", static=3)
    fleet[2].unsubscribe()
    fleet.world.at(3 * S, fleet[2].poll_again)
    fleet.rest(20 * S)
    headline = "'app-2' (10.0.1.2) left and came back 3.0 s later"
    if reason:
        headline += f'; the client says: "{reason}"'
    else:
        headline += (
            ", on the same connection: its application unsubscribed, and subscribed again"
            if level > OLDER
            else ": no client leaves for a static member that is closed or polls too late, so it was unsubscribed, or"
            " removed"
        )
    incident = fleet.only(level)
    expect(incident, "unsubscribe", "recorded" if reason else "inferred", headline, "app-2")
    assert not any("max.poll.interval.ms" in each for each in incident.advice)


def test_static_members_that_unsubscribe_together_are_one_incident() -> None:
    """An application that pauses all its consumers does this; it is no deployment."""
    fleet = Fleet(4, library="librdkafka", static=4)
    for number in (1, 2, 3):
        fleet[number].unsubscribe()
        fleet.world.at(5 * S, fleet[number].poll_again)
        fleet.run(S)
    fleet.rest(20 * S)
    headline = (
        "3 members left by themselves and came back, within ...: 'app-1' (10.0.1.1), ..., each on the connection that"
        " it had: their applications unsubscribed, and subscribed again"
    )
    expect(fleet.only(), "unsubscribe", "inferred", headline, "app-1", "app-2", "app-3")


def late_poll(library: str, *, static: int = 0) -> Fleet:
    fleet = Fleet(3, library=library, static=static)
    fleet[2].stop_polling()
    fleet.world.at(40 * S, fleet[2].poll_again)
    fleet.rest(45 * S)
    return fleet


@BOTH
def test_a_client_that_reports_a_late_poll_is_believed(level: int) -> None:
    """The Java client says so; that the same process came back is inferred, unless it used the same connection."""
    expect(
        late_poll("java").only(level),
        "poll-timeout",
        "recorded" if level > OLDER else "inferred",
        "'app-2' (10.0.1.2) did not poll within max.poll.interval.ms and left, and came back 40.0 s later; the client"
        ' says: "consumer poll timeout has expired."',
        "app-2",
    )


def test_a_client_that_only_leaves_may_have_been_restarted() -> None:
    """librdkafka, kafka-python and aiokafka, if the log does not show that it came back on the same connection."""
    headline = "'app-2' (10.0.1.2) left, then came back 40.0 s later: a restart or a poll timeout"
    expect(late_poll("aiokafka").only(OLDER), "restart", "inferred", headline, "app-2")


def test_a_static_member_that_polls_late_and_rejoins_is_one_incident() -> None:
    """The member and its silence are recorded; below format level 6 the end of its process is not."""
    incident = late_poll("java", static=3).only(OLDER)
    expect(
        incident,
        "restart",
        "inferred",
        "'app-2' (10.0.1.2) was not heard from for its session timeout of 10 s, and came back 41.0 s after its"
        " last sign of life: a restart, a poll timeout, or it stalled or was cut off",
        "app-2",
    )
    assert len(incident.rebalances) == 2


def test_a_client_that_reports_closing_did_not_poll_late() -> None:
    """The Java client says so."""
    fleet = Fleet(3)
    fleet.restart(2, 20 * S)
    fleet.rest(30 * S)
    assert fleet.only().headline == "'app-2' (10.0.1.2) was closed, and came back 20.0 s later"


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        (
            "the consumer unsubscribed from all topics",
            ' and came back 20.0 s later; the client says: "the consumer unsubscribed from all topics"',
        ),
        ("group is already rebalancing", ", then came back 20.0 s later: a restart or a poll timeout"),
        (None, ", then came back 20.0 s later: a restart or a poll timeout"),
    ],
)
def test_a_clients_reason_is_quoted_if_it_is_informative(reason: str | None, ending: str) -> None:
    """And left out if it is boilerplate."""
    fleet = Fleet(3)
    fleet.restart(2, 20 * S, reason=reason)
    fleet.rest(30 * S)
    assert fleet.only().headline == f"'app-2' (10.0.1.2) left{ending}"


def test_boilerplate_is_nowhere_in_an_incident() -> None:
    """Each join of a Java client has boilerplate; these are the joins of processes that rejoined."""
    fleet = Fleet(3)
    fleet.start(4)
    fleet.rest(20 * S)
    history, incident = fleet.history(), fleet.only()
    reasons = {item.event.why.client_reason or "" for item in history.items if isinstance(item, Happened)}
    assert any(reason.startswith("need to re-join with the given member-id") for reason in reasons)
    assert "group is already rebalancing" in reasons
    assert not any(reason and reason in shown(incident) for reason in reasons)


@pytest.mark.parametrize("static", [0, 4])
def test_a_standby_that_took_over_is_reported_with_the_crash(static: int) -> None:
    """No rebalance was needed; the process that comes back is a standby itself."""
    fleet = Fleet(3, static=static)
    fleet.configure(TARGET_GROUP_SIZE, "3")
    fleet.start(4)
    fleet.rest(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    fleet[2].die()
    fleet.run(20 * S)
    fleet.start(2)
    fleet.rest(20 * S)
    crash, planned = fleet.told()
    expect(
        crash,
        "crash",
        "inferred",
        "'app-2' (10.0.1.2) ended without leaving, which closed its connection, was removed after 10.0 s (session"
        " timeout 10 s), and the standby 'app-4' (10.0.1.4) took over its partitions ... later: no other member"
        " was affected",
        "app-2",
    )
    assert "'app-4' (10.0.1.4) took over the partitions of 'app-2' (10.0.1.2)" in statements(crash, "recorded")
    assert "(10.0.1.2, client app-2) joined as a standby; no partitions moved" in planned.headline


@pytest.mark.parametrize("static", [0, 4])
def test_a_promoted_standby_that_did_not_rejoin_is_not_reported_as_taking_over(static: int) -> None:
    """It died together with the member that it should replace."""
    fleet = Fleet(3, static=static)
    fleet.configure(TARGET_GROUP_SIZE, "3")
    fleet.start(4)
    fleet.rest(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    fleet[2].die()
    fleet.run(4 * S)
    fleet[4].die()
    fleet.run(8 * S)
    crash = of_kind(fleet.told(), "crash")
    assert crash.headline.endswith(
        "'app-4' (10.0.1.4) was called for its partitions, and has not asked for them so far"
    )


def removed_late() -> Fleet:
    """A member dies, and the coordinator is paused for 20 s during its session of 45 s."""
    fleet = Fleet(3, session_ms=45 * S)
    fleet[2].die()
    fleet.run(30 * S)
    fleet.paused(20 * S)
    fleet.rest(120 * S)
    return fleet


@BOTH
def test_a_late_removal_is_explained(level: int) -> None:
    """Its session restarted when the coordinator continued."""
    crash = of_kind(removed_late().told(level), "crash")
    assert (
        "'app-2' (10.0.1.2) was removed 51.0 s later than its session timeout: the coordinator had stalled until"
        " 2023-11-18 23:00:29 UTC, and all sessions started again then"
    ) in statements(crash, "recorded")


def test_why_a_member_is_removed_late_may_be_unknown() -> None:
    """The log has nothing that extended its session."""
    history = removed_late().history()
    items = tuple(each for each in history.items if not isinstance(each, Coordinated))
    crash = of_kind(incidents(msgspec.structs.replace(history, items=items)), "crash")
    assert "was removed 51.0 s later than its session timeout; why is not recorded" in statements(crash, "unknown")


def test_a_member_that_waited_for_others_is_not_removed_late_by_the_coordinator() -> None:
    """It died in the sync phase, in which its session does not run, and so did the leader."""
    fleet = Fleet(1)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 20 * S
    fleet.start(2)
    fleet.run(4 * S)
    leader.die()
    fleet[2].die()
    fleet.run(60 * S)
    crash = of_kind(fleet.told(), "crash")
    assert "'app-2' (10.0.1.2) was removed 10.0 s later than its session timeout: it had waited for" in statements(
        crash
    )
    assert "had waited for" not in statements(crash, "recorded", "unknown")


@BOTH
def test_a_timely_removal_is_not_explained(level: int) -> None:
    """Nor does a member whose last-seen time a takeover hides."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.rest(20 * S)
    fleet[3].die()
    fleet.away(3 * S)
    fleet.rest(20 * S)
    assert not any("later than its session timeout" in statements(each) for each in fleet.told(level))


def test_all_members_silent_at_once_are_not_a_cut_although_static_ones_returned_in_time() -> None:
    """All members of the group fell silent."""
    fleet = Fleet(4, static=2, session_ms=30 * S)
    for number in (1, 2):
        fleet.restart(number, 10 * S, kill=True)
    for number in (3, 4):
        fleet[number].die()
    fleet.rest(60 * S)
    assert "network-cut" not in {each.kind for each in fleet.told()}


def test_two_crashes_in_one_rebalance_have_separate_ids() -> None:
    """The first one begins the rebalance, which waits for the second one: both start with the first one's removal."""
    fleet = Fleet(4, session_ms=30 * S)
    fleet[2].die()
    fleet.run(20 * S)
    fleet[3].die()
    fleet.rest(60 * S)
    first, second = (each.id for each in fleet.told())
    assert second == f"{first}-2"
    assert first.endswith("-crash")


def test_a_restart_minutes_before_a_duel_is_not_of_it() -> None:
    """It is an incident of its own, and the duel begins when the id was first contested."""
    start, restart, duel, _ = incidents(history_of(memberships.duel_after_restart()))
    assert (start.kind, restart.kind, duel.kind) == ("start", "restart", "duel")
    assert wall_ms_of(duel.started_at) - wall_ms_of(restart.started_at) >= 300 * S


def test_a_standby_too_old_for_a_lost_leaders_place_is_reported_with_the_loss() -> None:
    """No administrator asked for that rebalance, though the group has a target size."""
    h, (a, b) = memberships.two(version=8)
    h.set(target_group_size="2")
    c = h.static("c", version=8)
    c.join()
    c.sync()
    a.leave()
    c.join()
    b.join()
    c.sync(h.assignments())
    found = incidents(history_of(h))
    (lost,) = (each for each in found if any(rebalance.from_generation == 1 for rebalance in each.rebalances))
    assert lost.kind == "scale-down"
    assert "the standby 'c' (10.0.0.1, client app-c) could not take the lost leader's place" in statements(
        lost, "recorded"
    )
    assert all("could not take" not in each.headline for each in found)


def test_distant_restarts_of_a_process_are_not_a_loop() -> None:
    """They are a quarter of an hour apart, and other members join in between, so that all is one episode."""
    fleet = Fleet(3)
    for number in (4, 5, 6):
        fleet.restart(2, 15 * S, kill=True)
        fleet.rest(420 * S)
        fleet.start(number)
        fleet.rest(420 * S)
    assert [each.kind for each in fleet.told()] == ["restart", "scale-up"] * 3


def test_a_restart_minutes_after_a_duel_is_not_of_it() -> None:
    """The coordinator records duels up to ten minutes after the last fenced request; no rival is alive then."""
    start, duel, restart = incidents(history_of(memberships.restart_after_duel()))
    assert (start.kind, duel.kind, restart.kind) == ("start", "duel", "restart")
    assert duel.ended_at is not None
    assert wall_ms_of(restart.started_at) - wall_ms_of(duel.ended_at) >= 200 * S
    assert duel.headline.endswith("; 4 requests of theirs were fenced")
    assert statements(duel, "recorded").count("fenced: the other one had taken it") == 2


def test_a_duel_names_both_clients() -> None:
    """Their hosts may be the same; then the client ids show which two processes have the instance id."""
    duel = of_kind(incidents(history_of(memberships.duel())), "duel")
    assert "client app-b at 10.0.0.2" in duel.headline
    assert "client app-b at 10.0.0.7" in duel.headline
    assert "client app-b at 10.0.0.7 took the instance id 2 times, the last one at " in statements(duel, "recorded")
    assert "fenced: the other one had taken it" in statements(duel, "recorded")


@BOTH
def test_a_static_member_that_misses_a_join_phase_is_removed_one_rebalance_timeout_later(level: int) -> None:
    """However long its session is: the sentence does not say that its session had ended."""
    fleet = Fleet(3, static=3, session_ms=100 * S, rebalance_ms=20 * S)
    fleet[2].freeze()
    fleet.run(S)
    fleet.start(4)
    fleet.run(60 * S)
    fleet[2].thaw()
    fleet.rest(20 * S)
    restart = of_kind(fleet.told(level), "restart")
    assert "'app-2' (10.0.1.2) did not ask for its assignment within the rebalance timeout of 20 s" in restart.headline
    assert "session timeout" not in restart.headline
    assert (
        "'app-2' (10.0.1.2) was removed before its session timeout of 100 s had passed: it did not ask for its"
        " assignment in time, which the rebalance timeout (max.poll.interval.ms) limits; a static member that misses a"
        " join phase keeps its place for one rebalance timeout more" in statements(restart, "recorded")
    )
