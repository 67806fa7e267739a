"""Static members (KIP-345) that restart: section ST, JP7, JC5, and the known bugs S1, S2, S3, S7, S13, S16."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinedMember, JoinGroupOutcome, SyncGroupOutcome
from muster.events.causes import Cause
from muster.events.events import (
    GroupAdvanced,
    JoinPhaseCompleted,
    MemberFenced,
    MemberJoined,
    MemberRemoved,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story


def pair(h: Harness, **given: object) -> tuple[Client, Client]:
    """A stable group of two static members; the first one leads."""
    a, b = h.stable_group(h.static("a", **given), h.static("b", **given))
    assert a.is_leader
    return a, b


# ---- identity -------------------------------------------------------------------------------------


def test_new_instance_is_a_new_member_and_never_pending() -> None:
    """ST1, J11: in every version."""
    h = Harness()
    call = h.static("a").join()
    assert call.parked
    assert not h.soft.pending_members
    assert h.live.instances == {"a": "a-1"}


def test_unknown_instance_with_a_known_member_id_is_refused() -> None:
    """ST2, M6: 25, the id echoed."""
    h = Harness()
    a, _ = pair(h)
    call = a.join(group_instance_id=GroupInstanceId("x"))
    assert call.outcome == JoinGroupOutcome(error=ErrorCode.unknown_member_id, member_id=a.member_id)


def test_instance_of_another_member_is_fenced() -> None:
    """ST3, M4, M6: 82, the id echoed."""
    h = Harness()
    a, b = pair(h)
    call = b.join(group_instance_id=a.instance)
    assert call.outcome == JoinGroupOutcome(error=ErrorCode.fenced_instance_id, member_id=b.member_id)
    assert story(call.events) == [(MemberFenced, Cause.INSTANCE_FENCED)]


def test_static_member_may_leave_out_its_instance_id() -> None:
    """M5, ST23: then only the member id is checked, and it stays static."""
    h = Harness()
    _, b = pair(h)
    assert b.join(group_instance_id=None).outcome == b.joined
    assert b.join(group_instance_id=None, protocols=protocols(metadata=b"new")).parked
    assert h.member_of("b") == b.member_id


# ---- a restart in Stable -------------------------------------------------------------------------


def test_follower_restart_is_absorbed() -> None:
    """ST5, ST11, ST13, ST29: no rebalance, no new generation; the new process takes over the member's whole state."""
    h = Harness()
    a, b = pair(h)
    before = h.live.members[b.member_id]
    new = b.restarted(host="/10.0.0.2", session_timeout_ms=20_000)
    h.sleep(4_000)
    call = new.join()
    assert call.outcome == JoinGroupOutcome(
        member_id=MemberId("b-3"),
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id=a.member_id,
    )
    assert story(call.events) == [
        (StaticMemberReplaced, Cause.STATIC_RESTART_ABSORBED),
        (GroupAdvanced, Cause.STATIC_RESTART_ABSORBED),
    ]
    replaced = call.events[0]
    assert isinstance(replaced, StaticMemberReplaced)
    assert (replaced.replaced_member_id, replaced.replaced_client_host) == ("b-2", "/10.0.0.1")
    assert replaced.longest_silence_ms == 4_000
    after = h.live.members[new.member_id]
    assert (after.client_host, after.session_timeout_ms) == ("/10.0.0.2", 20_000)
    assert (after.assignment, after.joined_ms) == (before.assignment, before.joined_ms)
    assert h.live.members.keys() == {a.member_id, new.member_id}
    assert new.sync().outcome.assignment == b"b-2@1"


def test_leader_restart_is_absorbed_and_skips_the_assignment() -> None:
    """ST14, KIP-814: from v9 the leader gets the members and skipAssignment; its sync gives the stored assignment."""
    h = Harness()
    a, b = pair(h)
    new = a.restarted()
    outcome = new.join().outcome
    metadata = subscription("orders")
    assert outcome.leader_id == outcome.member_id == h.live.leader_id == new.member_id
    assert outcome.skip_assignment
    assert sorted(outcome.members, key=lambda member: member.member_id) == [
        JoinedMember(member_id=new.member_id, group_instance_id=GroupInstanceId("a"), metadata=metadata),
        JoinedMember(member_id=b.member_id, group_instance_id=GroupInstanceId("b"), metadata=metadata),
    ]
    assert new.sync().outcome.assignment == b"a-1@1"
    assert h.state is GroupState.STABLE


