"""The membership beyond Kafka, as `why`, `history` and `state` tell it."""

import io
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console

from coordinator.group.configs import REGISTERED, RETIRED
from events.causes import Cause
from events.state import MemberRole
from replay.history import Happened, with_gaps
from replay.rebalance import Incident, IncidentKind, Rebalance
from replay.render import Format, Result, render
from replay.rerun import rerun
from replay.state import AtSeq, StateAt, state_at
from replay.story import LineKind, story
from replay.why import Answer, why
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.replay import memberships
from tests.replay.golden import assert_golden
from tests.replay.memberships import SET, SUBTRACT, two
from tests.replay.played import alive, history_of, rejoin


def printed(result: Result, form: Format = Format.TABLE, width: int = 100) -> str:
    out = io.StringIO()
    render(result, form, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def last(h: Harness) -> Answer:
    (answer,) = why(history_of(h)).answers
    return answer


def told(h: Harness) -> Rebalance:
    return last(h).rebalance


def incidents(h: Harness, kind: IncidentKind) -> list[Incident]:
    """Before the last rebalance, and since."""
    answer = last(h)
    return [each for each in (*answer.rebalance.avoided, *answer.since) if each.kind is kind]


def state_of(h: Harness) -> StateAt:
    state = state_at(history_of(h), AtSeq(h.events[-1].seq))
    assert state is not None
    return state


def names(members: object) -> list[str]:
    assert isinstance(members, tuple)
    return [member.group_instance_id or member.member_id for member in members]


@pytest.mark.parametrize("play", memberships.STORIES, ids=lambda play: play.__name__)
def test_each_story_is_told_as_it_was(play: Callable[[], Harness]) -> None:
    """The last rebalance, what was planned, and what started none."""
    assert_golden(f"why-{play.__name__}.txt", printed(why(history_of(play()))))


@pytest.mark.parametrize("play", [*memberships.STORIES, memberships.unfinished], ids=lambda play: play.__name__)
def test_each_story_can_be_decided_again(play: Callable[[], Harness]) -> None:
    """The log holds all that the rules were given."""
    again = rerun(history_of(play()))
    assert again.differences == ()
    assert again.skipped == 0


@pytest.mark.parametrize(
    "play",
    [memberships.registration_late, memberships.retirement_late, memberships.learners_done, memberships.standby],
    ids=lambda play: play.__name__,
)
def test_the_history_has_a_sentence_for_each_event(play: Callable[[], Harness]) -> None:
    """Who was registered, retired, promoted, called; which setting changed from what to what."""
    assert_golden(f"history-{play.__name__}.txt", printed(story(history_of(play())), width=120))


def test_the_state_shows_roles_registrations_and_settings() -> None:
    """In the table, and by name in JSON."""
    state = state_of(memberships.unfinished())
    assert_golden("state-memberships.txt", printed(state))
    document = msgspec.json.decode(printed(state, Format.JSON))
    roles = {member["client_id"]: (member["role"], member["retiring"]) for member in document["members"]}
    assert roles == {
        "app-a": ("Active", True),
        "app-c": ("Called", False),
        "app-d": ("Standby", False),
        "e": ("Learner", False),
    }
    assert [each["group_instance_id"] for each in document["registrations"]] == ["x", "y"]
    assert document["settings"]["target.group.size"] == "2"


# ---- registrations ------------------------------------------------------------------------------


def test_arrivals_that_waited_are_no_causes_but_what_was_spared() -> None:
    """Three joins, one rebalance: they are counted, and not folded in."""
    rebalance = told(memberships.registration())
    assert rebalance.trigger.cause is Cause.REGISTRATION_COMPLETE
    assert rebalance.trigger.planned is not None
    assert names(rebalance.trigger.planned.came) == ["c", "d", "e"]
    assert rebalance.folded == ()
    (gathered,) = incidents(memberships.registration(), IncidentKind.JOINS_GATHERED)
    assert (gathered.times, names(gathered.members)) == (3, ["c", "d", "e"])


def test_who_came_in_time_and_who_did_not() -> None:
    """By name."""
    planned = told(memberships.registration_late()).trigger.planned
    assert planned is not None
    assert (names(planned.came), planned.did_not_come) == (["c"], ("d", "e"))


def test_a_newcomer_within_a_join_phase_waited_for_nothing() -> None:
    """Its instance was registered, but it came to a rebalance that was running."""
    h, (a, b) = two()
    h.alter((REGISTERED, SET, "c"))
    b.leave()
    h.sleep(10)
    c = h.static("c")
    c.join()
    rejoin(a, with_them=[c])
    rebalance = told(h)
    assert [seen.cause for seen in rebalance.folded] == [Cause.NEW_STATIC_MEMBER]
    assert incidents(h, IncidentKind.JOINS_GATHERED) == []


def test_a_registration_that_ran_out_without_anybody_is_told_as_such() -> None:
    """No rebalance comes of it."""
    h, (a, b) = two()
    h.alter((REGISTERED, SET, "c,d"))
    alive(h, 300_000, a, b)
    announced = incidents(h, IncidentKind.PLANNED)
    assert announced[-1].text == "the time for registered instances to come was up: 'c' and 'd' did not come"
    assert len(why(history_of(h), everything=True).answers) == 1


# ---- retirement, settings -----------------------------------------------------------------------


def test_who_went_and_who_was_removed() -> None:
    """Partitions of those who went before belonged to them until the rebalance."""
    rebalance = told(memberships.retirement_late())
    planned = rebalance.trigger.planned
    assert planned is not None
    assert (names(planned.went), names(planned.removed)) == (["c"], ["d"])
    assert rebalance.movement is not None
    assert {move.previous.group_instance_id for move in rebalance.movement.moves if move.previous} == {"b", "c", "d"}


def test_a_rebalance_for_another_reason_settles_what_the_retired_left() -> None:
    """Those who went are not told again by the next one, whose partitions they no longer had."""
    h, (a, b, c, d) = two("abcd")
    h.alter((RETIRED, SET, "c,d"))
    c.leave()
    b.leave()
    rejoin(a, d)
    d.leave()
    rejoin(a)
    planned = told(h).trigger.planned
    assert planned is not None
    assert names(planned.went) == ["d"]


def test_settings_changed_are_told_with_what_they_were() -> None:
    """In the trigger, and in the history, where it is known."""
    h = memberships.configured()
    planned = told(h).trigger.planned
    assert planned is not None
    assert [(each.name, each.before, each.after) for each in planned.settings] == [
        ("target.group.size", "2", "1"),
        ("members.learner.timeout.ms", "60000", None),
    ]
    lines = [line for line in story(history_of(h)).lines if line.kind is LineKind.SETTINGS]
    assert "target.group.size from 2 to 1" in lines[1].text
    history = history_of(h)
    kept = [item for item in history.items if isinstance(item, Happened) and item.place.offset > 9]
    cut = msgspec.structs.replace(history, items=tuple(with_gaps(kept)))
    (line,) = (line for line in story(cut).lines if line.kind is LineKind.SETTINGS)
    assert line.text.endswith("set are now: target.group.size=1")


# ---- standbys -----------------------------------------------------------------------------------


def test_a_takeover_moves_the_lost_members_partitions_and_no_others() -> None:
    """Told with who was lost, why, and how long it took; the next rebalance starts from there."""
    h = memberships.standby()
    (call,) = incidents(h, IncidentKind.STANDBY_CALLED)
    assert call.who is not None
    assert (call.who.group_instance_id, names(call.members)) == ("c", ["b"])
    assert (call.at, call.until) == ("2023-11-14T22:13:37.000Z", "2023-11-14T22:13:38.850Z")
    assert call.movement is not None
    assert (call.movement.moved, call.movement.stayed) == (6, 6)
    (move,) = call.movement.moves
    assert (move.previous and move.previous.group_instance_id, move.owner and move.owner.group_instance_id) == (
        "b",
        "c",
    )
    rebalance = told(h)
    assert rebalance.movement is not None
    assert (rebalance.movement.moved, rebalance.movement.stayed) == (0, 12)
    assert names(rebalance.held) == ["b"]


def test_a_standby_that_is_lost_itself_before_it_took_over() -> None:
    """The next one has the partitions from the very first."""
    h, (_a, b) = two()
    h.set(target_group_size="2")
    c, d = h.static("c"), h.static("d")
    for client in (c, d):
        client.join()
        client.sync()
    b.leave()
    c.leave()
    memberships.take_over(d)
    first, second = incidents(h, IncidentKind.STANDBY_CALLED)
    assert "was lost itself" in first.text
    assert "took over the 6 partitions of 'c' (orders 6-11) within 850 ms" in second.text
    assert state_of(h).members[-1].role is MemberRole.ACTIVE


def test_a_called_standby_that_was_too_late() -> None:
    """A rebalance began before it asked; it was due to something else."""
    h, (a, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    b.leave()
    a.leave()
    (call,) = incidents(h, IncidentKind.STANDBY_CALLED)
    assert "had not asked for them when the group rebalanced" in call.text
    assert told(h).trigger.cause is Cause.MEMBER_LEFT


def test_two_are_lost_at_once_and_one_standby_is_there() -> None:
    """The rebalance is told with both, and the call that came to nothing."""
    h, (_a, _b, _e) = two("abe")
    h.set(target_group_size="3")
    c = h.static("c")
    c.join()
    c.sync()
    h.leave_instance("b", "e")
    rebalance = told(h)
    assert names(rebalance.trigger.who) == ["b", "e"]
    (call,) = incidents(h, IncidentKind.STANDBY_CALLED)
    assert "when the group rebalanced" in call.text


def test_an_old_client_cannot_take_the_leaders_place() -> None:
    """That rebalance is the standby's, and names what it lacks."""
    h, (a, _b) = two(version=8)
    h.set(target_group_size="2")
    c = h.static("c", version=8)
    c.join()
    c.sync()
    a.leave()
    c.join()
    assert told(h).trigger.cause is Cause.STANDBY_UNFIT
    assert last(h).headline.startswith("After generation 1: the standby 'c' (10.0.0.1, client app-c) could not take")


def test_held_members_come_change_and_go_without_a_rebalance() -> None:
    """Each is told, also while the leader computes the assignment."""
    h, (a, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    c.join(protocols=protocols("range", metadata=subscription("orders", "payments")))
    h.sleep(10)
    c = c.restarted()
    c.join()
    c.leave()
    assert [each.text.partition(")")[2] for each in incidents(h, IncidentKind.HELD_MEMBER_CAME)] == [
        " came as a standby, and moved nothing",
        ", which has no partitions, rejoined and moved nothing",
    ]
    assert len(incidents(h, IncidentKind.HELD_MEMBER_WENT)) == 1
    (restart,) = incidents(h, IncidentKind.STATIC_RESTART)
    assert restart.text.endswith("restarted; it is a standby, without partitions")
    a.join()
    b.join()
    h.static("d").join()
    h.sleep(10)
    assert [each.kind for each in told(h).meanwhile] == [IncidentKind.HELD_MEMBER_CAME]
    assert told(h).folded == ()


# ---- duels --------------------------------------------------------------------------------------


def test_a_duel_is_one_incident_with_both_hosts_and_how_often() -> None:
    """However long it lasts; the restarts in it are not counted as absorbed ones."""
    h = memberships.duel()
    (incident,) = incidents(h, IncidentKind.INSTANCE_DUEL)
    assert "10.0.0.2" in incident.text
    assert "10.0.0.7" in incident.text
    assert (incident.times, incident.until) == (3, "2023-11-14T22:13:31.000Z")
    assert len(incidents(h, IncidentKind.STATIC_RESTART)) == 1
    fences = incidents(h, IncidentKind.MEMBER_FENCED)
    assert [fence.times for fence in fences] == [2, 2]


def test_a_long_duel_is_counted_though_not_all_of_it_is_written() -> None:
    """Fences are limited in rate, restarts are not."""
    h, (_a, b) = two()
    for number in range(30):
        rival = b.restarted(host="/10.0.0.2" if number % 2 else "/10.0.0.7")
        rival.join()
        b.heartbeat()
        b = rival
    (incident,) = incidents(h, IncidentKind.INSTANCE_DUEL)
    assert incident.times == 29
    assert len(last(h).since) == 4


def test_a_withdrawn_registration_lets_those_in_who_waited() -> None:
    """The trigger says whose registration it was, and who came."""
    h, (_a, _b) = two()
    h.alter((REGISTERED, SET, "c,d"))
    c = h.static("c")
    c.join()
    h.sleep(10)
    h.alter((REGISTERED, SUBTRACT, "c"))
    trigger = told(h).trigger
    assert trigger.cause is Cause.REGISTRATION_WITHDRAWN
    assert trigger.text == (
        "an administrator (client admin at 10.0.0.9, User:admin) withdrew the registration of instances: "
        "'c' had been waiting and came"
    )
