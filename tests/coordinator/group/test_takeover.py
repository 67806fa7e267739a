"""Soft state when an ownership ends and when the next one starts (section LD), and the known bugs S3, L9."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.loaded_groups import fail_parked_requests, group_of_offsets
from muster.coordinator.group.outcomes import JoinGroupOutcome, Reply, SyncGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now
from muster.events.causes import Cause
from muster.events.events import GroupEmptied, JoinPhaseCompleted, MemberRejoined, MemberRemoved
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId
from muster.events.state import GroupState
from tests.coordinator.group.harness import DELAY_MS, Harness, story


def test_a_stable_group_is_undisturbed() -> None:
    """LD6, L9: the same generation and assignments, with every session in full."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    h.sleep(9_000)
    h.takeover()
    h.sleep(9_999)
    for client in (a, b):
        assert client.heartbeat().error is ErrorCode.none
        assert client.sync().outcome.assignment == client.assignment
    assert h.state is GroupState.STABLE


def test_dead_members_expire_after_a_takeover() -> None:
    """LD5, L9: no member expires early, and none lives for ever."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.takeover()
    assert not h.sleep(9_999)
    h.sleep(1)
    assert h.state is GroupState.EMPTY


def test_pending_ids_are_gone() -> None:
    """LD5: the client gets 25 and asks again."""
    h = Harness()
    c = h.dynamic("c")
    c.join()
    h.takeover()
    assert c.join().error is ErrorCode.unknown_member_id


def test_stable_group_has_no_sync_timer_after_a_takeover() -> None:
    """SX8: a member that had not synced only has its session."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    a.sync(h.assignments())
    h.takeover()
    assert h.soft.sync_deadline_ms is None
    assert b.sync().outcome.assignment == b"b-2@1"


def test_the_join_phase_continues_after_a_takeover() -> None:
    """LD7 differs here: joins are events; the phase ends when those that had joined have retried."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    lost = a.join()
    h.sleep(1_000)
    h.takeover()
    assert lost.lost
    assert h.soft.join_deadline_ms == h.now_ms + 60_000
    again = a.join()
    assert story(again.events)[0] == (MemberRejoined, Cause.REJOINED)
    b.join()
    assert again.outcome.generation_id == 2


def test_new_member_of_the_join_phase_is_known_after_a_takeover() -> None:
    """LD8 differs here: it retries its join, with the id proposed before or the one it was given."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    b, old = h.dynamic("b"), h.dynamic("old", version=3)
    b.enter()
    first = old.join()
    h.takeover()
    assert b.join().parked
    assert old.join(proposed_member_id=first.command.proposed_member_id).parked  # type: ignore[union-attr]
    a.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert len(h.live.members) == 3


def test_initial_delay_starts_in_full_after_a_takeover() -> None:
    """Members that had joined have two delays to come back in."""
    h = Harness()
    a, b = h.static("a"), h.dynamic("b")
    a.join()
    b.enter()
    h.sleep(2_000)
    h.takeover()
    assert h.soft.join_deadline_ms == h.now_ms + DELAY_MS
    h.sleep(DELAY_MS + 1_000)
    calls = [a.join(member_id=h.member_of("a")), b.join()]
    h.sleep(DELAY_MS)
    assert [call.outcome.generation_id for call in calls] == [1, 1]


@pytest.mark.parametrize("rebalance_timeout_ms", [DELAY_MS - 1, DELAY_MS])
def test_a_delay_as_long_as_the_rebalance_timeout_is_not_extended_after_a_takeover(rebalance_timeout_ms: int) -> None:
    """There is nothing left to extend it by."""
    h = Harness()
    h.static("a", rebalance_timeout_ms=rebalance_timeout_ms).join()
    h.takeover()
    call = h.static("b", rebalance_timeout_ms=rebalance_timeout_ms).join()
    h.sleep(DELAY_MS)
    assert call.outcome.generation_id == 1


def test_static_members_that_come_back_late_end_the_phase_at_once() -> None:
    """RB7: with the delay over, the rebalance timeout is not waited for when all are present."""
    h = Harness()
    clients = [h.static(name, session_timeout_ms=60_000) for name in "ab"]
    for client in clients:
        client.join()
    h.takeover()
    h.sleep(3 * DELAY_MS)
    assert h.state is GroupState.PREPARING_REBALANCE
    calls = [client.join(member_id=h.member_of(client.instance)) for client in clients]
    assert [call.outcome.generation_id for call in calls] == [1, 1]


