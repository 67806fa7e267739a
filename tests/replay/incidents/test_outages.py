"""The sentences about a coordinator that was unreachable or paused, and members that were lost meanwhile.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

import msgspec
import pytest

from muster.events.events import CoordinatorReady
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.records import FORMAT_LEVEL
from muster.replay.fleet.simulation.world import outages
from muster.replay.fleet.simulation.world.world import World
from muster.replay.history.items import Coordinated
from muster.replay.incidents.incident import Incident
from tests.replay.incidents.fleet import BOTH, OLDER, Fleet, expect, of_kind, remove, statements
from tests.replay.incidents.levels import at_level
from tests.replay.whole import incidents

S = 1_000


def outage(*, seen_before_ms: int | None = 2 * S, orderly: bool = False) -> Fleet:
    """Five members, one of them static; their clients drop their member ids while there is no response."""
    fleet = Fleet(5, library="librdkafka", static=1, session_ms=6 * S)
    fleet.away(14 * S, seen_before_ms=seen_before_ms, orderly=orderly)
    fleet.rest(20 * S)
    return fleet


def test_an_outage_is_reported_with_its_consequences() -> None:
    """With its start and end, the sessions, the joins and expiries that it caused, and the members that stayed."""
    incident = outage().only()
    expect(
        incident,
        "coordinator-outage",
        "inferred",
        "the coordinator was unavailable from ... 22:59:37 to 22:59:53 UTC, for 16.0 s since its last sign of life,"
        " longer than the sessions of 6 s: 4 members lost their places because of it and came back as new ones (..."
        " and 'app-5' (10.0.1.5)); 'app-1' (10.0.1.1) came back to its place under a new member id",
    )
    assert statements(incident).count("rejoined under a new member id") == 4
    assert "its last sign of life" in statements(incident, "recorded")
    assert "16.0 s later by their wall clocks" in statements(incident, "inferred")
    assert "'app-1' (10.0.1.1) came back to its place" in statements(incident, "unknown")
    assert len(incident.rebalances) == 1


def test_a_clean_stop_gives_the_start_of_the_outage() -> None:
    """At all format levels."""
    for level in (4, OLDER):
        incident = outage(orderly=True).only(level)
        assert "from 2023-11-18 22:59:39 to 22:59:53 UTC, for 14.0 s, longer than the sessions" in incident.headline
        assert " released its partition cleanly" in statements(incident, "recorded")


@pytest.mark.parametrize(("seen_before_ms", "level"), [(None, 4), (2 * S, OLDER)])
def test_without_a_sign_of_life_it_is_unknown_when_an_outage_began(seen_before_ms: int | None, level: int) -> None:
    """It began after the last event; its duration, and whether that exceeds the sessions, is not reported."""
    incident = outage(seen_before_ms=seen_before_ms).only(level)
    assert (incident.kind, incident.grade) == ("coordinator-outage", "inferred")
    assert "when that began is not known, and its last event before it is from" in incident.headline
    assert "longer than" not in incident.headline
    assert "when it ended after that is not known" in statements(incident, "unknown")


def test_an_outage_that_may_have_been_shorter_than_the_sessions_is_not_called_longer() -> None:
    """8 s since the owner last recorded that it was alive, after which it runs for up to 5 s; the sessions are 6 s."""
    fleet = Fleet(3, library="librdkafka", session_ms=6 * S)
    fleet.away(7 * S, seen_before_ms=S)
    fleet.rest(20 * S)
    incident = fleet.only()
    assert "for 8.0 s since its last sign of life (sessions of 6 s): 3 members lost their places" in incident.headline


@BOTH
def test_a_coordinator_that_stood_still_is_an_outage_too(level: int) -> None:
    """For 10 s, with sessions of 6 s."""
    fleet = Fleet(3, library="librdkafka", session_ms=6 * S)
    fleet.paused(10 * S)
    fleet.rest(20 * S)
    expect(
        fleet.only(level),
        "coordinator-outage",
        "inferred",
        "the coordinator 10.0.9.1:9092 stalled for at least 10.0 s, from ... 22:59:39 to 22:59:49 UTC,"
        " longer than the sessions of 6 s: 3 members lost their places because of it and came back as new ones (...);"
        " none kept their places",
    )


def test_a_takeover_invents_no_sign_of_life() -> None:
    """A member had died a second before the coordinator did."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.run(S)
    fleet.away(4 * S)
    fleet.rest(20 * S)
    for level, since in ((4, "22:59:28"), (OLDER, "22:48:32")):
        change, crash = fleet.told(level)
        assert "2 of 3 members kept their places, 'app-2' (10.0.1.2) was not heard from again" in change.headline
        expect(
            crash,
            "crash",
            "inferred",
            "'app-2' (10.0.1.2) was not heard from again, was removed 10.0 s after the coordinator had changed"
            " (session timeout 10 s), and no process has taken its place so far",
            "app-2",
        )
        between = f"between 2023-11-18 {since} UTC and 2023-11-18 22:59:44 UTC, when the coordinator changed"
        assert between in statements(crash, "unknown")
        assert "last heard from, and removed" not in statements(crash)


