"""The sentences about causes of waiting: slow members, slow leaders, unused member ids.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

import pytest

from muster.events.causes import Cause
from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.histories import Script
from tests.replay.incidents.fleet import BOTH, OLDER, Fleet, expect, of_kind, shown, statements
from tests.replay.whole import incidents

S = 1_000


@BOTH
def test_a_slow_member_is_named_and_not_the_newcomer(level: int) -> None:
    """It took 50 s."""
    fleet = Fleet(4)
    fleet[2].slow_ms = 50 * S
    fleet.start(5)
    fleet.rest(80 * S)
    slow = of_kind(fleet.told(level), "slow-member")
    headline = "'app-2' (10.0.1.2) took 52.0 s to rejoin, for which 3 other members had to wait"
    expect(slow, "slow-member", "recorded", headline, "app-2")
    assert "'app-2' (10.0.1.2) rejoined, 52.0 s after the rebalance had begun" in statements(slow, "recorded")


@BOTH
def test_a_slow_member_that_was_dropped_was_alive(level: int) -> None:
    """At the rebalance timeout of 60 s."""
    fleet = Fleet(4)
    fleet[2].slow_ms = 75 * S
    fleet.start(5)
    fleet.rest(90 * S)
    slow = of_kind(fleet.told(level), "slow-member")
    expect(
        slow,
        "slow-member",
        "recorded" if level > OLDER else "inferred",
        "'app-2' (10.0.1.2) did not rejoin for 1 min 00 s, for which 3 other members had to wait; it was"
        " dropped when the rebalance timeout of 1 min had passed",
        "app-2",
    )
    assert "was alive, last heard from 994 ms before it was dropped" in statements(slow, "recorded")


@pytest.mark.parametrize(
    ("slow_ms", "took", "ended"),
    [
        (50 * S, "took 1 min 00 s to rejoin", "1 of them dropped"),
        (75 * S, "did not rejoin for 1 min 00 s", "they were dropped when the rebalance timeout of 1 min had passed"),
    ],
)
@BOTH
def test_the_number_of_dropped_slow_members_is_reported(slow_ms: int, took: str, ended: str, level: int) -> None:
    """At least one."""
    fleet = Fleet(4)
    fleet[2].slow_ms, fleet[3].slow_ms = slow_ms, 75 * S
    fleet.start(5)
    fleet.rest(90 * S)
    slow = of_kind(fleet.told(level), "slow-member")
    headline = f"... {took}, for which 2 other members had to wait; {ended}"
    grade = "recorded" if level > OLDER else "inferred"  # the connections show which process came back
    expect(slow, "slow-member", grade, headline, "app-2", "app-3")


def test_a_slow_member_is_dropped_long_after_another_one_had_left() -> None:
    """The one that left was not slow."""
    fleet = Fleet(5)
    fleet[4].close()
    fleet.rest(20 * S)
    fleet[2].slow_ms = 75 * S
    fleet.start(6)
    fleet.rest(90 * S)
    slow = of_kind(fleet.told(), "slow-member")
    assert {each.client_id for each in slow.culprits} == {"app-2"}


def test_a_member_unheard_since_a_takeover_is_not_called_alive() -> None:
    """It died before the coordinator did, during a rebalance; the takeover's time does not show that it was alive."""
    for level in (4, OLDER):
        fleet = Fleet(4, session_ms=45 * S, rebalance_ms=30 * S)
        fleet[2].slow_ms = 25 * S
        fleet.start(5)
        fleet.run(8 * S)
        fleet[2].die()
        fleet.away(2 * S)
        fleet.rest(60 * S)
        assert "slow-member" not in {each.kind for each in fleet.told(level)}
        assert not any("was alive" in statements(each) for each in fleet.told(level))


