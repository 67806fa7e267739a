"""Pending members (KIP-394, section P), and the known bug R4."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group import join
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.events import JoinPhaseCompleted, RebalanceStarted
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness, story


def test_member_id_is_handed_out_for_the_session_timeout() -> None:
    """P1, P5: without a generation, and after that time the id is forgotten."""
    h = Harness()
    c = h.dynamic("c", session_timeout_ms=7_000)
    assert c.join().outcome == JoinGroupOutcome(error=ErrorCode.member_id_required, member_id=MemberId("c-1"))
    h.sleep(6_999)
    assert h.soft.pending_members.keys() == {"c-1"}
    assert not h.sleep(1)
    assert not h.soft.pending_members
    assert c.join().error is ErrorCode.unknown_member_id


def test_every_join_without_a_member_id_gets_one() -> None:
    """P2: they add up until they expire; a retry keeps its own."""
    h = Harness()
    for _ in range(3):
        h.dynamic("c").join()
    for _ in range(2):
        h.dynamic("c").join(proposed_member_id=MemberId("again"))
    assert len(h.soft.pending_members) == 4


def test_of_more_ids_than_a_group_keeps_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that uses one of them gets 25, and asks again; the id handed out last is still valid."""
    monkeypatch.setattr(join, "PENDING_MEMBERS_MAX", 20)
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    clients = [h.dynamic(f"c{n}") for n in range(21)]
    for client in clients:
        client.join()
    assert h.soft.pending_members.keys() == {client.member_id for client in clients[2:]}
    assert clients[1].join().error is ErrorCode.unknown_member_id
    assert clients[-1].join().parked
    assert a.join().parked
    assert h.state is GroupState.PREPARING_REBALANCE


def test_pending_id_with_an_instance_id_is_an_error() -> None:
    """P3: a pending client asked without one."""
    h = Harness()
    c = h.dynamic("c")
    c.join()
    call = c.join(group_instance_id=GroupInstanceId("a"))
    assert call.outcome == JoinGroupOutcome(error=ErrorCode.unknown_server_error, member_id=MemberId(""))
    assert h.soft.pending_members


def test_pending_id_with_other_protocols_stays_pending() -> None:
    """P4: 23, the id echoed."""
    h = Harness()
    h.stable_group(h.static("a"))
    c = h.dynamic("c")
    c.join()
    call = c.join(protocols=protocols("sticky"))
    assert call.outcome == JoinGroupOutcome(error=ErrorCode.inconsistent_group_protocol, member_id=c.member_id)
    assert h.soft.pending_members.keys() == {c.member_id}
    assert c.join().parked


def test_expiry_of_a_pending_id_ends_the_join_phase() -> None:
    """P5, R4: all others have joined."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.dynamic().join()
    waiting = a.join()
    assert waiting.parked
    assert story(h.sleep(10_000)) == [(JoinPhaseCompleted, Cause.ALL_JOINED)]
    assert waiting.outcome.generation_id == 2


def test_expiry_of_a_pending_id_does_nothing_else() -> None:
    """P5: not while members are missing, and not in Stable."""
    h = Harness()
    a, b = h.stable_group(h.static("a", session_timeout_ms=60_000), h.static("b", session_timeout_ms=60_000))
    h.dynamic().join()
    assert not h.sleep(10_000)
    h.dynamic().join()
    a.join()
    assert not h.sleep(10_000)
    b.join()
    assert h.state is GroupState.COMPLETING_REBALANCE


def test_pending_member_that_leaves_a_stable_group_rebalances_it() -> None:
    """P6, L5: any instance id is ignored."""
    h = Harness()
    h.stable_group(h.static("a"))
    c = h.dynamic("c")
    c.join()
    c.instance = GroupInstanceId("x")
    call = c.leave("changed my mind")
    assert call.outcome.members[0].error is ErrorCode.none
    assert story(call.events) == [(RebalanceStarted, Cause.PENDING_MEMBER_LEFT)]
    assert call.events[0].why.client_reason == "changed my mind"
    assert not h.soft.pending_members


def test_pending_member_that_leaves_the_join_phase_may_end_it() -> None:
    """P6, L9, R4: the phase ends if all members have joined."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    c = h.dynamic("c")
    c.join()
    waiting = a.join()
    c.leave()
    assert waiting.outcome.generation_id == 2


def test_pending_member_that_leaves_an_empty_group_changes_nothing() -> None:
    """P6, L9: there is no rebalance."""
    h = Harness()
    c = h.dynamic("c")
    c.join()
    call = c.leave()
    assert call.outcome.members[0].error is ErrorCode.none
    assert not call.events


def test_join_timer_does_not_wait_for_pending_ids() -> None:
    """P7: a join that comes later causes another rebalance."""
    h = Harness()
    a, _b = h.stable_group(h.static("a", rebalance_timeout_ms=5_000), h.static("b", rebalance_timeout_ms=5_000))
    c = h.dynamic("c", session_timeout_ms=60_000)
    c.join()
    waiting = a.join()
    h.sleep(5_000)
    assert waiting.outcome.generation_id == 2
    assert c.join().parked
    assert h.state is GroupState.PREPARING_REBALANCE


def test_group_with_pending_ids_alone_can_be_deleted() -> None:
    """P8, DL6: the later join with the id gets 25."""
    h = Harness()
    c = h.dynamic("c")
    c.join()
    assert h.delete().error is ErrorCode.none
    assert c.join().error is ErrorCode.unknown_member_id
