"""LeaveGroup: by the member, in batches, and by an administrator (section L, G29), and the known bug S12."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import LeavingMember
from muster.coordinator.group.outcomes import JoinGroupOutcome, LeaveGroupOutcome, LeftMember, SyncGroupOutcome
from muster.events.causes import Cause
from muster.events.events import JoinPhaseCompleted, MemberFenced, MemberRemoved, RebalanceStarted
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.harness import Harness, story

NOBODY = MemberId("")


def entry(member_id: str, instance: str | None = None) -> LeavingMember:
    group_instance_id = GroupInstanceId(instance) if instance is not None else None
    return LeavingMember(member_id=MemberId(member_id), group_instance_id=group_instance_id, reason=None)


def left(member_id: str, instance: str | None, error: ErrorCode) -> LeftMember:
    group_instance_id = GroupInstanceId(instance) if instance is not None else None
    return LeftMember(member_id=MemberId(member_id), group_instance_id=group_instance_id, error=error)


def test_an_unknown_group_knows_no_members() -> None:
    """G29: no top-level error, 25 for each."""
    call = Harness().leave(entry("x"), entry("", "a"))
    assert call.outcome == LeaveGroupOutcome(
        members=(left("x", None, ErrorCode.unknown_member_id), left("", "a", ErrorCode.unknown_member_id))
    )


def test_empty_group_id_is_refused() -> None:
    """G17: the error is 24."""
    assert Harness(group_id="").leave(entry("x")).outcome == LeaveGroupOutcome(error=ErrorCode.invalid_group_id)


def test_member_leaves_and_the_group_rebalances() -> None:
    """L9, L16, R6: its session is removed with it; the request has no generation."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    call = b.leave("the consumer is being closed")
    assert call.outcome == LeaveGroupOutcome(members=(left(b.member_id, None, ErrorCode.none),))
    assert story(call.events) == [(MemberRemoved, Cause.MEMBER_LEFT), (RebalanceStarted, Cause.MEMBER_LEFT)]
    assert call.events[0].why.client_reason == "the consumer is being closed"
    assert b.member_id not in h.soft.sessions


def test_static_member_may_leave_by_member_id_alone() -> None:
    """L7: the request need not have its instance id."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.static("b"))
    assert h.leave(entry(b.member_id)).outcome.members == (left(b.member_id, None, ErrorCode.none),)
    assert "b" not in h.live.instances


def test_administrator_removes_by_instance_id() -> None:
    """L3, S12, KIP-345: the real member id is not revealed."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.static("b"))
    call = h.leave_instance("b", reason="decommissioned")
    assert call.outcome.members == (left("", "b", ErrorCode.none),)
    assert story(call.events) == [
        (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN),
        (RebalanceStarted, Cause.MEMBER_REMOVED_BY_ADMIN),
    ]
    why = call.events[0].why
    assert (why.member_id, why.group_instance_id, why.client_reason) == (b.member_id, "b", "decommissioned")


def test_batch_is_handled_entry_by_entry_with_one_rebalance() -> None:
    """L2, L4, L6, L9, L13, S12: results in the order sent, ids exactly as they were sent."""
    h = Harness()
    a, b, c, d = h.stable_group(h.static("a"), h.static("b"), h.dynamic("c"), h.dynamic("d"))
    call = h.leave(
        entry("", "unmapped"),
        entry(""),
        entry(a.member_id, "b"),
        entry(a.member_id, "unmapped"),
        entry("ghost"),
        entry("", "b"),
        entry(c.member_id),
        entry(c.member_id),
    )
    assert call.outcome.members == (
        left("", "unmapped", ErrorCode.unknown_member_id),
        left("", None, ErrorCode.unknown_member_id),
        left(a.member_id, "b", ErrorCode.fenced_instance_id),
        left(a.member_id, "unmapped", ErrorCode.unknown_member_id),
        left("ghost", None, ErrorCode.unknown_member_id),
        left("", "b", ErrorCode.none),
        left(c.member_id, None, ErrorCode.none),
        left(c.member_id, None, ErrorCode.unknown_member_id),
    )
    assert story(call.events) == [
        (MemberFenced, Cause.INSTANCE_FENCED),
        (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN),
        (MemberRemoved, Cause.MEMBER_LEFT),
        (RebalanceStarted, Cause.MEMBER_REMOVED_BY_ADMIN),
    ]
    assert h.live.members.keys() == {a.member_id, d.member_id}
    assert b.member_id not in h.soft.sessions


def test_a_leave_batch_without_valid_members_changes_nothing() -> None:
    """L12, L14: each entry has its error; an empty list succeeds."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.leave(entry("ghost"))
    assert call.error is ErrorCode.none
    assert not call.events
    assert h.leave().outcome == LeaveGroupOutcome()
    assert h.state is GroupState.STABLE


def test_leaver_with_a_parked_join_rejoins_as_new() -> None:
    """L8: 25 with an empty member id."""
    h = Harness()
    a, _b = h.stable_group(h.static("a"), h.static("b"))
    waiting = a.join()
    a.leave()
    assert waiting.outcome == JoinGroupOutcome(error=ErrorCode.unknown_member_id, member_id=NOBODY)


def test_leaver_with_a_parked_sync_is_answered() -> None:
    """QK2, SG18 do not happen here: 25 rather than silence."""
    h = Harness()
    _a, b, c = h.form(h.static("a"), h.static("b"), h.static("c"))
    waiting, other = b.sync(), c.sync()
    h.leave_instance("b")
    assert waiting.outcome == SyncGroupOutcome(error=ErrorCode.unknown_member_id)
    assert other.outcome == SyncGroupOutcome(error=ErrorCode.rebalance_in_progress)


def test_leaving_may_end_the_join_phase() -> None:
    """L9: the phase was only waiting for the leaver."""
    h = Harness()
    a, _b = h.stable_group(h.static("a"), h.static("b"))
    waiting = a.join()
    call = h.leave_instance("b")
    assert story(call.events)[-1] == (JoinPhaseCompleted, Cause.ALL_JOINED)
    assert waiting.outcome.generation_id == 2


def test_leader_that_leaves_the_join_phase_is_succeeded() -> None:
    """S12, RB13: one of the members that rejoined leads the next generation."""
    h = Harness()
    a, b, _c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    h.static("d").join()
    a.leave()
    b.join()
    h.leave_instance("c")
    assert b.is_leader