@pytest.mark.parametrize(
    ("slow_ms", "grade", "what"),
    [
        (40 * S, "recorded", "took 40.0 s to send the assignment (range, 5 members)"),
        (
            70 * S,
            "inferred",
            (
                "did not send the assignment (range, 5 members) within the rebalance timeout of 1 min, last heard"
                " from 3 ms before"
            ),
        ),
    ],
)
@BOTH
def test_a_slow_leader_is_called_the_leader(slow_ms: int, grade: str, what: str, level: int) -> None:
    """And the sentence says what it was doing."""
    fleet = Fleet(4)
    leader = fleet.world.leader()
    leader.assign_slow_ms = slow_ms
    fleet.start(5)
    fleet.rest(150 * S)
    slow = of_kind(fleet.told(level), "slow-leader")
    headline = f"the leader 'app-2' (10.0.1.2) {what}; 4 other members had to wait"
    expect(slow, "slow-leader", grade if level == OLDER else "recorded", headline, leader.name)
    assert "got the list of members, to compute the assignment" in statements(slow, "recorded")


def leader_that_ends(
    *, after_ms: int, static: int = 0, newcomer_ms: int | None = None, restart_ms: int | None = None
) -> Fleet:
    """A new process joins, and the leader is killed this long after that: 2.8 s is when the sync phase begins.

    `newcomer_ms`: another process joins this long after its death; `restart_ms`: the leader is started again.
    """
    fleet = Fleet(4, static=static)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 20 * S
    fleet.start(5)
    fleet.run(after_ms)
    if restart_ms is None:
        leader.die()
    else:
        fleet.restart(int(leader.name.removeprefix("app-")), restart_ms, kill=True)
    if newcomer_ms is not None:
        fleet.run(newcomer_ms)
        fleet.start(6)
    fleet.rest(150 * S)
    return fleet


@BOTH
def test_a_leader_that_died_while_all_waited_for_its_assignment_is_a_crash(level: int) -> None:
    """The crash has the rebalance that it delayed, and the one that began without the leader."""
    reported = leader_that_ends(after_ms=4 * S).told(level)
    assert [each.kind for each in reported] == ["crash", "scale-up"], "\n".join(map(shown, reported))
    assert [each.to_generation for each in reported[0].rebalances] == [2, 3]
    assert reported[0].headline.endswith("; it was the leader, and the others waited 10.0 s for its assignment")
    assert "all waited 10.0 s for the assignment: the leader 'app-2' (10.0.1.2)" in statements(reported[0], "inferred")


@pytest.mark.parametrize(
    ("static", "restart_ms", "kind"),
    [(0, None, "crash"), (4, None, "stopped"), (0, 7 * S, "restart"), (0, 20 * S, "restart"), (4, 20 * S, "restart")],
)
@pytest.mark.parametrize("after_ms", [500, 2 * S, 3 * S, 9 * S])
@pytest.mark.parametrize("newcomer_ms", [None, 6 * S])
def test_a_leader_that_ended_was_never_slow(
    after_ms: int, static: int, restart_ms: int | None, kind: str, newcomer_ms: int | None
) -> None:
    """It ends in the join or the sync phase, and another member may begin the next rebalance before it is removed."""
    fleet = leader_that_ends(after_ms=after_ms, static=static, newcomer_ms=newcomer_ms, restart_ms=restart_ms)
    assert sorted(each.kind for each in fleet.told()) == sorted([kind, "scale-up"])


@pytest.mark.parametrize("newcomer_ms", [None, 6 * S])
def test_a_static_leader_that_is_restarted_before_it_is_missed_was_not_slow(newcomer_ms: int | None) -> None:
    """Its return begins the next rebalance, or another member's join does."""
    reported = leader_that_ends(after_ms=4 * S, static=4, newcomer_ms=newcomer_ms, restart_ms=7 * S).told()
    assert sorted(each.kind for each in reported) == ["restart", "scale-up"]
    restart = of_kind(reported, "restart")
    assert restart.rebalances[0].to_generation == 2
    assert "for the assignment: the leader 'app-1' (10.0.1.1) ended before it sent it" in statements(restart)


def test_a_leader_whose_machine_died_is_a_crash_too() -> None:
    """Its connection stays open, and nothing shows that it was still alive."""
    fleet = Fleet(4)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 20 * S
    fleet.start(5)
    fleet.run(4 * S)
    leader.die(with_machine=True)
    fleet.rest(60 * S)
    crash = of_kind(fleet.told(), "crash")
    assert "its connection still open" in crash.headline
    assert "for the assignment: the leader 'app-2' (10.0.1.2) was not heard from again" in statements(crash)


