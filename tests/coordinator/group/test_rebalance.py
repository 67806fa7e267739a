"""Starting a rebalance, finishing its join phase (section RB, ST28, S12 to S16), and the known bugs R7, L9 and S6."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.events import (
    GroupAdvanced,
    GroupEmptied,
    JoinPhaseCompleted,
    MemberRejoined,
    MemberRemoved,
    RebalanceStarted,
)
from muster.events.state import NO_GENERATION, GroupState
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import DELAY_MS, Harness, story


def test_rebalance_from_stable_keeps_the_assignments() -> None:
    """RB2: they are shown until the next generation is assigned."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    assert [m.assignment for m in h.describe().members] == [b"a-1@1", b"b-2@1"]
    b.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert [m.assignment for m in h.describe().members] == [b"a-1@1", b"b-2@1"]


def test_rebalance_from_the_sync_phase_clears_the_assignments() -> None:
    """RB1: by the group's own record, so that no member record has to be rewritten."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.rejoin_all(a, b)
    a.join()
    b.join()
    call = h.static("c").join()
    assert len(call.events) == 2
    assert h.live.image.assigned_generation_id == NO_GENERATION
    assert {m.assignment for m in h.describe().members} == {b""}


def test_single_member_rebalances_in_one_step() -> None:
    """RB3: all have joined already."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    call = a.join()
    assert story(call.events) == [
        (MemberRejoined, Cause.LEADER_REJOINED),
        (RebalanceStarted, Cause.LEADER_REJOINED),
        (JoinPhaseCompleted, Cause.ALL_JOINED),
    ]


def test_join_timer_is_the_longest_rebalance_timeout() -> None:
    """RB4, S14: the longest one among the members."""
    h = Harness()
    a, _ = h.stable_group(h.static("a", rebalance_timeout_ms=20_000), h.static("b", rebalance_timeout_ms=30_000))
    call = a.join()
    started = call.events[1]
    assert isinstance(started, RebalanceStarted)
    assert started.timeout_ms == 30_000
    assert h.soft.join_deadline_ms == h.now_ms + 30_000


def test_group_with_pending_ids_alone_becomes_empty_at_once() -> None:
    """RB5, S14: without members the rebalance timeout is 0."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.dynamic().join()
    a.leave()
    assert h.state is GroupState.PREPARING_REBALANCE
    assert story(h.sleep(0)) == [(GroupEmptied, Cause.JOIN_PHASE_TIMED_OUT)]


def test_dynamic_members_that_do_not_rejoin_are_dropped() -> None:
    """RB6, RS15: with the phase's end, as part of the running rebalance."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.dynamic("b"), h.dynamic("c"))
    waiting = a.join()
    for _ in range(6):
        b.heartbeat()
        c.heartbeat()
        h.sleep(9_000)
    b.heartbeat()
    c.heartbeat()
    events = h.sleep(9_000)
    assert story(events) == [
        (MemberRemoved, Cause.NOT_REJOINED),
        (MemberRemoved, Cause.NOT_REJOINED),
        (JoinPhaseCompleted, Cause.JOIN_PHASE_TIMED_OUT),
    ]
    assert {event.why.member_id for event in events[:2]} == {b.member_id, c.member_id}
    assert events[-1].why.parked_ms == 60_000
    assert waiting.outcome.generation_id == 2
    assert h.soft.sessions.keys() == {a.member_id}
    assert b.heartbeat().error is ErrorCode.unknown_member_id


def test_absent_static_members_alone_are_waited_for_again_and_again() -> None:
    """RB7: the same generation, with the timer restarted, until one of them joins."""
    h = Harness()
    a, _b = h.stable_group(
        h.static("a", session_timeout_ms=300_000),
        h.dynamic("b", session_timeout_ms=300_000),
    )
    h.static("c").join()
    h.leave_instance("c")
    assert h.state is GroupState.PREPARING_REBALANCE
    assert story(h.sleep(60_000)) == [
        (MemberRemoved, Cause.NOT_REJOINED),
        (GroupAdvanced, Cause.JOIN_PHASE_TIMED_OUT),
    ]
    for _ in range(3):
        assert h.soft.join_deadline_ms == h.now_ms + 60_000
        assert not h.sleep(60_000)
        assert (h.state, h.live.generation_id) == (GroupState.PREPARING_REBALANCE, 1)
    assert a.join().outcome.generation_id == 2
    assert a.is_leader


