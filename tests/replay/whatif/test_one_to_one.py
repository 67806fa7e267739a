"""Recorded and played rebalances correspond one to one, with timers that are late like real ones."""

import pytest

from muster.events.causes import Cause
from muster.events.events import RebalanceStarted
from muster.events.ids import MemberId
from muster.replay.incidents.grade import Grade
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.played import Started
from muster.replay.whatif.rebalances import Open, recorded_as
from muster.replay.whatif.telling import ANOTHER_CAUSE, SAME_CAUSE, would_text
from muster.replay.whatif.verdict import Verdict
from tests.replay.histories import Script
from tests.replay.lived import Deed, Settings, live, started
from tests.replay.played import history_of
from tests.replay.whole import what_if

WOULD, WOULD_NOT = Verdict.WOULD, Verdict.WOULD_NOT
DYNAMIC = Settings(is_static=False)


def test_a_crash_right_after_a_rebalance_is_the_one_that_was_recorded() -> None:
    """The play of the previous rebalance continues until the session ends, as late as its timer fired in the log."""
    script: list[Deed] = [(5, "start", "d"), (8, "crash", "b"), (50, "start", "e")]
    lived = live(script, Settings(), until_s=60)
    for session_ms in (None, 12_000, 8_000):
        result = what_if(history_of(lived), Alterations(session_timeout_ms=session_ms))
        assert [each.verdict for each in result.rebalances] == [WOULD] * started(lived)
        assert result.additional == ()


def test_a_process_that_comes_back_and_dies_makes_one_rebalance_less_with_an_instance_id() -> None:
    """Its return is absorbed; its later death is the recorded one, and not also the rebalance of its return."""
    script: list[Deed] = [(5, "crash", "a"), (7, "start", "a"), (30, "crash", "a")]
    lived = live(script, DYNAMIC, until_s=70, begins="a")
    really = live(script, Settings(), until_s=70, begins="a")
    result = what_if(history_of(lived), Alterations(is_static=True))
    assert [each.verdict for each in result.rebalances] == [WOULD, WOULD_NOT, WOULD]
    assert (result.would, len(result.additional)) == (started(really), 0)


def test_a_rebalance_that_would_be_part_of_a_running_one_names_it() -> None:
    """The first one was over long before; in the second one all wait for the session of a dead member."""
    script: list[Deed] = [(5, "start", "d"), (20, "crash", "b"), (22, "start", "e"), (40, "start", "f")]
    lived = live(script, DYNAMIC, until_s=120)
    result = what_if(history_of(lived), Alterations(session_timeout_ms=60_000))
    by_seq = {each.seq: each for each in result.rebalances}
    running = next(each for each in result.rebalances if "app-e" in each.headline)
    (part,) = (each for each in by_seq.values() if "app-f" in each.headline)
    assert (running.verdict, part.verdict) == (WOULD, WOULD_NOT)
    assert part.reason == f"it would have been a part of the one that began with seq {running.seq}"


@pytest.mark.parametrize(("begun_by", "reason"), [("b", SAME_CAUSE), ("d", ANOTHER_CAUSE)])
def test_a_rebalance_that_its_first_cause_would_not_have_started_names_another(begun_by: str, reason: str) -> None:
    """A static member does not leave; while the recorded rebalance ran, another member joined."""
    script = Script().created()
    left, came = MemberId("b"), MemberId("d")
    begun = script.started(script.why(Cause.MEMBER_LEFT, script.member("b")))
    assert isinstance(begun, RebalanceStarted)
    at_ms = begun.why.decided_ms
    played = Started(at_ms=at_ms, cause=Cause.MEMBER_LEFT, member_id=MemberId(begun_by), is_late=False, is_dead=False)
    one = Open(started=begun, subjects=frozenset({left}), grade=Grade.INFERRED, folded={(came, False)})
    one.begins_ms, one.begun = at_ms, played
    assert would_text(one) == reason


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_member_that_joined_is_not_a_lost_one(is_lost: bool) -> None:
    """The same holds for a rebalance with another cause: a loss, or something that a member did."""
    script = Script().created()
    member = script.member("a")
    begun = script.started(script.why(Cause.MEMBER_LEFT if is_lost else Cause.NEW_STATIC_MEMBER, member))
    assert isinstance(begun, RebalanceStarted)
    subjects = frozenset({member.member_id})
    one = Open(started=begun, subjects=subjects, lost=subjects if is_lost else frozenset(), grade=Grade.RECORDED)
    for cause, is_same in ((Cause.SESSION_EXPIRED, is_lost), (Cause.NEW_DYNAMIC_MEMBER, not is_lost)):
        played = Started(at_ms=0, cause=cause, member_id=member.member_id, is_late=False, is_dead=False)
        assert (recorded_as(played, [one]) is one) is is_same


def test_a_session_that_ends_after_the_log_adds_no_rebalance() -> None:
    """The log ends before the longer session: there is no verdict on the recorded rebalance, and no additional one."""
    lived = live([(5, "start", "d"), (8, "crash", "b")], Settings(), until_s=20)
    result = what_if(history_of(lived), Alterations(session_timeout_ms=60_000))
    assert [each.verdict for each in result.rebalances][-1] is Verdict.CANNOT_TELL
    assert result.additional == ()
