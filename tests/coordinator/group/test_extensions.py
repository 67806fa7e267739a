"""How far deadlines are extended after Muster was slow. See also `runtime/partition/test_stalls.py`."""

import pytest

from muster.coordinator.group.commands import (
    EndExpansion,
    EndJoinPhase,
    EndRegistration,
    EndRetirement,
    EndSyncPhase,
    JoinGroup,
    PromoteLearners,
)
from muster.coordinator.group.extensions import (
    USUAL_APPEND_MS,
    extend_deadlines,
    extend_session,
    rearm,
    restart_deadlines,
)
from muster.coordinator.group.soft_state import PHASES, HeldJoin, InitialDelay, Session, SoftState
from muster.coordinator.group.timeouts import due
from muster.events.ids import GroupId, MemberId
from muster.events.state import GroupConfig
from tests.coordinator.group.harness import Harness

A, B = MemberId("a"), MemberId("b")
each_phase = pytest.mark.parametrize("phase", PHASES)


def session(deadline_ms: int) -> Session:
    return Session(timeout_ms=10_000, deadline_ms=deadline_ms, last_seen_ms=0)


# ---- a request that was delayed ---------------------------------------------------------------------


def test_a_session_is_lengthened_by_the_time_that_the_request_waited() -> None:
    soft = SoftState()
    soft.sessions[A], soft.pending_members[A], soft.sessions[B] = session(9_000), session(8_000), session(9_000)
    extend_session(soft, A, 1_000, 4_000)
    assert (soft.sessions[A].deadline_ms, soft.pending_members[A].deadline_ms) == (12_000, 11_000)
    assert soft.sessions[B].deadline_ms == 9_000


def test_no_phase_exceeds_the_full_timeout_from_the_response_on() -> None:
    soft = SoftState()
    soft.sessions[A] = session(9_000)
    extend_session(soft, A, 0, 5_000)
    assert soft.sessions[A].deadline_ms == 5_000 + 10_000 - 1_000
    extend_session(soft, A, 0, 6_000)
    assert soft.sessions[A].deadline_ms == 6_000 + 10_000


def test_no_session_is_shortened() -> None:
    """A new member's session lasts five minutes, whatever its time-out (K3)."""
    soft = SoftState()
    soft.sessions[A] = session(300_000)
    extend_session(soft, A, 0, 5_000)
    assert soft.sessions[A].deadline_ms == 300_000


# ---- a slow append ---------------------------------------------------------------------------------


@each_phase
def test_a_phase_that_the_append_began_runs_from_its_end(phase: str) -> None:
    before, soft = SoftState(), SoftState()
    setattr(soft, phase, 5_000)
    extend_deadlines(soft, before, 100)
    assert getattr(soft, phase) == 5_100


@each_phase
def test_a_phase_that_ran_before_is_longer_by_what_was_unusual(phase: str) -> None:
    before, soft = SoftState(), SoftState()
    for each in (before, soft):
        setattr(each, phase, 5_000)
    extend_deadlines(soft, before, USUAL_APPEND_MS)
    assert getattr(soft, phase) == 5_000
    extend_deadlines(soft, before.copy(), USUAL_APPEND_MS + 300)
    assert getattr(soft, phase) == 5_300


def test_a_member_that_catches_up_is_excused_like_a_phase() -> None:
    before, soft = SoftState(), SoftState()
    before.member_sync_deadlines[A] = soft.member_sync_deadlines[A] = 5_000
    soft.member_sync_deadlines[B] = 5_000
    extend_deadlines(soft, before, USUAL_APPEND_MS + 300)
    assert dict(soft.member_sync_deadlines.items()) == {A: 5_300, B: 5_000 + USUAL_APPEND_MS + 300}


# ---- a machine that stalled --------------------------------------------------------------------