def test_a_member_that_waited_for_a_join_phase_at_a_takeover_may_have_died_long_before() -> None:
    """It died 16 s before the takeover, with a session of 6 s: a member that waits for the others does not expire."""
    fleet = Fleet(4, session_ms=6 * S, rebalance_ms=40 * S)
    fleet[2].slow_ms = 35 * S
    fleet.start(5)
    fleet.run(3 * S)
    fleet[1].die()
    fleet.run(15 * S)
    fleet.away(2 * S)
    fleet.rest(90 * S)
    crash = of_kind(fleet.told(), "crash")
    assert "between 2023-11-18 22:59:40 UTC and 2023-11-18 22:59:59 UTC, when the coordinator" in statements(
        crash, "unknown"
    )


@pytest.mark.parametrize(("second", "first_of_them"), [("paused", "were not heard from again"), ("away", "not known")])
def test_a_second_outage_defers_the_consequences_of_the_first(second: str, first_of_them: str) -> None:
    """Two members die in the first; the second restarts their sessions of 45 s, and a takeover hides more."""
    fleet = Fleet(4, session_ms=45 * S)
    for number in (1, 2):
        fleet.world.at(2 * S, fleet[number].die)
    fleet.away(20 * S)
    fleet.run(20 * S)
    getattr(fleet, second)(10 * S)
    fleet.rest(120 * S)
    for level in (4, OLDER):
        first, again = (each for each in fleet.told(level) if each.kind == "coordinator-change")
        assert "; 2 of 4 members kept their places" in first.headline
        assert first_of_them in first.headline
        assert "2 of 4 members kept their places, 'app-2' (10.0.1.2) and 'app-1' (10.0.1.1) were not" in again.headline


def test_one_member_that_died_in_the_first_of_two_outages_is_named() -> None:
    """Whether it was heard from between the takeovers is not known; after the second one it was not."""
    fleet = Fleet(4, session_ms=45 * S)
    fleet.world.at(2 * S, fleet[1].die)
    fleet.away(20 * S)
    fleet.run(20 * S)
    fleet.away(10 * S)
    fleet.rest(120 * S)
    first, again = (each for each in fleet.told() if each.kind == "coordinator-change")
    kept = "3 of 4 members kept their places"
    assert first.headline.endswith(f"; {kept}; it is not known whether 'app-1' (10.0.1.1) was heard from again")
    assert again.headline.endswith(f"; {kept}, 'app-1' (10.0.1.1) was not heard from again")


def test_members_that_died_before_a_takeover_did_not_fall_silent_together() -> None:
    """Their silence seems to begin with the takeover."""
    for level in (4, OLDER):
        fleet = Fleet(6)
        fleet[2].die()
        fleet.run(S)
        fleet[4].die()
        fleet.away(4 * S)
        fleet.rest(20 * S)
        assert sorted(each.kind for each in fleet.told(level)) == ["coordinator-change", "crash", "crash"]


def test_a_poll_that_an_outage_made_late_is_its_consequence() -> None:
    """The client says that it polled too late, as soon as there is a coordinator again."""
    fleet = Fleet(3)
    outages.take_down(fleet.world, orderly=True)
    fleet.run(14 * S)
    outages.bring_up(fleet.world, fleet.story)
    fleet[2].stop_polling()
    fleet.world.at(100, fleet[2].poll_again)
    fleet.rest(20 * S)
    incident = fleet.only()
    assert incident.kind == "coordinator-outage"
    assert (
        "1 member lost its place because of it and came back as a new one ('app-2' (10.0.1.2)); 2 kept"
        in incident.headline
    )
    assert "under its former one it left, since its poll had not returned in time" in statements(incident)