def test_a_group_of_one_did_not_wait_for_the_leader() -> None:
    """It dies while it assigns to itself."""
    fleet = Fleet(1)
    fleet.world.leader().assign_slow_ms = 30 * S
    fleet[1].rejoin_soon()
    fleet.run(4 * S)
    fleet[1].die()
    fleet.rest(60 * S)
    assert "waited" not in of_kind(fleet.told(), "crash").headline


def test_a_leader_that_dies_right_after_another_crash_is_one_too() -> None:
    """Found by the judge (seed 331): it died 164 ms before it would have got the list of members."""
    case = play(SCENARIOS["two-crashes-no-cut"], 331)
    assert [each.kind for each in incidents(case.history)] == ["start", "crash", "crash"]


@BOTH
def test_a_leader_that_dies_later_was_not_slow_in_rebalances_that_others_superseded(level: int) -> None:
    """A process that joins during the assignment begins the next rebalance; the crash comes a minute later."""
    fleet = Fleet(4)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 4 * S
    fleet.start(5)
    while leader.assign_slow_ms or not leader.is_joining:
        fleet.run(500)
    fleet.start(6)
    fleet.rest(60 * S)
    leader.die()
    fleet.rest(60 * S)
    assert [incident.kind for incident in fleet.told(level)] == ["scale-up", "crash"]


def test_the_holder_of_an_unused_id_is_named() -> None:
    """With client id, host, and the id's age; before format level 4 it is unknown what the phase waited for."""
    fleet = Fleet(4, session_ms=45 * S)
    ghost = fleet.start(9)
    ghost.uses_its_id = False
    fleet.run(S)
    ghost.die()
    fleet.start(5)
    fleet.rest(60 * S)
    expect(
        of_kind(fleet.told(), "unused-id"),
        "unused-id",
        "recorded",
        "all waited 42.7 s for 'app-9' (10.0.2.9), which had been given a member id 45.0 s before and never used it",
        "app-9",
    )
    (older,) = fleet.told(OLDER)
    assert older.kind == "scale-up"
    assert "42.7 s of it after all others had joined: it waited for a client that is not recorded" in statements(
        older, "unknown"
    )


@BOTH
def test_a_leader_that_dies_later_had_delayed_no_member(level: int) -> None:
    """Another rebalance had begun while it computed the assignment; it dies a minute later."""
    fleet = Fleet(3)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 3 * S
    fleet.start(4)
    fleet.run(4_500)
    fleet.start(5)
    fleet.rest(60 * S)
    leader.die()
    fleet.rest(60 * S)
    found = fleet.told(level)
    assert [each.kind for each in found] == ["scale-up", "crash"], "\n".join(map(shown, found))
    assert [each.to_generation for each in found[1].rebalances] == [4]


@BOTH
def test_a_leader_that_was_interrupted_sent_nothing(level: int) -> None:
    """A process joins while it computes the assignment."""
    fleet = Fleet(3)
    fleet.world.leader().assign_slow_ms = 20 * S
    fleet.start(4)
    fleet.run(14 * S)
    fleet.start(5)
    fleet.rest(60 * S)
    slow = of_kind(fleet.told(level), "slow-leader")
    headline = (
        "the leader ... had not sent the assignment (range, 4 members) after 11.7 s, when another rebalance began;..."
    )
    expect(slow, "slow-leader", "recorded", headline, "app-2")
    assert "sent it" not in statements(slow)


def test_both_rounds_of_a_cooperative_assignor_that_wait_for_one_id_are_one_incident() -> None:
    """Found by the judge (seed 8000013)."""
    case = play(SCENARIOS["unused-id"], 8_000_013)
    unused = [each for each in incidents(case.history) if each.kind == "unused-id"]
    assert [len(each.rebalances) for each in unused] == [2]
    assert unused[0].headline.startswith("all waited 37.3 s for 'ghost-11'")