def test_phases_and_catching_up_members_have_the_full_timeout_after_a_pause() -> None:
    h = Harness()
    (a,) = h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    group = h.live.copy()
    group.config = GroupConfig(
        registration_timeout_ms=1_000, expansion_delay_ms=2_000, retirement_timeout_ms=3_000, learner_timeout_ms=4_000
    )
    soft, now_ms = h.soft, h.now_ms + 60_000
    for phase in PHASES:
        setattr(soft, phase, h.now_ms)
    soft.member_sync_deadlines[a.member_id] = h.now_ms
    restart_deadlines(group, soft, now_ms)
    assert {phase: getattr(soft, phase) - now_ms for phase in PHASES} == {
        "join_deadline_ms": 20_000,
        "sync_deadline_ms": 20_000,
        "registration_deadline_ms": 1_000,
        "expansion_deadline_ms": 2_000,
        "retirement_deadline_ms": 3_000,
        "promotion_deadline_ms": 4_000,
    }
    assert soft.member_sync_deadlines[a.member_id] == now_ms + 20_000


def test_a_pause_shortens_nothing_and_begins_nothing() -> None:
    h = Harness()
    h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    h.soft.join_deadline_ms = h.now_ms + 90_000
    restart_deadlines(h.group, h.soft, h.now_ms)
    assert h.soft.join_deadline_ms == h.now_ms + 90_000
    assert {phase for phase in PHASES if getattr(h.soft, phase) is not None} == {"join_deadline_ms"}


def test_after_a_pause_an_initial_delay_has_its_own_time_again() -> None:
    h = Harness()
    h.static("a").join()
    h.soft.initial_delay = InitialDelay(delay_ms=700, remaining_ms=0)
    restart_deadlines(h.group, h.soft, h.now_ms + 60_000)
    assert h.soft.join_deadline_ms == h.now_ms + 60_700


# ---- one that stalls repeatedly --------------------------------------------------------------


def test_a_member_silent_between_two_pauses_has_the_full_timeout_once() -> None:
    h = Harness()
    dead, alive = h.stable_group(h.static("a"), h.static("b"))
    sessions, first_ms = h.soft.sessions, h.now_ms + 12_000
    assert rearm(h.group, h.soft, first_ms, late_ms=2_000) == 2
    assert {each.deadline_ms for each in sessions.values()} == {first_ms + 10_000}
    sessions[alive.member_id].refresh(first_ms + 1, None)
    second_ms = first_ms + 11_500
    assert rearm(h.group, h.soft, second_ms, late_ms=1_500) == 1
    assert sessions[alive.member_id].deadline_ms == second_ms + 10_000
    assert sessions[dead.member_id].deadline_ms == first_ms + 10_000 + 1_500
    sessions[dead.member_id].refresh(second_ms + 1, None)
    assert rearm(h.group, h.soft, second_ms + 5_000, late_ms=1_100) == 1
    assert sessions[dead.member_id].deadline_ms == second_ms + 5_000 + 10_000


