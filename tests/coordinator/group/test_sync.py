"""SyncGroup and the sync timer (sections SG, SX), and the known bug R1."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import SyncGroupOutcome
from muster.events.causes import Cause
from muster.events.events import (
    GroupEmptied,
    GroupStabilized,
    MemberAssigned,
    MemberRemoved,
    RebalanceStarted,
)
from muster.events.ids import MemberId
from muster.events.state import NO_GENERATION, GroupState
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness, story


def in_sync_phase(h: Harness, **given: object) -> tuple[Client, Client, Client]:
    a, b, c = h.form(h.static("a", **given), h.static("b", **given), h.dynamic("c", **given))
    assert a.is_leader
    return a, b, c


# ---- errors --------------------------------------------------------------------------------------


def test_unknown_group_is_refused() -> None:
    """SG1, W14: 25, and all other fields are empty."""
    h = Harness()
    assert h.static("a").sync().outcome == SyncGroupOutcome(error=ErrorCode.unknown_member_id)
    assert h.group is None


def test_empty_group_id_is_refused() -> None:
    """G17: 24."""
    assert Harness(group_id="").static("a").sync().error is ErrorCode.invalid_group_id


def test_an_empty_group_knows_no_members() -> None:
    """SG2: the error is 25."""
    h = Harness()
    h.dynamic().join()
    assert h.static("a").sync().error is ErrorCode.unknown_member_id


def test_checks_come_in_kafkas_order() -> None:
    """SG4, SG6: member and instance, generation, protocol type, protocol name."""
    h = Harness()
    a, b, _ = in_sync_phase(h)
    wrong: dict[str, Any] = {"generation_id": 7, "protocol_type": "connect", "protocol_name": "sticky"}
    assert a.sync(member_id=MemberId("ghost"), group_instance_id=None, **wrong).error is ErrorCode.unknown_member_id
    assert a.sync(member_id=b.member_id, **wrong).error is ErrorCode.fenced_instance_id
    assert a.sync(**wrong).error is ErrorCode.illegal_generation
    assert a.sync(protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert a.sync(protocol_name="sticky").error is ErrorCode.inconsistent_group_protocol
    assert h.state is GroupState.COMPLETING_REBALANCE


def test_protocol_type_and_name_are_compared_only_if_given() -> None:
    """SG5, W15: below v5 they are not compared; the response has them all the same."""
    h = Harness()
    (a,) = h.form(h.static("a"))
    call = a.sync(h.assignments(), protocol_type=None, protocol_name=None)
    assert call.outcome == SyncGroupOutcome(protocol_type="consumer", protocol_name="range", assignment=b"a-1@1")


def test_a_sync_in_the_join_phase_is_answered_rebalance_in_progress() -> None:
    """SG7: 27, no timer is touched."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    h.sleep(1_000)
    deadline_ms = h.soft.sessions[b.member_id].deadline_ms
    assert b.sync().error is ErrorCode.rebalance_in_progress
    assert h.soft.sessions[b.member_id].deadline_ms == deadline_ms


# ---- the sync phase ------------------------------------------------------------------------------


def test_follower_waits_for_the_leader() -> None:
    """SG8, SG10, SG11: parked without an event; its own assignments are ignored; the response has its own bytes."""
    h = Harness()
    a, b, c = in_sync_phase(h)
    waiting = b.sync({b.member_id: b"all mine"})
    assert not waiting.events
    assert h.soft.pending_syncs == {a.member_id, c.member_id}
    h.sleep(1_000)
    call = a.sync(h.assignments())
    assert story(call.events) == [
        *[(MemberAssigned, Cause.ASSIGNMENT_RECEIVED)] * 3,
        (GroupStabilized, Cause.ASSIGNMENT_RECEIVED),
    ]
    assert call.events[-1].why.parked_ms == 1_000
    assert waiting.outcome == SyncGroupOutcome(protocol_type="consumer", protocol_name="range", assignment=b"b-2@1")
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + b.session_timeout_ms
    assert h.state is GroupState.STABLE
    assert c.sync().outcome.assignment == b"c-3@1"


def test_member_the_leader_forgot_gets_nothing() -> None:
    """SG9, SG14: zero bytes with code 0; ids that are no members are ignored."""
    h = Harness()
    a, b, _ = in_sync_phase(h)
    waiting = b.sync()
    a.sync({a.member_id: b"mine", MemberId("ghost"): b"lost"})
    assert waiting.outcome.assignment == b""
    assert waiting.error is ErrorCode.none
    assert "ghost" not in h.live.members


def test_repeated_sync_replaces_the_parked_one() -> None:
    """SG17: only the second request is answered."""
    h = Harness()
    a, b, _ = in_sync_phase(h)
    first, second = b.sync(), b.sync()
    a.sync(h.assignments())
    assert first.lost
    assert second.outcome.assignment == b"b-2@1"