def test_a_restarted_leader_below_v9_receives_the_old_leader() -> None:
    """ST15: it acts as a follower and computes nothing."""
    h = Harness()
    a, _ = pair(h, version=8)
    outcome = a.restarted().join().outcome
    assert outcome == JoinGroupOutcome(
        member_id=MemberId("a-3"),
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id=a.member_id,
    )
    assert h.live.leader_id == "a-3"


def test_restart_with_another_subscription_is_absorbed_while_the_protocol_stays() -> None:
    """ST12: only the name of the selected protocol is compared; S10: the leader can still reassign by a rejoin."""
    h = Harness()
    a, _ = pair(h)
    new = a.restarted()
    changed = protocols(metadata=subscription("orders", "payments"))
    assert new.join(protocols=changed).outcome.skip_assignment
    assert h.live.members[new.member_id].protocols == changed
    assert new.join(protocols=changed).parked
    assert h.state is GroupState.PREPARING_REBALANCE


def test_restart_that_changes_the_protocol_rebalances() -> None:
    """ST19: the vote would select another one."""
    h = Harness()
    _a, b = pair(h, protocols=protocols("range", "sticky"))
    call = b.restarted().join(protocols=protocols("sticky"))
    assert story(call.events) == [
        (StaticMemberReplaced, Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL),
        (RebalanceStarted, Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL),
    ]
    assert call.parked


@pytest.mark.parametrize(("others_vote", "is_parked"), [("range", False), ("sticky", True)])
def test_a_restart_has_one_vote_among_those_of_the_others(others_vote: str, is_parked: bool) -> None:
    """ST12, ST19: the old process's vote no longer counts; the new one votes for the other protocol now."""
    votes = {"range": protocols("range", "sticky"), "sticky": protocols("sticky", "range")}
    h = Harness()
    a, b, c = (
        h.static(name, protocols=votes[vote]) for name, vote in (("a", others_vote), ("b", "range"), ("c", "range"))
    )
    h.stable_group(a, b, c)
    assert h.live.image.protocol_name == "range"
    assert b.restarted().join(protocols=votes["sticky"]).parked == is_parked


def test_restart_does_not_tip_a_tied_vote() -> None:
    """ST11: ties between members that joined in the same millisecond are broken by what a restart does not change."""
    h = Harness()
    a = h.static("a", protocols=protocols("range", "sticky"))
    b = h.static("b", protocols=protocols("sticky", "range"))
    h.stable_group(a, b)
    assert h.live.image.protocol_name == "range"
    assert not a.restarted().join(proposed_member_id=MemberId("z")).parked
    assert h.state is GroupState.STABLE


def test_replacement_is_written_before_it_is_answered_and_survives_a_takeover() -> None:
    """S3, LD9: after a takeover the new process is accepted, and the old one is fenced."""
    h = Harness()
    _, b = pair(h)
    new = b.restarted()
    new.join()
    h.takeover()
    assert new.heartbeat().error is ErrorCode.none
    assert b.heartbeat().error is ErrorCode.fenced_instance_id


def test_new_process_first_has_the_session_of_the_old_one() -> None:
    """ST8: a changed session timeout takes effect from the next heartbeat on."""
    h = Harness()
    _, b = pair(h)
    new = b.restarted(session_timeout_ms=30_000)
    new.join()
    assert h.soft.sessions[new.member_id].deadline_ms == h.now_ms + b.session_timeout_ms
    new.heartbeat()
    assert h.soft.sessions[new.member_id].deadline_ms == h.now_ms + 30_000


def test_old_id_has_no_session_left() -> None:
    """ST9, R6: no timer fires for it."""
    h = Harness()
    a, b = pair(h)
    h.sleep(5_000)
    new = b.restarted()
    new.join()
    h.sleep(5_000 - 1)
    a.heartbeat()
    new.heartbeat()
    assert not h.sleep(5_000)


def test_return_after_the_session_is_a_new_member() -> None:
    """ST29: once expired, it rebalances like any new one."""
    h = Harness()
    a, b = pair(h)
    h.sleep(9_000)
    a.heartbeat()
    expired = h.sleep(1_000)
    assert story(expired)[0] == (MemberRemoved, Cause.SESSION_EXPIRED)
    assert story(b.restarted().join().events)[0] == (MemberJoined, Cause.NEW_STATIC_MEMBER)