def test_of_several_unused_ids_each_holder_is_named() -> None:
    """In the headline and in the chain; the advice has their number."""
    fleet = Fleet(4, session_ms=45 * S)
    for number in (8, 9):
        ghost = fleet.start(number)
        ghost.uses_its_id = False
        fleet.run(S)
        ghost.die()
    fleet.start(5)
    fleet.rest(60 * S)
    incident = of_kind(fleet.told(), "unused-id")
    each = "which had been given a member id 45.0 s before and never used it"
    headline = f"all waited 43.7 s for 'app-8' (10.0.2.8), {each} and 'app-9' (10.0.2.9), {each}"
    expect(incident, "unused-id", "recorded", headline, "app-8", "app-9")
    assert "the member id of 'app-9' (10.0.2.9) was given out 45.0 s before and not used" in statements(
        incident, "recorded"
    )
    assert (
        "43.7 s of it after all others had joined: it waited for 'app-8' (10.0.2.8) and 'app-9' (10.0.2.9), which had"
        " been given a member id up to 45.0 s before and had not joined with it"
    ) in statements(incident, "recorded")
    assert incident.advice == ("2 clients started to join and did not finish: find out what happened to it",)


@pytest.mark.parametrize("takeover", [False, True])
@BOTH
def test_a_phase_that_waited_for_a_static_member_says_so(takeover: bool, level: int) -> None:
    """It is dead and keeps its place, since its session is longer than the rebalance timeout."""
    fleet = Fleet(3, static=3, session_ms=120 * S, rebalance_ms=20 * S)
    fleet[2].die()
    fleet.run(S)
    if takeover:
        fleet.away(3 * S)
        fleet.run(5 * S)
    fleet.start(5)
    fleet.rest(30 * S)
    incident = of_kind(fleet.told(level), "scale-up")
    assert (
        "of it after all others had joined: it waited for 'app-2' (10.0.1.2), which did not join within the rebalance"
        " timeout"
    ) in statements(incident, "recorded")
    seen = "it was last heard from at 2023-11-18 22:59:38 UTC"
    if takeover:
        seen = "it had not been heard from since the coordinator changed"
    grade = "recorded"
    if level == OLDER:
        seen, grade = "when it was last heard from is not recorded", "unknown"
    kept = f"'app-2' (10.0.1.2) did not rejoin and kept its place, as a static member; {seen}"
    assert kept in statements(incident, grade)


def test_a_phase_that_waited_for_a_dynamic_member_and_for_a_static_one_names_both() -> None:
    """One is dropped, the other keeps its place."""
    fleet = Fleet(4, static=2, session_ms=120 * S, rebalance_ms=20 * S)
    fleet[2].die()
    fleet[3].die()
    fleet.start(5)
    fleet.rest(30 * S)
    crash = of_kind(fleet.told(), "crash")
    late = "which did not join within the rebalance timeout"
    assert f"it waited for 'app-3' (10.0.1.3) and 'app-2' (10.0.1.2), {late}" in statements(crash, "recorded")


def test_a_phase_names_the_sessions_that_ended_in_it_in_order() -> None:
    """Without the last one it would have waited almost as long."""
    fleet = Fleet(4, session_ms=10 * S, rebalance_ms=60 * S)
    fleet[2].die()
    fleet.run(3 * S)
    fleet[3].die()
    fleet.start(5)
    fleet.rest(30 * S)
    waited = "it waited for 'app-2' (10.0.1.2) and 'app-3' (10.0.1.3), which were not heard from again"
    assert [waited in statements(each, "recorded") for each in fleet.told() if each.rebalances].count(True) == 1


@BOTH
def test_a_running_rebalance_names_the_awaited_members(level: int) -> None:
    """First for the members that have not joined, then for the leader's assignment."""
    fleet = Fleet(4)
    fleet[2].slow_ms = fleet[3].slow_ms = 30 * S
    fleet.world.leader().assign_slow_ms = 20 * S
    fleet.start(5)
    fleet.run(15 * S)
    waiting = "the join phase goes on: 'app-2' (10.0.1.2) and 'app-3' (10.0.1.3) have not joined so far"
    assert waiting in statements(fleet.only(level), "recorded")
    fleet.run(25 * S)
    leader = "the sync phase goes on: the leader 'app-2' (10.0.1.2) has not sent the assignment so far"
    assert leader in "\n".join(statements(each, "recorded") for each in fleet.told(level))
    fleet.rest(30 * S)
    assert not any("goes on" in statements(each) for each in fleet.told(level))


def test_of_many_that_a_phase_waited_for_a_few_are_named() -> None:
    """Ten die, and a takeover restarts all their sessions."""
    fleet = Fleet(12)
    for number in range(1, 11):
        fleet[number].die()
    fleet.away(S)
    fleet.start(13)
    fleet.rest(30 * S)
    text = "\n".join(map(statements, fleet.told()))
    assert "and 5 more, which were not heard from again" in text