@pytest.mark.parametrize("leads", [True, False])
def test_sync_in_a_stable_group_gives_the_stored_assignment(leads: bool) -> None:
    """SG15, SG16: for the leader too; its assignments are ignored, nothing is written, no session is refreshed."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    client = a if leads else b
    stored = client.assignment
    h.sleep(1_000)
    deadline_ms = h.soft.sessions[client.member_id].deadline_ms
    call = client.sync({client.member_id: b"other"})
    assert call.outcome.assignment == stored
    assert not call.events
    assert h.soft.sessions[client.member_id].deadline_ms == deadline_ms


def test_sync_timer_stops_when_the_last_one_synced() -> None:
    """SG8, SX6: in the sync phase or in Stable."""
    h = Harness()
    a, b, c = in_sync_phase(h)
    b.sync()
    a.sync(h.assignments())
    assert h.soft.sync_deadline_ms is not None
    c.sync()
    assert h.soft.sync_deadline_ms is None


def test_parked_syncs_do_not_expire() -> None:
    """SG19, SE3: the sync timer limits the wait instead."""
    h = Harness()
    a, b, c = in_sync_phase(h)
    waiting = b.sync()
    for _ in range(4):
        h.sleep(9_000)
        a.heartbeat()
        c.heartbeat()
    assert waiting.parked
    a.sync(h.assignments())
    assert waiting.error is ErrorCode.none


# ---- an assignment that cannot be stored ---------------------------------------------------------


def test_assignment_that_cannot_be_stored_fails_all_syncs_and_rebalances() -> None:
    """SG13: each waiting member gets the error and its full session, and the group rebalances again."""
    h = Harness()
    a, b, c = in_sync_phase(h, session_timeout_ms=20_000)
    waiting = b.sync()
    h.sleep(15_000)
    a.heartbeat()
    c.heartbeat()
    h.sleep(10_000)
    assert waiting.parked
    call = h.reject_assignment(a, ErrorCode.unknown_server_error)
    assert call.outcome == waiting.outcome == SyncGroupOutcome(error=ErrorCode.unknown_server_error)
    assert story(call.events)[-1] == (RebalanceStarted, Cause.ASSIGNMENT_NOT_STORED)
    assert h.live.image.assigned_generation_id == NO_GENERATION
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + 20_000


def test_a_late_rejection_of_an_assignment_changes_nothing() -> None:
    """SG12: only the sender gets the error."""
    h = Harness()
    a, b, _c = in_sync_phase(h)
    b.restarted().join()
    call = h.reject_late(a, ErrorCode.unknown_server_error)
    assert call.error is ErrorCode.unknown_server_error
    assert not call.events


# ---- the sync timer ------------------------------------------------------------------------------


def test_followers_that_never_sync_are_removed_after_the_timeout() -> None:
    """SX2, SX5, SX7, R1: static ones too, although they heartbeat; the others rebalance."""
    h = Harness()
    a, b, c = in_sync_phase(h)
    a.sync(h.assignments())
    assert h.state is GroupState.STABLE
    for _ in range(6):
        h.sleep(9_000)
        for client in (a, b, c):
            assert client.heartbeat().error is ErrorCode.none
        assert b.join().error is ErrorCode.none
    assert story(h.sleep(6_000)) == [
        (MemberRemoved, Cause.SYNC_TIMED_OUT),
        (MemberRemoved, Cause.SYNC_TIMED_OUT),
        (RebalanceStarted, Cause.SYNC_TIMED_OUT),
    ]
    assert a.heartbeat().error is ErrorCode.rebalance_in_progress
    assert b.heartbeat().error is c.heartbeat(group_instance_id=None).error is ErrorCode.unknown_member_id


def test_without_any_sync_the_group_becomes_empty_in_one_step() -> None:
    """SX3: the group is empty at once."""
    h = Harness()
    in_sync_phase(h, session_timeout_ms=300_000)
    assert story(h.sleep(60_000)) == [
        *[(MemberRemoved, Cause.SYNC_TIMED_OUT)] * 3,
        (RebalanceStarted, Cause.SYNC_TIMED_OUT),
        (GroupEmptied, Cause.ALL_JOINED),
    ]
    assert h.live.generation_id == 2


def test_leader_that_never_syncs_is_removed_and_succeeded() -> None:
    """SX4: the parked followers get 27."""
    h = Harness()
    a, b, c = in_sync_phase(h, session_timeout_ms=300_000)
    waiting = [b.sync(), c.sync()]
    h.sleep(60_000)
    assert [call.error for call in waiting] == [ErrorCode.rebalance_in_progress] * 2
    assert a.member_id not in h.live.members
    assert h.live.leader_id in (b.member_id, c.member_id)
    h.rejoin_all(b, c)
    assert h.state is GroupState.STABLE


def test_sync_timer_of_an_earlier_generation_does_nothing() -> None:
    """SX1: a new rebalance stops it."""
    h = Harness()
    a, b, c = in_sync_phase(h, session_timeout_ms=300_000)
    h.sleep(30_000)
    b.restarted().join()
    for client in (a, c):
        client.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert not h.sleep(59_999)
