"""JoinGroup of new and of known members in each state (sections JE, JP, JC, JS, S8, S12). Refusals: test_join.py."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinedMember, JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.events import (
    GroupCreated,
    JoinPhaseCompleted,
    MemberJoined,
    MemberRejoined,
    RebalanceStarted,
)
from muster.events.ids import MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import DELAY_MS, Harness, story

# ---- Empty ---------------------------------------------------------------------------------------


def test_old_dynamic_member_is_added_under_an_id_it_learns_later() -> None:
    """J10: below v4 there is no second step."""
    h = Harness()
    c = h.dynamic("old", version=3)
    call = c.join()
    assert call.parked
    h.sleep(DELAY_MS)
    assert call.outcome == JoinGroupOutcome(
        member_id=MemberId("old-1"),
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id=MemberId("old-1"),
        members=(JoinedMember(member_id=MemberId("old-1"), group_instance_id=None, metadata=subscription("orders")),),
    )


def test_first_member_starts_the_initial_rebalance() -> None:
    """JE2, S8, S12: Empty to PreparingRebalance, the first member leads and sets the protocol type."""
    h = Harness()
    call = h.static("a").join(reason="hello")
    assert story(call.events) == [
        (GroupCreated, Cause.GROUP_CREATED),
        (MemberJoined, Cause.NEW_STATIC_MEMBER),
        (RebalanceStarted, Cause.NEW_STATIC_MEMBER),
    ]
    assert call.events[-1].why.client_reason == "hello"
    assert (h.live.image.protocol_type, h.live.leader_id) == ("consumer", "a-1")
    assert h.soft.join_deadline_ms == h.now_ms + DELAY_MS


def test_an_empty_group_may_come_back_with_another_protocol_type() -> None:
    """S8: the first member of a group without members decides; S6: until then the type is kept."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    assert (h.state, h.live.image.protocol_type) == (GroupState.EMPTY, "consumer")
    h.form(h.static("b", protocol_type="connect"))
    assert h.live.image.protocol_type == "connect"


# ---- PreparingRebalance --------------------------------------------------------------------------


def test_rejoin_in_the_join_phase_is_stored_and_parked() -> None:
    """JP4, J14, SE2: protocols and timeouts are stored, the session timer is not touched."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    h.sleep(1_000)
    deadline_ms = h.soft.sessions[b.member_id].deadline_ms
    b.host = "/10.0.0.2"
    h.static("c").join()
    call = b.join(protocols=protocols("range", "sticky"), session_timeout_ms=7_000, rebalance_timeout_ms=90_000)
    member = h.live.members[b.member_id]
    assert call.outcome.generation_id == 2
    assert [p.name for p in member.protocols] == ["range", "sticky"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7_000, 90_000)
    assert member.client_host == "/10.0.0.2"
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + 7_000 != deadline_ms


def test_rejoin_does_not_move_the_session_while_the_phase_lasts() -> None:
    """JP4, SE2: parking a join refreshes no session."""
    h = Harness()
    a, b, _c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    deadline_ms = h.soft.sessions[b.member_id].deadline_ms
    a.join()
    h.sleep(1_000)
    assert b.join(session_timeout_ms=60_000).parked
    assert h.soft.sessions[b.member_id].deadline_ms == deadline_ms


def test_larger_rebalance_timeout_does_not_move_the_running_join_timer() -> None:
    """JP6: the timer is that of the phase's start."""
    h = Harness()
    a, b, _c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    a.join()
    deadline_ms = h.soft.join_deadline_ms
    b.join(rebalance_timeout_ms=600_000)
    assert h.soft.join_deadline_ms == deadline_ms


def test_new_member_that_completes_the_phase_ends_it_at_once() -> None:
    """JP2: all have joined, and no id is pending."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    waiting = h.static("b").join()
    assert h.state is GroupState.PREPARING_REBALANCE
    call = a.join()
    assert story(call.events) == [
        (MemberRejoined, Cause.REJOINED),
        (JoinPhaseCompleted, Cause.ALL_JOINED),
    ]
    assert waiting.outcome.generation_id == call.outcome.generation_id == 2


def test_pending_member_holds_up_the_early_end() -> None:
    """JP1, P7: a pending id blocks the early end; its own join then ends the phase."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    c = h.dynamic("c")
    c.join()
    waiting = a.join()
    assert waiting.parked
    assert c.join().outcome.generation_id == 2
    assert waiting.outcome.generation_id == 2


def test_repeated_join_replaces_the_parked_one() -> None:
    """J13: the member's earlier request is never answered."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    first, second = a.join(), a.join()
    assert first.lost
    assert second.parked
    b.join()
    assert second.outcome.generation_id == 2
    assert first.answer is None


def test_join_with_the_proposed_id_of_a_member_is_its_retry() -> None:
    """A parked join that is retried with the same proposed id adds no second member, in any version."""
    h = Harness()
    for c in (h.dynamic("old", version=3), h.static("a")):
        proposed = MemberId(f"{c.name}-proposed")
        c.join(proposed_member_id=proposed)
        again = c.join(proposed_member_id=proposed)
        assert again.parked
        assert proposed in h.live.members
    assert len(h.live.members) == 2


# ---- CompletingRebalance -------------------------------------------------------------------------


def test_lost_join_answer_is_given_again() -> None:
    """JC1, R9, S14: the current generation, with the members for the leader, and no rebalance."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    before = (h.group, set(h.soft.pending_syncs), h.soft.sync_deadline_ms)
    first = a.joined
    assert a.join().outcome == first
    assert first is not None
    assert len(first.members) == 2
    again = b.join()
    assert again.outcome == b.joined
    assert not again.events
    assert not again.outcome.members
    assert (h.group, set(h.soft.pending_syncs), h.soft.sync_deadline_ms) == before