def test_places_are_only_held_while_a_member_may_be_dead() -> None:
    """One died before the outage, and its session of 45 s restarted after it; the others were not heard from either."""
    fleet = Fleet(3, session_ms=45 * S)
    fleet[2].die()
    fleet.away(4 * S)
    fleet.run(10 * S)
    assert fleet.only().headline.endswith("; all 3 members keep their places so far: their sessions have not expired")
    assert "'app-1' (10.0.1.1) kept running: their sessions have not expired" in statements(fleet.only(), "unknown")
    assert "kept their" not in statements(fleet.only())
    fleet.rest(60 * S)
    fleet.start(4)
    fleet.rest(30 * S)
    change = of_kind(fleet.told(), "coordinator-change")
    assert change.headline.endswith("; 2 of 3 members kept their places, 'app-2' (10.0.1.2) was not heard from again")
    assert "so far" not in statements(change)


@pytest.mark.parametrize(("how", "level"), [("paused", 4), ("paused", OLDER), ("away", 4)])
@pytest.mark.parametrize("static", [0, 3])
def test_a_process_that_ended_by_itself_did_not_end_by_a_short_outage(how: str, static: int, level: int) -> None:
    """It was killed just before the outage and started after it: no client drops its id within 3 of 45 s."""
    fleet = Fleet(3, static=static, session_ms=45 * S)
    fleet[2].die()
    getattr(fleet, how)(3 * S)
    fleet.run(20 * S)
    fleet.start(2)
    fleet.rest(60 * S)
    found = fleet.told(level)
    expect(of_kind(found, "restart"), "restart", "inferred", "'app-2' (10.0.1.2) ...", "app-2")
    assert [each.kind for each in found if each.kind != "restart"] == ["coordinator-change"]


@pytest.mark.parametrize("number", range(1, 6))
def test_members_that_lost_their_places_are_reported_beside_one_that_died(number: int) -> None:
    """It ended with the coordinator, whichever member it is, and does not come back."""
    fleet = Fleet(5, library="librdkafka", session_ms=6 * S)
    fleet[number].die()
    fleet.away(14 * S)
    fleet.rest(20 * S)
    found = fleet.told()
    assert "4 members lost their places because of it" in of_kind(found, "coordinator-outage").headline
    assert {each.kind for each in found} == {"coordinator-outage", "crash"}


def test_members_that_lost_their_places_are_reported_although_one_had_restarted_before() -> None:
    """It had come back long before the coordinator ended."""
    fleet = Fleet(5, library="librdkafka", session_ms=6 * S)
    fleet.restart(1, S)
    fleet.rest(20 * S)
    fleet.away(14 * S)
    fleet.rest(20 * S)
    found = fleet.told()
    assert "5 members lost their places because of it" in of_kind(found, "coordinator-outage").headline
    assert {each.kind for each in found} == {"coordinator-outage", "restart"}


def test_a_leaders_request_after_a_join_failed_in_an_outage_belongs_to_it() -> None:
    """The Java client gives that as its reason, and keeps its place; its application did not ask."""
    fleet = Fleet(3)
    fleet.away(7 * S)
    fleet.run(100)
    fleet.world.leader().rejoin_soon("rebalance failed due to CoordinatorLoadInProgressException")
    fleet.rest(20 * S)
    incident = fleet.only()
    assert (incident.kind, len(incident.rebalances)) == ("coordinator-change", 1)
    assert incident.headline.endswith("asked for a new assignment after it")


def test_partitions_added_in_an_outage_are_reported_although_the_first_join_for_them_failed() -> None:
    """The client gives the failure as its reason; the assignments show what it wanted."""
    fleet = Fleet(3)
    fleet.world.partitions["orders"] = 24
    fleet.away(7 * S)
    fleet.run(100)
    fleet.world.leader().rejoin_soon("rebalance failed due to CoordinatorLoadInProgressException")
    fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["coordinator-change", "partitions-changed"]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("away_ms", [200, 7 * S])