def test_member_that_had_not_synced_is_followed_under_its_new_id() -> None:
    """ST27, QK1 do not happen here: a sync with the new id counts for the old one."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    a.sync(h.assignments())
    assert h.soft.pending_syncs == {b.member_id}
    new = b.restarted()
    new.join()
    assert h.soft.pending_syncs == {new.member_id}
    new.sync()
    assert h.soft.sync_deadline_ms is None


# ---- a restart in the other states ---------------------------------------------------------------


def test_restart_in_the_join_phase_fences_the_parked_join() -> None:
    """JP7, ST7, ST21, S1: the old join gets 82 at once, the new one is parked and counts."""
    h = Harness()
    a, b = pair(h)
    old = b.join(protocols=protocols(metadata=b"new"))
    new = b.restarted()
    call = new.join()
    assert old.outcome == JoinGroupOutcome(error=ErrorCode.fenced_instance_id, member_id=b.member_id)
    assert story(call.events) == [
        (StaticMemberReplaced, Cause.STATIC_REPLACEMENT_DURING_JOIN),
        (GroupAdvanced, Cause.STATIC_REPLACEMENT_DURING_JOIN),
    ]
    a.join()
    assert call.outcome.generation_id == 2


def test_restart_that_completes_the_join_phase_ends_it() -> None:
    """ST21: the new process was the last one to join."""
    h = Harness()
    a, b = pair(h)
    a.join()
    call = b.restarted().join()
    assert story(call.events)[-1] == (JoinPhaseCompleted, Cause.ALL_JOINED)


def test_restart_in_an_initial_rebalance_does_not_end_it() -> None:
    """ST21, I7: the initial delay runs to its end."""
    h = Harness()
    a = h.static("a")
    first = a.join()
    second = a.restarted().join()
    assert first.outcome == JoinGroupOutcome(error=ErrorCode.fenced_instance_id, member_id=MemberId("a-1"))
    assert second.parked
    assert h.live.leader_id == "a-2"


def test_restart_in_the_sync_phase_rebalances() -> None:
    """JC5, ST20, S2: the leader may have the old id already; the old sync gets 82, the others 27."""
    h = Harness()
    _a, b, c = h.form(h.static("a"), h.static("b"), h.static("c"))
    old, other = b.sync(), c.sync()
    call = b.restarted().join()
    assert old.outcome == SyncGroupOutcome(error=ErrorCode.fenced_instance_id)
    assert other.outcome == SyncGroupOutcome(error=ErrorCode.rebalance_in_progress)
    assert story(call.events) == [
        (StaticMemberReplaced, Cause.STATIC_REPLACEMENT_DURING_SYNC),
        (RebalanceStarted, Cause.STATIC_REPLACEMENT_DURING_SYNC),
    ]


def test_replaced_member_is_not_new_while_it_waits() -> None:
    """ST10: its expiry is ignored while it is parked."""
    h = Harness()
    a, b = pair(h)
    b.join(protocols=protocols(metadata=b"new"))
    call = b.restarted().join()
    for _ in range(6):
        h.sleep(9_000)
        a.heartbeat()
    assert call.parked
    h.sleep(6_000)
    assert call.outcome.generation_id == 2


# ---- the old process -----------------------------------------------------------------------------


def test_old_process_is_fenced_everywhere() -> None:
    """ST25, M8: with its instance id 82, without it the id is unknown, 25."""
    h = Harness()
    _, b = pair(h)
    b.restarted().join()
    assert b.join().error is ErrorCode.fenced_instance_id
    assert b.sync().error is ErrorCode.fenced_instance_id
    assert b.heartbeat().error is ErrorCode.fenced_instance_id
    assert b.commit().error is ErrorCode.fenced_instance_id
    assert b.leave().outcome.members[0].error is ErrorCode.fenced_instance_id
    assert b.heartbeat(group_instance_id=None).error is ErrorCode.unknown_member_id
    assert b.sync(group_instance_id=None).error is ErrorCode.unknown_member_id
    assert b.commit(group_instance_id=None).error is ErrorCode.unknown_member_id
    assert h.state is GroupState.STABLE


@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit", "leave"])
def test_fenced_request_is_recorded_with_both_processes(request_name: str) -> None:
    """S16: the fenced process, and the one that has the instance id."""
    h = Harness()
    _, b = pair(h)
    b.restarted(host="/10.0.0.7").join()
    (event,) = getattr(b, request_name)().events
    assert isinstance(event, MemberFenced)
    assert (event.why.member_id, event.why.client_host) == (b.member_id, "/10.0.0.1")
    assert (event.current_member_id, event.current_client_host) == ("b-3", "/10.0.0.7")


def test_two_processes_with_one_instance_id_fence_each_other_in_turn() -> None:
    """ST26, S13: the later join wins each time."""
    h = Harness()
    _, first = pair(h)
    second = first.restarted()
    for winner, loser in ((second, first), (first, second), (second, first)):
        winner.member_id = MemberId("")
        assert winner.join().error is ErrorCode.none
        assert loser.heartbeat().error is ErrorCode.fenced_instance_id
        assert winner.heartbeat().error is ErrorCode.none