def test_absent_static_members_are_waited_for_until_they_expire() -> None:
    """RB7, R7: then the group is empty, not stuck."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=200_000))
    h.static("c").join()
    h.leave_instance("c")
    h.sleep(200_000)
    assert h.state is GroupState.EMPTY


def test_static_member_that_does_not_rejoin_stays_with_its_subscription() -> None:
    """S6, ST28, RB12: the join timer removes no static member; the leader sees it, and it gets an assignment."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b", session_timeout_ms=300_000))
    a.join()
    (completed,) = h.sleep(60_000)
    assert isinstance(completed, JoinPhaseCompleted)
    assert (completed.absent, completed.timed_out) == ((b.member_id,), True)
    assert a.joined is not None
    assert {m.member_id for m in a.joined.members} == {a.member_id, b.member_id}
    a.sync(h.assignments())
    assert h.live.members[b.member_id].assignment == b"b-2@2"
    assert b.heartbeat().error is ErrorCode.illegal_generation
    assert b.join().outcome.generation_id == 2
    assert b.sync().outcome.assignment == b"b-2@2"


def test_an_absent_static_leader_is_succeeded_by_a_member_that_joined() -> None:
    """S6, RB13: and stays a follower."""
    h = Harness()
    a, b = h.stable_group(h.static("a", session_timeout_ms=300_000), h.static("b"))
    b.join(protocols=protocols(metadata=b"new"))
    h.sleep(60_000)
    assert b.is_leader
    assert h.live.members.keys() == {a.member_id, b.member_id}
    assert a.join().outcome.leader_id == b.member_id


def test_zero_rebalance_timeout_does_not_spin() -> None:
    """K2, RB7: timeouts are taken as they are; each repeated wait has a minimum."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=6_000, rebalance_timeout_ms=1))
    h.static("c", rebalance_timeout_ms=-5).join()
    h.leave_instance("c")
    decisions = len(h.decisions)
    h.sleep(6_000)
    assert h.state is GroupState.EMPTY
    assert len(h.decisions) - decisions < 100


def test_leader_that_rejoins_a_repeated_join_phase_stays_leader() -> None:
    """RB14: it is still the leader of the next generation."""
    h = Harness()
    a, b = h.stable_group(h.static("a", session_timeout_ms=300_000), h.static("b", session_timeout_ms=300_000))
    h.static("c").join()
    h.leave_instance("c")
    h.sleep(60_000)
    waiting = b.join()
    a.join()
    assert waiting.outcome.leader_id == a.member_id


def test_last_member_leaving_empties_the_group_in_one_step() -> None:
    """RB8, S6, S7, L11: the next generation, type kept, no protocol, no leader."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    call = a.leave()
    assert story(call.events) == [
        (MemberRemoved, Cause.MEMBER_LEFT),
        (RebalanceStarted, Cause.MEMBER_LEFT),
        (GroupEmptied, Cause.ALL_JOINED),
    ]
    image = h.live.image
    assert (image.state, image.generation_id) == (GroupState.EMPTY, 2)
    assert (image.protocol_type, image.protocol_name, image.leader_id) == ("consumer", None, None)


def test_the_end_of_the_join_phase_answers_every_join() -> None:
    """RB9: the new generation and the leader to all, members to the leader only, skipAssignment to none."""
    h = Harness()
    a, b = h.static("a"), h.static("b")
    calls = [a.join(), b.join()]
    h.sleep(2 * DELAY_MS)
    leader, follower = (call.outcome for call in calls)
    assert follower == JoinGroupOutcome(
        member_id=b.member_id,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader_id=a.member_id,
    )
    assert len(leader.members) == 2
    assert not leader.skip_assignment


def test_the_leader_receives_static_members_first() -> None:
    """The assignors of kafka-python give nothing to some members when static and dynamic ones alternate."""
    h = Harness()
    calls = [client.enter() for client in (h.static("a"), h.dynamic(), h.static("b"), h.dynamic())]
    h.sleep(2 * DELAY_MS)
    assert [member.group_instance_id for member in calls[0].outcome.members] == ["a", "b", None, None]


def test_end_of_the_join_phase_arms_every_session() -> None:
    """RB10, RB11: including those of absent static members; the sync timer is the group's rebalance timeout."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b", session_timeout_ms=300_000))
    a.join()
    h.sleep(60_000)
    assert h.soft.sessions[a.member_id].deadline_ms == h.now_ms + a.session_timeout_ms
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + b.session_timeout_ms
    assert h.soft.pending_syncs == {a.member_id, b.member_id}
    assert h.soft.sync_deadline_ms == h.now_ms + 60_000


def test_leader_that_goes_is_succeeded_at_once() -> None:
    """S12: by the longest-standing member that remains."""
    h = Harness()
    a, b = h.static("a"), h.static("b")
    b.join()
    h.sleep(1)
    a.join()
    h.form(h.static("c"))
    h.leave_instance("b")
    assert h.live.leader_id == a.member_id


def test_generations_grow_by_one_for_each_finished_join_phase() -> None:
    """S5: and in no other way."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    for generation_id in range(2, 6):
        h.rejoin_all(a, b)
        b.restarted().join(proposed_member_id=b.member_id)
        assert h.live.generation_id == generation_id