def test_a_leaders_request_after_it_forgot_its_topics_in_an_outage_belongs_to_it(away_ms: int, assignor: str) -> None:
    """The Java client forgets them while it reaches no broker, however short that is; no partitions have changed."""
    fleet = Fleet(3, assignors=(assignor,))
    fleet.away(away_ms)
    fleet.run(100)
    fleet.world.leader().rejoin_soon("cached metadata has changed")
    fleet.rest(20 * S)
    incident = fleet.only()
    assert (incident.kind, len(incident.rebalances)) == ("coordinator-change", 1)
    assert incident.headline.endswith("asked for a new assignment after it")
    assert 'asked for a new assignment; the client says: "cached metadata has changed"' in statements(
        incident, "recorded"
    )


def test_partitions_added_in_an_outage_are_reported_although_the_leader_may_have_forgotten_them() -> None:
    """The assignments show that they were."""
    fleet = Fleet(3)
    fleet.world.partitions["orders"] = 24
    fleet.away(7 * S)
    fleet.run(100)
    fleet.world.leader().rejoin_soon("cached metadata has changed")
    fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["coordinator-change", "partitions-changed"]


def test_a_leaders_request_long_after_an_outage_is_separate() -> None:
    """It had no reason to wait that long."""
    fleet = Fleet(3)
    fleet.away(7 * S)
    fleet.run(60 * S)
    fleet.world.leader().rejoin_soon("cached metadata has changed")
    fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["coordinator-change", "metadata-changed"]


@BOTH
@pytest.mark.parametrize("how", ["paused", "away"])
def test_a_static_member_closed_before_an_outage_is_not_reported_as_running(how: str, level: int) -> None:
    """Its session held its place until its restart; the others are known to be alive once their sessions are over."""
    fleet = Fleet(4, static=3, session_ms=45 * S)
    fleet[2].close()
    getattr(fleet, how)(3 * S)
    fleet.run(20 * S)
    fleet.start(2)
    fleet.rest(S)
    change = of_kind(fleet.told(level), "coordinator-change")
    back = "'app-2' (10.0.1.2) came back to its place under a new member id"
    others = "'app-1' (10.0.1.1), 'app-3' (10.0.1.3) and 'app-4' (10.0.1.4)"
    assert change.headline.endswith(f"; {back}; {others} keep their places so far: their sessions have not expired")
    assert f"{back}; it is not known whether it had kept running" in statements(change, "unknown")
    fleet.run(60 * S)
    fleet.start(5)
    fleet.rest(5 * S)
    change = of_kind(fleet.told(level), "coordinator-change")
    assert change.headline.endswith("; 3 of 4 members kept their places; " + back)
    assert "app-2" not in "".join(each.text for each in change.chain if "kept their places" in each.text)


def test_a_static_member_heard_after_an_outage_had_kept_running() -> None:
    """It was restarted only after that."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    fleet.away(3 * S)
    fleet.run(10 * S)
    fleet.restart(2, S)
    fleet.run(60 * S)
    fleet.start(4)
    fleet.rest(5 * S)
    change = of_kind(fleet.told(), "coordinator-change")
    assert change.headline.endswith("; all 3 members kept their places")


def test_members_removed_by_an_administrator_after_an_outage_kept_their_places_if_heard() -> None:
    """One had been closed before the outage, and was not heard from."""
    fleet = Fleet(3, static=3, session_ms=45 * S)
    fleet[2].close()
    fleet.away(3 * S)
    fleet.run(10 * S)
    remove(fleet, 1, 2)
    fleet.run(60 * S)
    fleet.start(4)
    fleet.rest(5 * S)
    change = of_kind(fleet.told(), "coordinator-change")
    assert change.headline.endswith("; 2 of 3 members kept their places, 'app-2' (10.0.1.2) was not heard from again")
    older = of_kind(fleet.told(OLDER), "coordinator-change")
    assert "it is not known whether 'app-2' (10.0.1.2) was heard from again" in older.headline


def test_if_no_member_is_seen_again_none_kept_its_place() -> None:
    """The only member had died."""
    fleet = Fleet(1)
    fleet[1].die()
    fleet.away(4 * S)
    fleet.rest(20 * S)
    change = of_kind(fleet.told(), "coordinator-change")
    assert change.headline.endswith(" since its last sign of life; 'app-1' (10.0.1.1) was not heard from again")


def taken_over(fleet: Fleet, end: OwnershipEnd, *, owner: str, level: int = FORMAT_LEVEL) -> Incident:
    """Return the coordinator's incident, in which another process was the last to take over and recorded this end."""
    reported = all_taken_over(fleet, end, owner=owner, level=level)
    (found,) = (each for each in reported if each.kind.startswith("coordinator-"))
    return found


