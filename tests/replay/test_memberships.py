"""Planned membership in `why`, `history` and `state`."""

from collections.abc import Callable

import msgspec
import pytest

from muster.coordinator.group.configs import REGISTERED, RETIRED
from muster.events.causes import Cause
from muster.replay.form import Format
from muster.replay.history.items import Happened, with_gaps
from muster.replay.rebalances.rebalance import HappeningKind
from muster.replay.results.story import LineKind
from tests.coordinator.group.harness import Harness
from tests.replay import memberships
from tests.replay.golden import assert_golden
from tests.replay.memberships import SET, SUBTRACT, two
from tests.replay.played import alive, history_of, rejoin
from tests.replay.told import (
    happenings,
    last_rebalance,
    names,
    printed,
    printed_history,
    printed_rebalances,
    rebalances_of,
    since,
    state_of,
)
from tests.replay.whole import lines, rerun


@pytest.mark.parametrize("play", memberships.STORIES, ids=lambda play: play.__name__)
def test_each_story_matches_its_golden(play: Callable[[], Harness]) -> None:
    """The last rebalance, the plans, and the happenings that started none."""
    assert_golden(f"why-{play.__name__}.txt", printed_rebalances([last_rebalance(play())]))


@pytest.mark.parametrize("play", [*memberships.STORIES, memberships.unfinished], ids=lambda play: play.__name__)
def test_each_story_can_be_decided_again(play: Callable[[], Harness]) -> None:
    """The log has all inputs of the rules."""
    again = rerun(history_of(play()))
    assert again.differences == []
    assert again.skipped == 0


@pytest.mark.parametrize(
    "play",
    [memberships.registration_late, memberships.retirement_late, memberships.learners_done, memberships.standby],
    ids=lambda play: play.__name__,
)
def test_the_history_has_a_sentence_for_each_event(play: Callable[[], Harness]) -> None:
    """Registered, retired, promoted and called members; each changed config with both values."""
    assert_golden(f"history-{play.__name__}.txt", printed_history(history_of(play()), width=120))


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
    assert document["configs"]["target.group.size"] == "2"


# ---- registrations ------------------------------------------------------------------------------


def test_delayed_joins_are_avoided_rebalances_and_not_causes() -> None:
    """Three joins make one rebalance: they are counted, and not folded in."""
    rebalance = last_rebalance(memberships.registration())
    assert rebalance.trigger.cause is Cause.REGISTRATION_COMPLETE
    assert rebalance.trigger.planned is not None
    assert names(rebalance.trigger.planned.came) == ["c", "d", "e"]
    assert rebalance.folded == ()
    (gathered,) = happenings(memberships.registration(), HappeningKind.JOINS_GATHERED)
    assert (gathered.times, names(gathered.members)) == (3, ["c", "d", "e"])


def test_members_that_joined_in_time_and_that_did_not() -> None:
    planned = last_rebalance(memberships.registration_late()).trigger.planned
    assert planned is not None
    assert (names(planned.came), planned.did_not_come) == (["c"], ("d", "e"))


def test_a_newcomer_within_a_join_phase_waited_for_nothing() -> None:
    """Its instance was registered, but it joined while a rebalance was running."""
    h, (a, b) = two()
    h.alter((REGISTERED, SET, "c"))
    b.leave()
    h.sleep(10)
    c = h.static("c")
    c.join()
    rejoin(a, with_them=[c])
    rebalance = last_rebalance(h)
    assert [seen.cause for seen in rebalance.folded] == [Cause.NEW_STATIC_MEMBER]
    assert happenings(h, HappeningKind.JOINS_GATHERED) == []


def test_a_registration_that_expired_without_members_is_reported() -> None:
    """It causes no rebalance."""
    h, (a, b) = two()
    h.alter((REGISTERED, SET, "c,d"))
    alive(h, 300_000, a, b)
    announced = happenings(h, HappeningKind.PLANNED)
    assert announced[-1].text == "the time for registered instances to join ran out: 'c' and 'd' did not join"
    assert len(rebalances_of(history_of(h))) == 1


# ---- retirement, settings -----------------------------------------------------------------------