def test_initial_delay_without_members_ends_empty_after_a_takeover() -> None:
    """R7: there are no members left to wait for."""
    h = Harness()
    h.static("a").join()
    h.leave_instance("a")
    h.takeover()
    events = h.sleep(2 * DELAY_MS)
    assert story(events) == [(GroupEmptied, Cause.INITIAL_DELAY_ELAPSED)]


def test_the_sync_phase_continues_after_a_takeover() -> None:
    """The sync timer runs in full; a member that had synced retries, and one whose join response was lost gets it
    again.
    """
    h = Harness()
    a, b, c = h.form(h.static("a"), h.static("b"), h.dynamic("c"))
    lost = b.sync()
    h.sleep(1_000)
    h.takeover()
    assert lost.lost
    assert h.soft.sync_deadline_ms == h.now_ms + 60_000
    assert c.join().outcome == c.joined
    waiting = b.sync()
    a.sync(h.assignments())
    assert waiting.outcome.assignment == b"b-2@1"
    assert h.soft.pending_syncs == {c.member_id}


def test_member_that_joined_and_never_asks_again_is_removed() -> None:
    """Its session or the sync timer removes it."""
    h = Harness()
    h.form(h.static("a", session_timeout_ms=300_000))
    h.takeover()
    assert story(h.sleep(60_000))[0] == (MemberRemoved, Cause.SYNC_TIMED_OUT)


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_an_absorbed_restart_with_a_lost_response_is_absorbed_again(version: int, skips: bool) -> None:
    """ST11, ST14, ST15: the leader's join, retried with the id proposed before, does not rebalance the group."""
    h = Harness()
    a, _ = h.stable_group(h.static("a", version=version), h.static("b"))
    restarted = a.restarted()
    lost = restarted.join()
    h.takeover()
    again = restarted.join(member_id=UNKNOWN_MEMBER_ID, proposed_member_id=lost.outcome.member_id)
    assert again.events == ()
    assert again.outcome.member_id == lost.outcome.member_id
    assert again.outcome.skip_assignment is skips
    assert (again.outcome.leader_id == again.outcome.member_id) is skips
    assert (h.state, h.live.generation_id) == (GroupState.STABLE, 1)


def test_subscriptions_are_known_after_a_takeover() -> None:
    """OD6: those of the members as they were read."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.takeover()
    assert h.soft.subscribed_topics == frozenset({"orders"})


def test_takeover_of_nothing() -> None:
    """A deleted group does not exist after a takeover either."""
    h = Harness()
    h.dynamic().commit(generation_id=-1)
    h.delete()
    h.takeover()
    assert (h.group, h.soft) == (None, SoftState())


def test_parked_requests_are_answered_when_the_group_is_dropped() -> None:
    """LD12: joins with their own member id, and syncs; nothing is written."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    join = a.join()
    error = ErrorCode.not_coordinator
    assert fail_parked_requests(h.soft, error) == (
        Reply(join.command.caller.request_id, JoinGroupOutcome(error=error, member_id=a.member_id)),
    )
    b.join()
    sync = b.sync()
    assert fail_parked_requests(h.soft, error) == (
        Reply(sync.command.caller.request_id, SyncGroupOutcome(error=error)),
    )
    a.sync(h.assignments())
    assert fail_parked_requests(h.soft, error) == ()


def test_events_after_a_takeover_bear_the_new_epoch() -> None:
    """Each event has its writer's epoch; the sequence numbers continue."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    seq = h.live.seq
    h.takeover()
    call = a.join()
    assert [(event.owner_epoch, event.seq) for event in call.events] == [(1, seq + 1), (1, seq + 2), (1, seq + 3)]
    assert isinstance(call.events[-1], JoinPhaseCompleted)


def test_a_group_is_made_for_offsets_that_have_none() -> None:
    """OC1: Empty, as for a simple consumer; the event has the reason."""
    now = Now(monotonic_ms=0, wall_ms=7, owner_epoch=3, incarnation=5)
    created = group_of_offsets(GroupId("orders"), now, GroupSettings())
    assert (created.group_id, created.incarnation, created.owner_epoch) == ("orders", 5, 3)
    assert created.group.state is GroupState.EMPTY
    assert created.why.cause is Cause.OFFSETS_FOUND