def all_taken_over(fleet: Fleet, end: OwnershipEnd, *, owner: str, level: int = FORMAT_LEVEL) -> tuple[Incident, ...]:
    history = fleet.history()
    last = max(n for n, item in enumerate(history.items) if _is_ready(item))
    items = [*history.items]
    item = items[last]
    assert isinstance(item, Coordinated)
    ready = msgspec.structs.replace(item.event, owner=owner, owner_before="a:1", owner_before_end=end)
    items[last] = msgspec.structs.replace(item, event=ready)
    return tuple(incidents(at_level(msgspec.structs.replace(history, items=tuple(items)), level)))


def _is_ready(item: object) -> bool:
    return isinstance(item, Coordinated) and isinstance(item.event, CoordinatorReady)


def test_an_unnoticed_takeover_is_reported_with_its_cause() -> None:
    """At the previous format level the log shows who took over from whom, and nothing else."""
    fleet = Fleet(3)
    refused_ms = fleet.wall_ms
    fleet.away(S)
    fleet.rest(660 * S)
    fleet.start(4)
    fleet.rest(20 * S)
    end = OwnershipEnd(
        cause=OwnershipEndCause.GONE, removed_by="c:9", link_lost_ms=refused_ms - 80, refused_ms=refused_ms
    )
    change = taken_over(fleet, end, owner="b:2")
    assert (change.kind, change.grade) == ("coordinator-change", "recorded")
    assert change.headline.startswith(
        "b:2 took over from a:1, which refused connections at 2023-11-18 22:59:39 UTC and was removed by c:9: the"
        " coordinator was unavailable from "
    )
    assert change.headline.endswith(
        ", for 3.0 s since its last sign of life and 1.1 s since a connection to it broke; all 3 members kept their"
        " places"
    )
    assert (
        "by the takeover's record the coordinator a:1 refused connections at 2023-11-18 22:59:39 UTC and was removed by"
        " c:9; a connection to it had broken at 2023-11-18 22:59:39 UTC"
    ) in statements(change, "recorded")
    older = taken_over(fleet, end, owner="b:2", level=4)
    assert older.headline.startswith("b:2 took over from a:1: the coordinator was unavailable from ")
    assert "removed" not in older.headline + statements(older)


@pytest.mark.parametrize(("cause", "is_said"), [("gone", True), ("stopped", True), ("taken-back", False)])
def test_a_member_unheard_after_a_takeover_may_not_reach_the_new_owner(cause: str, is_said: bool) -> None:
    """Its process may run, with bootstrap.servers that name only the process that ended."""
    fleet = Fleet(3)
    fleet[2].die()
    fleet.run(S)
    fleet.away(S)
    fleet.rest(20 * S)
    reported = all_taken_over(fleet, OwnershipEnd(cause=OwnershipEndCause(cause)), owner="b:2")
    crash = of_kind(reported, "crash")
    assert (
        "if its process still runs, it did not reach b:2, which took over from a:1" in "".join(crash.advice)
    ) is is_said


def test_a_member_that_is_removed_late_after_a_takeover_did_not_keep_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new owner removes nobody before the lease of the former one is over, so not exactly at the session timeout."""
    monkeypatch.setattr(World, "_draw_late_ms", lambda _: 3 * S)
    fleet = Fleet(3)
    fleet[2].die()
    fleet.run(S)
    fleet.away(S)
    fleet.rest(20 * S)
    change = of_kind(fleet.told(), "coordinator-change")
    assert change.headline.endswith("; 2 of 3 members kept their places, 'app-2' (10.0.1.2) was not heard from again")


def test_an_outage_by_which_members_lost_their_places_has_the_cause_in_its_evidence() -> None:
    joined = taken_over(outage(), OwnershipEnd(cause=OwnershipEndCause.NO_MEMBER), owner="b:2")
    assert joined.kind == "coordinator-outage"
    assert "the coordinator a:1 was no longer a member of the ownership group" in statements(joined, "recorded")