def test_a_member_heard_at_the_start_of_a_pause_gets_no_extra_time() -> None:
    """The next pause does not give it the full time again, as the order of request and pause is unknown."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    session = h.soft.sessions[a.member_id]
    first_ms = h.now_ms + 12_000
    rearm(h.group, h.soft, first_ms, late_ms=2_000)
    session.refresh(first_ms, None)
    assert rearm(h.group, h.soft, first_ms + 9_000, late_ms=1_500) == 0
    assert session.deadline_ms == first_ms + 10_000 + 1_500


def test_a_session_that_copies_of_the_group_share_is_lengthened_once() -> None:
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    copy, now_ms, in_full = h.soft.copy(), h.now_ms, []
    for late_ms in (0, 2_000, 3_000):
        now_ms += 4_000
        in_full += [rearm(h.group, soft, now_ms, late_ms=late_ms) for soft in (h.soft, copy)]
    assert in_full == [1, 0, 0, 0, 0, 0]
    assert h.soft.sessions[a.member_id] is copy.sessions[a.member_id]
    assert copy.sessions[a.member_id].deadline_ms == now_ms - 8_000 + 10_000 + 2_000 + 3_000


def test_a_compensated_pause_is_not_compensated_again() -> None:
    """A broker outage may be reported twice, and its start may be unknown."""
    h = Harness()
    (a,) = h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    session, now_ms = h.soft.sessions[a.member_id], h.now_ms
    h.soft.join_deadline_ms = now_ms
    rearm(h.group, h.soft, now_ms + 5_000, late_ms=now_ms)
    assert (session.deadline_ms, h.soft.join_deadline_ms) == (now_ms + 15_000, now_ms + 25_000)
    for _ in range(2):
        rearm(h.group, h.soft, now_ms + 8_000, late_ms=now_ms)
        assert (session.deadline_ms, h.soft.join_deadline_ms) == (now_ms + 18_000, now_ms + 28_000)
    rearm(h.group, h.soft, now_ms + 4_000, late_ms=2_000)
    assert (session.deadline_ms, h.soft.join_deadline_ms) == (now_ms + 18_000, now_ms + 28_000)


@each_phase
def test_a_continuing_phase_has_the_full_timeout_once_then_only_lost_time(phase: str) -> None:
    """Even with a slow append in between; a phase that started since gets its full time."""
    h = Harness()
    h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    soft = h.soft.copy()
    setattr(soft, phase, 5_000)
    rearm(h.group, soft, 7_000, late_ms=2_000)
    once_ms = getattr(soft, phase)
    extend_deadlines(soft, soft.copy(), USUAL_APPEND_MS + 300)
    rearm(h.group, soft, 50_000, late_ms=1_500)
    assert getattr(soft, phase) == once_ms + 300 + 1_500
    setattr(soft, phase, 50_001)
    rearm(h.group, soft, 60_000, late_ms=1_500)
    assert getattr(soft, phase) == max(50_001, 60_000 + once_ms - 7_000)


def test_an_awaited_member_has_the_full_timeout_once_then_only_lost_time() -> None:
    """A called standby that has to sync, and a delayed join that was sent back to retry."""
    h = Harness()
    (a,) = h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    soft = h.soft.copy()
    soft.member_sync_deadlines[a.member_id] = 5_000
    join = Harness().static("b").join().command
    assert isinstance(join, JoinGroup)
    soft.held_joins[B] = HeldJoin(join=join, arrived_ms=0, deadline_ms=5_000, parked=False)
    rearm(h.group, soft, 7_000, late_ms=2_000)
    rearm(h.group, soft, 50_000, late_ms=1_500)
    assert soft.member_sync_deadlines[a.member_id] == 7_000 + 20_000 + 1_500
    assert soft.held_joins[B].deadline_ms == 7_000 + 10_000 + 1_500


def test_a_pending_member_id_has_the_full_timeout_once_then_only_lost_time() -> None:
    h = Harness()
    h.dynamic("c", session_timeout_ms=7_000).join()
    (pending,) = h.soft.pending_members.values()
    first_ms = h.now_ms + 9_000
    rearm(h.group, h.soft, first_ms, late_ms=2_000)
    assert pending.deadline_ms == first_ms + 7_000
    rearm(h.group, h.soft, first_ms + 8_000, late_ms=1_500)
    assert pending.deadline_ms == first_ms + 7_000 + 1_500


def test_a_phase_of_unreachable_members_has_the_full_timeout_after_a_pause() -> None:
    """Unreachable members are another cause than a machine that stalls repeatedly."""
    h = Harness()
    h.stable_group(h.static("a", rebalance_timeout_ms=20_000))
    h.soft.join_deadline_ms = 5_000
    restart_deadlines(h.group, h.soft, 6_000)
    assert h.soft.join_deadline_ms == 26_000
    rearm(h.group, h.soft, 30_000, late_ms=2_000)
    assert h.soft.join_deadline_ms == 50_000


# ---- the table of phases ---------------------------------------------------------------------------


def test_each_deadline_of_the_whole_group_is_in_the_table_and_ends_its_own_phase() -> None:
    assert set(PHASES) == {field for field in SoftState.__struct_fields__ if field.endswith("_deadline_ms")}
    assert tuple(PHASES.values()) == (
        EndJoinPhase,
        EndSyncPhase,
        EndRegistration,
        EndExpansion,
        EndRetirement,
        PromoteLearners,
    )
    for phase, ends in PHASES.items():
        soft = SoftState()
        setattr(soft, phase, 5_000)
        assert soft.copy().next_deadline_ms() == 5_000
        assert due(GroupId("orders"), soft, 4_999) == []
        assert due(GroupId("orders"), soft, 5_000) == [ends(group_id=GroupId("orders"), due_ms=5_000)]