def test_changed_metadata_in_the_sync_phase_rebalances() -> None:
    """JC2: parked syncs get 27, and their sessions restart in full."""
    h = Harness()
    _a, b, c = h.form(h.static("a"), h.static("b"), h.static("c"))
    parked = c.sync()
    h.sleep(2_000)
    call = b.join(protocols=protocols(metadata=subscription("payments")))
    assert story(call.events) == [
        (MemberRejoined, Cause.METADATA_CHANGED),
        (RebalanceStarted, Cause.METADATA_CHANGED),
    ]
    assert parked.error is ErrorCode.rebalance_in_progress
    assert h.soft.sync_deadline_ms is None
    assert not h.soft.pending_syncs
    assert h.soft.sessions[c.member_id].deadline_ms == h.now_ms + c.session_timeout_ms


@pytest.mark.parametrize("kind", ["old", "static", "pending"])
def test_new_member_in_the_sync_phase_rebalances(kind: str) -> None:
    """JC3: the heartbeats of the others get 27."""
    h = Harness()
    (a,) = h.form(h.static("a"))
    c = {"old": h.dynamic(version=3), "static": h.static("c"), "pending": h.dynamic()}[kind]
    assert c.enter().parked
    assert h.state is GroupState.PREPARING_REBALANCE
    assert a.heartbeat().error is ErrorCode.rebalance_in_progress


def test_new_dynamic_member_in_the_sync_phase_only_gets_its_id() -> None:
    """JC4: the rebalance starts when it joins with the id."""
    h = Harness()
    h.form(h.static("a"))
    assert h.dynamic().join().error is ErrorCode.member_id_required
    assert h.state is GroupState.COMPLETING_REBALANCE


# ---- Stable --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [False, True])
def test_leader_that_rejoins_always_rebalances(changed: bool) -> None:
    """JS1, ST23, ST24: with changed or unchanged metadata; the leader computes a new assignment."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    call = a.join(protocols=protocols("range", "sticky") if changed else a.protocols)
    assert story(call.events) == [
        (MemberRejoined, Cause.LEADER_REJOINED),
        (RebalanceStarted, Cause.LEADER_REJOINED),
        (JoinPhaseCompleted, Cause.ALL_JOINED),
    ]
    assert call.outcome.generation_id == 2
    assert not call.outcome.skip_assignment
    assert len(call.outcome.members) == 1


@pytest.mark.parametrize("static", [False, True])
def test_unchanged_follower_is_answered_at_once(static: bool) -> None:
    """JS2, J14, SE2: with the current generation and no members; nothing is written, no timer is touched."""
    h = Harness()
    _a, b = h.stable_group(h.static("a"), h.static("b") if static else h.dynamic("b"))
    before = (h.group, h.soft.sessions[b.member_id].deadline_ms)
    h.sleep(1_000)
    call = b.join(session_timeout_ms=20_000)
    assert call.outcome == b.joined
    assert not call.events
    assert (h.group, h.soft.sessions[b.member_id].deadline_ms) == before


@pytest.mark.parametrize(
    "changed",
    [
        protocols(metadata=b"other"),
        protocols("range", "sticky"),
        protocols("sticky", "range"),
    ],
)
def test_changed_follower_rebalances(changed: tuple[object, ...]) -> None:
    """JS3, S11: content, number or order of protocols."""
    h = Harness()
    offered = protocols("range", "sticky") if changed[0] == protocols("sticky")[0] else protocols()
    _a, b = h.stable_group(h.static("a", protocols=offered), h.dynamic("b", protocols=offered))
    call = b.join(protocols=changed)
    assert story(call.events) == [
        (MemberRejoined, Cause.METADATA_CHANGED),
        (RebalanceStarted, Cause.METADATA_CHANGED),
    ]


def test_follower_with_several_protocols_is_answered_at_once_after_a_takeover() -> None:
    """JS4, QK7 do not happen here: all protocols of a member are in its event."""
    h = Harness()
    offered = protocols("range", "sticky")
    _a, b = h.stable_group(h.static("a", protocols=offered), h.dynamic("b", protocols=offered))
    h.takeover()
    assert b.join().outcome == b.joined


def test_new_dynamic_member_in_a_stable_group_changes_nothing() -> None:
    """JS5: 79, no event."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.dynamic().join()
    assert call.error is ErrorCode.member_id_required
    assert not call.events
    assert h.state is GroupState.STABLE


@pytest.mark.parametrize("kind", ["old", "static", "pending"])
def test_new_member_in_a_stable_group_rebalances(kind: str) -> None:
    """JS6, RB4: the join timer is the group's current rebalance timeout, including the new member's."""
    h = Harness()
    h.stable_group(h.static("a"))
    kinds = {"old": h.dynamic(version=3), "static": h.static("c"), "pending": h.dynamic()}
    c = kinds[kind]
    c.rebalance_timeout_ms = 99_000
    cause = Cause.NEW_STATIC_MEMBER if kind == "static" else Cause.NEW_DYNAMIC_MEMBER
    call = c.enter()
    assert story(call.events) == [(MemberJoined, cause), (RebalanceStarted, cause)]
    assert h.soft.join_deadline_ms == h.now_ms + 99_000
