"""Parts of a what-if on their own: processes that look the same, second rounds, verdicts, headlines."""

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.events import RebalanceStarted
from muster.events.state import Member
from muster.replay.history.items import Happened
from muster.replay.incidents.grade import Grade
from muster.replay.whatif.addresses import SharedAddresses
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.facts import Fact, is_second_round
from muster.replay.whatif.played import Started
from muster.replay.whatif.telling import additional
from muster.replay.whatif.verdict import Verdict
from tests.replay.histories import Script
from tests.replay.incidents.fleet import Fleet
from tests.replay.lived import Settings, live
from tests.replay.played import history_of
from tests.replay.whole import what_if

S = 1_000


def process(script: Script) -> Member:
    """Return a dynamic member with the same client id and host as all others."""
    return script.member("app", static=False, client_id="app", host="/10.0.0.1")


def are_shared(script: Script, member: Member) -> bool:
    """Return whether two members had its client id and host at once."""
    shared = SharedAddresses()
    for item in script.history().items:
        shared.feed(item)
    shared.end()
    return shared.has(member)


@pytest.mark.parametrize(
    ("cause", "silent_ms", "shared"),
    [(Cause.MEMBER_LEFT, 20 * S, True), (Cause.SESSION_EXPIRED, 20 * S, False), (Cause.SESSION_EXPIRED, 5 * S, True)],
)
def test_a_member_was_present_until_it_left_or_was_last_heard(cause: Cause, silent_ms: int, shared: bool) -> None:
    """Another one joined ten seconds before its end."""
    script = Script().created()
    first, second = process(script), process(script)
    script.start(script.joined(first)).wait(60 * S)
    second = msgspec.structs.replace(second, joined_ms=script.now_ms)
    script.advanced(script.joined(second)).wait(10 * S)
    script.advanced(script.removed(first, cause, silent_ms=silent_ms))
    assert are_shared(script, first) is shared


def test_members_of_a_group_that_was_deleted_share_nothing_with_those_after_it() -> None:
    """Their ends are not in the log."""
    script = Script().created()
    script.start(script.joined(process(script))).wait(S).deleted().wait(S).made_anew().created()
    later = process(script)
    script.start(script.joined(later))
    assert not are_shared(script, later)


def test_members_that_are_alive_in_the_end_share_what_they_have() -> None:
    """None has left yet."""
    script = Script().created()
    first = process(script)
    script.start(script.joined(first)).wait(S)
    script.advanced(script.joined(process(script)))
    assert are_shared(script, first)


def test_members_that_were_there_before_the_first_event_share_what_they_have() -> None:
    """As with a window that begins after their joins."""
    script = Script().created()
    first = process(script)
    script.start(script.joined(first)).wait(S)
    script.advanced(script.joined(process(script)))
    shared = SharedAddresses(script.group)
    shared.end()
    assert shared.has(first)


@pytest.mark.parametrize(
    ("cause", "rejoins", "second"),
    [
        (Cause.METADATA_CHANGED, True, True),
        (Cause.LEADER_REJOINED, True, True),
        (Cause.NEW_DYNAMIC_MEMBER, True, False),
        (Cause.METADATA_CHANGED, False, False),
    ],
)
def test_a_second_round_is_one_that_members_began_by_themselves(cause: Cause, rejoins: bool, second: bool) -> None:
    """They rejoined, with the same topics."""
    script = Script().created()
    member = script.member("a")
    script.start(script.joined(member))
    members = dict(script.group.members)
    why = script.why(cause, member)
    started = script.started(why)
    events = (script.rejoined(member, cause), started) if rejoins else (started,)
    assert isinstance(started, RebalanceStarted)
    assert is_second_round(Fact(command=None, events=events), started, members) is second


@pytest.mark.parametrize(
    ("is_first", "is_late", "is_dead", "verdict", "grade"),
    [
        (True, False, False, Verdict.WOULD, Grade.INFERRED),
        (True, True, False, Verdict.CANNOT_TELL, Grade.UNKNOWN),
        (True, False, True, Verdict.CANNOT_TELL, Grade.UNKNOWN),
        (False, False, False, Verdict.CANNOT_TELL, Grade.UNKNOWN),
    ],
)
def test_only_the_first_of_those_that_were_not_recorded_is_known(
    is_first: bool, is_late: bool, is_dead: bool, verdict: Verdict, grade: Grade
) -> None:
    """The times of later joins are a guess, and so is whether a dead member is removed at its sync or session end."""
    begun = Started(at_ms=5 * S, cause=Cause.NEW_DYNAMIC_MEMBER, member_id=None, is_late=is_late, is_dead=is_dead)
    reported = additional(begun, [], is_first=is_first)
    assert (reported.verdict, reported.grade) == (verdict, grade)


def test_a_member_that_would_have_been_dropped_returns_at_an_unknown_time() -> None:
    """It took 30 s of 60 s to rejoin; with 20 s it is not in that generation."""
    fleet = Fleet(4)
    fleet[2].slow_ms = 30 * S
    fleet.start(5)
    fleet.rest(80 * S)
    result = what_if(fleet.history(), Alterations(rebalance_timeout_ms=20 * S))
    (more,) = result.additional
    assert more.verdict is Verdict.CANNOT_TELL
    assert more.reason.startswith("a member that would have been dropped for being late would have come back")


def test_a_rebalance_is_reported_as_recorded() -> None:
    """A crash; and if the log ends during its rebalance, that it is still running."""
    history = history_of(live([(5, "crash", "b")], Settings(), until_s=60))
    whole = what_if(history, Alterations()).rebalances[1].headline
    assert "static member 'b'" in whole
    begins = [
        number
        for number, item in enumerate(history.items)
        if isinstance(item, Happened) and isinstance(item.event, RebalanceStarted)
    ]
    cut = what_if(msgspec.structs.replace(history, items=history.items[: begins[1] + 1]), Alterations())
    (_, last) = cut.rebalances
    assert last.headline.endswith("(still running)")
