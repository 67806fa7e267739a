"""Sessions: what refreshes them, what their expiry causes (sections SE, TM), and the known bug R6."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import EndJoinPhase, EndSyncPhase, ExpirePendingMember, ExpireSession
from muster.coordinator.group.extensions import restart_deadlines
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.soft_state import Session
from muster.events.causes import Cause
from muster.events.events import GroupEmptied, JoinPhaseCompleted, MemberRemoved, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import GroupState
from tests.coordinator.group.harness import Harness, story


def test_silent_member_is_removed_and_the_group_rebalances() -> None:
    """SE1, SE6, SE9, SE10: exactly after its session timeout; later requests get 25."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    h.sleep(5_000)
    a.heartbeat()
    h.sleep(4_999)
    assert h.state is GroupState.STABLE
    events = h.sleep(1)
    assert story(events) == [(MemberRemoved, Cause.SESSION_EXPIRED), (RebalanceStarted, Cause.SESSION_EXPIRED)]
    removed = events[0]
    assert isinstance(removed, MemberRemoved)
    assert removed.why.decided_ms - removed.last_seen_ms == 10_000
    assert b.heartbeat().error is ErrorCode.unknown_member_id
    assert b.commit().error is ErrorCode.unknown_member_id


def test_heartbeats_keep_a_session_for_ever() -> None:
    """SE1: each one restarts the session timeout."""
    h = Harness()
    (a,) = h.stable_group(h.dynamic("a"))
    for _ in range(50):
        h.sleep(9_999)
        assert a.heartbeat().error is ErrorCode.none


def test_commits_keep_a_session() -> None:
    """SE1, OC12: in Stable and in the join phase."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.sleep(9_000)
    a.join()
    assert b.commit().error is ErrorCode.none
    h.sleep(9_000)
    assert b.commit().error is ErrorCode.none
    assert b.member_id in h.live.members


def test_expiry_of_the_last_member_empties_the_group() -> None:
    """SE7: in one step, without a join phase."""
    h = Harness()
    h.stable_group(h.static("a"))
    assert story(h.sleep(10_000)) == [
        (MemberRemoved, Cause.SESSION_EXPIRED),
        (RebalanceStarted, Cause.SESSION_EXPIRED),
        (GroupEmptied, Cause.ALL_JOINED),
    ]


def test_expiry_in_the_sync_phase_sends_the_parked_syncs_back() -> None:
    """SE6: they get 27, and the group rebalances."""
    h = Harness()
    _a, b = h.form(h.static("a"), h.static("b"))
    waiting = b.sync()
    h.sleep(10_000)
    assert waiting.error is ErrorCode.rebalance_in_progress
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + 10_000


def test_expiry_in_the_join_phase_may_end_it() -> None:
    """SE8: the phase ends if all remaining members have joined."""
    h = Harness()
    a, _b = h.stable_group(h.static("a"), h.static("b"))
    waiting = a.join()
    assert story(h.sleep(10_000)) == [
        (MemberRemoved, Cause.SESSION_EXPIRED),
        (JoinPhaseCompleted, Cause.ALL_JOINED),
    ]
    assert waiting.outcome.generation_id == 2


def test_expiry_in_the_join_phase_leaves_it_running_while_others_are_missing() -> None:
    """SE8: the phase goes on until the others join or its time is up."""
    h = Harness()
    a, _b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    waiting = a.join()
    h.sleep(5_000)
    c.heartbeat()
    h.sleep(5_000)
    assert waiting.parked
    c.join()
    assert waiting.outcome.generation_id == 2


def test_parked_member_does_not_expire_and_is_armed_by_the_end_of_the_phase() -> None:
    """SE3: the member's session restarts then."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b", session_timeout_ms=300_000))
    waiting = a.join()
    h.sleep(40_000)
    assert waiting.parked
    b.join()
    assert h.soft.sessions[a.member_id].deadline_ms == h.now_ms + a.session_timeout_ms