def test_members_that_left_and_that_were_removed() -> None:
    """Partitions of members that left before belonged to them until the rebalance."""
    rebalance = last_rebalance(memberships.retirement_late())
    planned = rebalance.trigger.planned
    assert planned is not None
    assert (names(planned.went), names(planned.removed)) == (["c"], ["d"])
    assert rebalance.movement is not None
    assert {move.previous.group_instance_id for move in rebalance.movement.moves if move.previous} == {"b", "c", "d"}


def test_a_rebalance_for_another_reason_settles_what_the_retired_left() -> None:
    """The next rebalance does not report the members that left again, since they had no partitions any more."""
    h, (a, b, c, d) = two("abcd")
    h.alter((RETIRED, SET, "c,d"))
    c.leave()
    b.leave()
    rejoin(a, d)
    d.leave()
    rejoin(a)
    planned = last_rebalance(h).trigger.planned
    assert planned is not None
    assert names(planned.went) == ["d"]


def test_changed_settings_are_shown_with_old_values() -> None:
    """In the trigger, and in the history if it is known."""
    h = memberships.configured()
    planned = last_rebalance(h).trigger.planned
    assert planned is not None
    assert [(each.name, each.before, each.after) for each in planned.configs] == [
        ("target.group.size", "2", "1"),
        ("members.learner.timeout.ms", "60000", None),
    ]
    changes = [line for line in lines(history_of(h)) if line.kind is LineKind.CONFIGS]
    assert "target.group.size from 2 to 1" in changes[1].text
    history = history_of(h)
    kept = [item for item in history.items if isinstance(item, Happened) and item.position.offset > 9]
    cut = msgspec.structs.replace(history, items=tuple(with_gaps(kept)))
    (line,) = (line for line in lines(cut) if line.kind is LineKind.CONFIGS)
    assert line.text.endswith("set are now: target.group.size=1")


def test_the_last_two_go_in_one_request() -> None:
    """The trigger has both."""
    h, (a, b, _c, _d) = two("abcd")
    h.alter((RETIRED, SET, "c,d"))
    h.leave_instance("c", "d")
    rejoin(a, b)
    trigger = last_rebalance(h).trigger
    assert trigger.cause is Cause.RETIREMENT_COMPLETE
    assert names(trigger.who) == ["c", "d"]


# ---- duels --------------------------------------------------------------------------------------


def test_a_duel_is_one_incident_with_both_hosts_and_how_often() -> None:
    """However long it lasts; its restarts are not counted as absorbed ones."""
    h = memberships.duel()
    (happening,) = happenings(h, HappeningKind.INSTANCE_DUEL)
    assert "10.0.0.2" in happening.text
    assert "10.0.0.7" in happening.text
    assert (happening.times, happening.until) == (3, "2023-11-14T22:13:31.000Z")
    assert len(happenings(h, HappeningKind.STATIC_RESTART)) == 1
    fences = happenings(h, HappeningKind.MEMBER_FENCED)
    assert [fence.times for fence in fences] == [2, 2]


def test_a_long_duel_is_counted_though_not_all_of_it_is_written() -> None:
    """Fences are rate-limited in the log, restarts are not."""
    h, (_a, b) = two()
    for number in range(30):
        rival = b.restarted(host="/10.0.0.2" if number % 2 else "/10.0.0.7")
        rival.join()
        b.heartbeat()
        b = rival
    (happening,) = happenings(h, HappeningKind.INSTANCE_DUEL)
    assert happening.times == 29
    assert len(since(history_of(h))) == 4


def test_a_withdrawn_registration_admits_waiting_members() -> None:
    """The trigger has the registration's instance, and the members that joined."""
    h, (_a, _b) = two()
    h.alter((REGISTERED, SET, "c,d"))
    c = h.static("c")
    c.join()
    h.sleep(10)
    h.alter((REGISTERED, SUBTRACT, "c"))
    trigger = last_rebalance(h).trigger
    assert trigger.cause is Cause.REGISTRATION_WITHDRAWN
    assert trigger.text == (
        "an administrator (client admin at 10.0.0.9, User:admin) withdrew the registration of instances: "
        "'c' had been waiting and joined"
    )
