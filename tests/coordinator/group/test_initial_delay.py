"""The initial rebalance delay (KIP-134, section I, JP3), and the known bug R17."""

from kio.schema.errors import ErrorCode

from muster.events.causes import Cause
from muster.events.events import GroupEmptied, JoinPhaseCompleted, MemberRemoved
from muster.events.state import GroupState
from tests.coordinator.group.harness import DELAY_MS, Harness, story


def test_one_member_waits_one_delay() -> None:
    """I1, I3, I4: the first member itself does not extend it."""
    h = Harness()
    call = h.static("a").join()
    h.sleep(DELAY_MS - 1)
    assert call.parked
    assert story(h.sleep(1)) == [(JoinPhaseCompleted, Cause.INITIAL_DELAY_ELAPSED)]
    assert call.outcome.generation_id == 1


def test_member_that_joins_in_the_delay_extends_it_once() -> None:
    """I2, JP3: by another delay, in which no member joins."""
    h = Harness()
    a = h.static("a").join()
    h.sleep(1_000)
    b = h.static("b").join()
    h.sleep(2 * DELAY_MS - 1_001)
    assert a.parked
    h.sleep(1)
    assert a.outcome.generation_id == b.outcome.generation_id == 1


def test_delay_ends_with_the_first_members_rebalance_timeout() -> None:
    """I2, I3: with a new member in every delay, the wait is the rebalance timeout of the first one."""
    h = Harness()
    first = h.static("a", rebalance_timeout_ms=10_000).join()
    start_ms = h.now_ms
    number = 0
    while first.parked:
        number += 1
        h.static(f"b{number}", rebalance_timeout_ms=600_000).join()
        h.sleep(500)
    assert h.now_ms - start_ms == 10_000


def test_delay_longer_than_the_rebalance_timeout_is_one_delay() -> None:
    """I1, I3: there is no time left to extend by."""
    h = Harness()
    first = h.static("a", rebalance_timeout_ms=1_000).join()
    h.static("b").join()
    h.sleep(DELAY_MS)
    assert first.outcome.generation_id == 1


def test_rejoins_and_pending_ids_extend_nothing() -> None:
    """I4, I9: nor does a pending id postpone the end."""
    h = Harness()
    a = h.dynamic("a")
    a.enter()
    again = a.join()
    h.dynamic("p").join()
    h.sleep(DELAY_MS)
    assert again.outcome.generation_id == 1


def test_emptied_group_is_delayed_again() -> None:
    """I5: and extended again, whatever its generation; I6, QK5 do not happen here: no flag outlives a phase."""
    h = Harness()
    first = h.static("a", rebalance_timeout_ms=DELAY_MS + 1_000)
    a = first.join()
    h.sleep(1)
    h.static("b", rebalance_timeout_ms=5_000).join()
    h.sleep(DELAY_MS)
    h.static("late").join()
    h.sleep(1_000)
    assert a.outcome.generation_id == 1
    h.leave_instance("a", "b", "late")
    assert h.state is GroupState.EMPTY
    again = h.static("a").join()
    h.sleep(DELAY_MS)
    assert again.outcome.generation_id == 3


def test_joins_never_end_an_initial_rebalance_early() -> None:
    """I7: even with no member missing."""
    h = Harness()
    a = h.static("a")
    a.join()
    assert a.restarted().join().parked
    assert h.state is GroupState.PREPARING_REBALANCE


def test_delay_of_zero_ends_with_the_next_tick() -> None:
    """I7: not within the join itself."""
    h = Harness(initial_rebalance_delay_ms=0)
    call = h.static("a").join()
    assert call.parked
    h.sleep(0)
    assert call.outcome.generation_id == 1


def test_members_that_join_at_once_without_a_delay_do_not_wait_for_the_timeout() -> None:
    """R17: all of them are in the first generation."""
    h = Harness(initial_rebalance_delay_ms=0)
    calls = [h.static(name).join() for name in "abc"]
    h.sleep(0)
    assert [call.outcome.generation_id for call in calls] == [1, 1, 1]


def test_member_that_comes_after_the_tick_waits_for_a_rejoin_alone() -> None:
    """R17: the first one gets the rejoin from its sync or heartbeat, and then no member waits any more."""
    h = Harness(initial_rebalance_delay_ms=0)
    (a,) = h.form(h.static("a"))
    late = h.static("b").join()
    assert a.sync(h.assignments()).error is ErrorCode.rebalance_in_progress
    a.join()
    assert late.outcome.generation_id == 2


def test_leaving_does_not_end_an_initial_rebalance() -> None:
    """I8: even the last one; the delay's end makes the group Empty."""
    h = Harness()
    h.static("a").join()
    h.leave_instance("a")
    assert h.state is GroupState.PREPARING_REBALANCE
    assert story(h.sleep(DELAY_MS)) == [(GroupEmptied, Cause.INITIAL_DELAY_ELAPSED)]
    assert h.live.generation_id == 1


def test_expiry_of_a_member_may_end_an_initial_rebalance() -> None:
    """I8, SE8: unlike joins and leaves. The member heartbeats, so that its session is no longer five minutes."""
    h = Harness(initial_rebalance_delay_ms=60_000)
    waiting = h.static("a").join()
    b = h.static("b", generation_id=0)
    b.join()
    b.member_id = h.member_of("b")
    assert b.heartbeat().error is ErrorCode.rebalance_in_progress
    assert story(h.sleep(10_000)) == [
        (MemberRemoved, Cause.FIRST_JOIN_TIMED_OUT),
        (JoinPhaseCompleted, Cause.ALL_JOINED),
    ]
    assert waiting.outcome.generation_id == 1


def test_expiry_of_a_pending_member_may_end_an_initial_rebalance() -> None:
    """I8, P5: all other members have joined by then."""
    h = Harness(initial_rebalance_delay_ms=60_000)
    waiting = h.static("a").join()
    h.dynamic().join()
    assert story(h.sleep(10_000)) == [(JoinPhaseCompleted, Cause.ALL_JOINED)]
    assert waiting.outcome.generation_id == 1