def test_new_member_is_dropped_after_five_minutes() -> None:
    """SE4, K3, R5: its join is answered 25 with an empty id, so that it joins as a new member."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=1_800_000, rebalance_timeout_ms=3_600_000))
    waiting = h.dynamic("b").enter()
    h.sleep(5 * 60_000 - 1)
    assert waiting.parked
    assert story(h.sleep(1))[0] == (MemberRemoved, Cause.FIRST_JOIN_TIMED_OUT)
    assert waiting.outcome == JoinGroupOutcome(error=ErrorCode.unknown_member_id, member_id=MemberId(""))


def test_five_minutes_end_with_the_first_join() -> None:
    """SE5: after that the session timeout applies."""
    h = Harness()
    h.form(h.dynamic("b"))
    assert story(h.sleep(10_000))[0] == (MemberRemoved, Cause.SESSION_EXPIRED)


def test_no_timer_is_left_of_a_member_that_is_gone() -> None:
    """R6, SE11, TM5: a deadline that fires all the same does nothing."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    b.leave()
    h.rejoin_all(a)
    h.sleep(9_000)
    a.heartbeat()
    assert not h.sleep(9_000)
    for member_id in (b.member_id, a.member_id):
        late = h.send(ExpireSession(group_id=h.group_id, member_id=member_id, due_ms=h.now_ms))
        assert not late.events
    a.leave()
    h.delete()
    assert not h.send(ExpireSession(group_id=h.group_id, member_id=a.member_id, due_ms=h.now_ms)).events


def test_longest_silence_is_that_since_the_members_last_event() -> None:
    """Each of a member's events has its longest silence; heartbeats themselves are not written."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    for silence_ms in (1_000, 8_000, 2_000):
        h.sleep(silence_ms)
        a.heartbeat()
        b.heartbeat()
    h.sleep(500)
    (rejoined, *_) = a.join().events
    assert (rejoined.last_seen_ms, rejoined.longest_silence_ms) == (h.wall_ms, 8_000)  # type: ignore[union-attr]
    h.sleep(300)
    (rejoined, *_) = a.join().events
    assert rejoined.longest_silence_ms == 300  # type: ignore[union-attr]
    (rejoined, *_) = a.join().events
    assert rejoined.longest_silence_ms == 0  # type: ignore[union-attr]


def test_a_session_runs_from_the_response_if_that_was_later() -> None:
    """The client may send nothing before it; its silence counts from its last request."""
    session = Session(timeout_ms=6_000, deadline_ms=7_000, last_seen_ms=1_000)
    session.refresh(3_000, None)
    assert (session.last_seen_ms, session.deadline_ms) == (3_000, 9_000)
    session.refresh(4_000, None, answered_ms=5_000)
    assert (session.last_seen_ms, session.deadline_ms) == (4_000, 11_000)


def test_no_member_expires_because_of_a_machine_pause() -> None:
    """After a pause all sessions, pending ones too, restart in full; none is shortened."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b", session_timeout_ms=20_000))
    h.dynamic("c", session_timeout_ms=7_000).join()
    b.heartbeat()
    h.now_ms += 60_000
    restart_deadlines(h.group, h.soft, h.now_ms)
    assert h.soft.sessions[a.member_id].deadline_ms == h.now_ms + 10_000
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + 20_000
    assert [p.deadline_ms for p in h.soft.pending_members.values()] == [h.now_ms + 7_000]


def test_deadline_that_was_moved_meanwhile_does_nothing() -> None:
    """TM5: each is checked again when it is processed."""
    h = Harness()
    a, _b = h.stable_group(h.static("a"), h.static("b"))
    c = h.dynamic("c")
    c.join()
    a.join()
    before = (h.group, h.soft)
    for late in (
        ExpireSession(group_id=h.group_id, member_id=a.member_id, due_ms=h.now_ms),
        ExpirePendingMember(group_id=h.group_id, member_id=c.member_id, due_ms=h.now_ms),
        EndJoinPhase(group_id=h.group_id, due_ms=h.now_ms),
        EndSyncPhase(group_id=h.group_id, due_ms=h.now_ms),
    ):
        assert not h.send(late).events
    assert (h.group, h.soft) == before