def test_an_absent_static_member_was_last_heard_at_a_known_time_or_before_a_takeover() -> None:
    """It kept its place; a takeover's time does not show that it was alive."""
    for away in (False, True):
        fleet = Fleet(4, static=4, session_ms=45 * S, rebalance_ms=20 * S)
        fleet[2].die()
        fleet.run(S)
        if away:
            fleet.away(2 * S)
            fleet.run(5 * S)
        fleet.start(5)
        fleet.rest(30 * S)
        text = "\n".join(statements(each, "recorded") for each in fleet.told())
        seen = "it had not been heard from since the coordinator changed" if away else "it was last heard from at 2023-"
        assert f"'app-2' (10.0.1.2) did not rejoin and kept its place, as a static member; {seen}" in text


def test_of_very_many_unused_ids_16_are_named_and_the_others_counted() -> None:
    """The phase waited for all of them."""
    fleet = Fleet(3, session_ms=45 * S)
    for number in range(9, 26):
        fleet.start(number).uses_its_id = False
    fleet.run(S)
    for number in range(9, 26):
        fleet[number].die()
    fleet.start(5)
    fleet.rest(60 * S)
    headline = of_kind(fleet.told(), "unused-id").headline
    assert headline.count("which had been given a member id") == 16
    assert headline.endswith(", and 1 more")


def test_a_leader_that_stood_still_while_others_were_replaced_was_slow() -> None:
    """It had not ended, since it was heard from again; two of the others were restarted meanwhile."""
    fleet = Fleet(5, rebalance_ms=20 * S, session_ms=60 * S)
    leader = fleet.world.leader()
    one, other = [number for number in range(1, 6) if fleet[number] is not leader][:2]
    leader.assign_slow_ms = 12 * S
    fleet.restart(one, S)
    fleet.run(4_500)
    leader.freeze()
    fleet.run(1_500)
    fleet.restart(other, 2 * S)
    fleet.run(40 * S)
    leader.thaw()
    fleet.rest(60 * S)
    assert [each.kind for each in fleet.told()] == ["slow-leader", "deployment"]
    slow = of_kind(fleet.told(), "slow-leader")
    assert "had not died: it was heard from again under its old member id" in statements(slow, "recorded")


def test_a_leader_that_stood_still_while_all_waited_for_the_assignment_had_not_died() -> None:
    """It was heard from again under its lost member id."""
    fleet = Fleet(3)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 25 * S
    fleet.start(4)
    fleet.run(5 * S)
    leader.freeze()
    fleet.run(25 * S)
    leader.thaw()
    fleet.rest(40 * S)
    slow = of_kind(fleet.told(), "slow-leader")
    assert "sent no heartbeat for its session timeout of 10 s while all waited for the assignment" in slow.headline
    assert "not heard from again" not in slow.headline
    assert "had not died: it was heard from again" in statements(slow, "recorded")


def test_a_phase_that_continues_after_a_refusal_for_lack_of_space_says_until_when() -> None:
    """All members that are left have joined; as in Kafka, the removal of the refused one does not end the phase."""
    script = Script().coordinator("coordinator-a:100").created()
    members = [script.member(name) for name in ("o0", "o1", "o2", "o3")]
    script.start(*map(script.joined, members)).wait(3_000).complete().wait(100).stabilize({})
    script.wait(60_000).start(script.rejoined(members[0], Cause.LEADER_REJOINED), timeout_ms=300_000)
    for member in members[1:3]:
        script.wait(500).advanced(script.rejoined(member))
    script.wait(500).advanced(script.removed(members[3], Cause.GROUP_FULL))
    text = "\n".join(map(statements, incidents(script.history())))
    assert "the join phase goes on although all members have joined: 'o3' (10.0.0.7) was refused and removed" in text
    assert "after its timeout of 5 min, at 2" in text
    assert "to end it now, restart one of its members" in text
    script.wait(200_000).coordinator("coordinator-b:200").wait(1_000)  # all send their joins again, and that ends it
    assert "goes on" not in "\n".join(map(statements, incidents(script.history())))
