"""Heartbeat (section H), and the known bug R2."""

import pytest
from kio.schema.errors import ErrorCode

from muster.events.ids import MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness


def fed(h: Harness, client: Client) -> bool:
    return h.soft.sessions[client.member_id].deadline_ms == h.now_ms + client.session_timeout_ms


def test_unknown_group_or_no_group_id_is_refused() -> None:
    """H1, G17: 25 for an unknown group, 24 for an empty group id."""
    assert Harness().static("a").heartbeat().error is ErrorCode.unknown_member_id
    assert Harness(group_id="").static("a").heartbeat().error is ErrorCode.invalid_group_id


def test_an_empty_group_knows_no_members() -> None:
    """H3: 25."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    assert a.heartbeat(generation_id=2).error is ErrorCode.unknown_member_id


def test_checks_come_in_kafkas_order() -> None:
    """H2, M4: instance unknown, instance of another, member unknown, generation."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    assert a.heartbeat(group_instance_id="x", generation_id=7).error is ErrorCode.unknown_member_id
    assert a.heartbeat(member_id=b.member_id, generation_id=7).error is ErrorCode.fenced_instance_id
    ghost = a.heartbeat(member_id=MemberId("ghost"), group_instance_id=None, generation_id=7)
    assert ghost.error is ErrorCode.unknown_member_id
    assert a.heartbeat(generation_id=7).error is ErrorCode.illegal_generation


def test_a_pending_member_is_not_a_member() -> None:
    """M7: its requests are answered as an unknown member's."""
    h = Harness()
    h.stable_group(h.static("a"))
    c = h.dynamic()
    c.join()
    assert c.heartbeat(generation_id=1).error is ErrorCode.unknown_member_id
    assert c.sync(generation_id=1).error is ErrorCode.unknown_member_id
    assert c.commit(generation_id=1).error is ErrorCode.unknown_member_id


@pytest.mark.parametrize("synced", [False, True])
def test_heartbeat_keeps_the_session(synced: bool) -> None:
    """H5, H6, H9, R2: also before the member has synced; nothing is written."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    if synced:
        h.sync_all(a, b)
    h.sleep(1_000)
    call = b.heartbeat()
    assert call.error is ErrorCode.none
    assert not call.events
    assert fed(h, b)


def test_a_heartbeat_in_the_join_phase_is_answered_rebalance_in_progress_and_keeps_the_session() -> None:
    """H4, H8: with the old generation, with or without a parked join."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    h.sleep(1_000)
    for client in (a, b):
        assert client.heartbeat().error is ErrorCode.rebalance_in_progress
        assert fed(h, client)
    assert h.state is GroupState.PREPARING_REBALANCE


def test_stale_generation_does_not_keep_the_session() -> None:
    """H7: 22, and the session is not refreshed."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b", session_timeout_ms=300_000))
    a.join()
    h.sleep(60_000)
    h.sleep(1_000)
    assert b.heartbeat().error is ErrorCode.illegal_generation
    assert not fed(h, b)


def test_a_refused_heartbeat_does_not_refresh_the_session() -> None:
    """SE2: it refreshes no session."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.sleep(1_000)
    a.heartbeat(member_id=b.member_id)
    assert not fed(h, a)
    assert not fed(h, b)
