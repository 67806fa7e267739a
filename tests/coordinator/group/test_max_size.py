"""group.max.size (KIP-389, section X), and the known bug S11."""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import CheckCapacity
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.causes import Cause
from muster.events.events import JoinRefused, MemberRemoved, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness, story

FULL = JoinGroupOutcome(error=ErrorCode.group_max_size_reached, member_id=MemberId(""))


def test_full_group_refuses_a_new_member() -> None:
    """X1, X4: 81 with an empty member id, recorded."""
    h = Harness(max_size=2)
    h.stable_group(h.static("a"), h.static("b"))
    call = h.static("c").join()
    assert call.outcome == FULL
    assert story(call.events) == [(JoinRefused, Cause.GROUP_FULL)]
    assert h.state is GroupState.STABLE


def test_pending_ids_do_not_count_and_are_judged_when_they_come_back() -> None:
    """X5, X1, X7: more ids than places may be pending; a refused one is forgotten, and the phase continues."""
    h = Harness(max_size=2)
    (a,) = h.stable_group(h.static("a"))
    first, second = h.dynamic("b"), h.dynamic("c")
    first.join()
    second.join()
    waiting = first.join()
    a.join()
    assert second.join().outcome == FULL
    assert not h.soft.pending_members
    assert waiting.parked
    a.join()
    assert waiting.outcome.generation_id == 2


def test_an_empty_group_admits_any_member() -> None:
    """X2, X3: in the initial join phase the waiting members are counted."""
    h = Harness(max_size=1)
    assert h.static("a").join().parked
    assert h.static("b").join().outcome == FULL


def test_members_rejoin_a_full_group() -> None:
    """X3, X4: an existing member may rejoin."""
    h = Harness(max_size=2)
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.rejoin_all(a, b)
    assert b.join().error is ErrorCode.none


def test_static_restart_takes_its_own_place_in_a_full_group() -> None:
    """X6, QK4 do not happen here: in every state."""
    h = Harness(max_size=2)
    a, b = h.stable_group(h.static("a"), h.static("b"))
    new = b.restarted()
    assert new.join().error is ErrorCode.none
    a.join()
    parked = new.join(protocols=protocols(metadata=b"new"))
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert parked.error is ErrorCode.none
    newer = new.restarted()
    assert newer.join().parked
    assert newer.restarted().join().parked


def test_last_to_rejoin_after_the_limit_was_lowered_are_out() -> None:
    """X3, X8, LD10, S11: the group rebalances after the takeover, and the last members to rejoin are refused."""
    h = Harness()
    clients = h.stable_group(*(h.static(name, rebalance_timeout_ms=5_000) for name in "abcd"))
    h.settings = Harness(max_size=2).settings
    h.takeover()
    (started,) = h.events[-1:]
    assert story([started]) == [(RebalanceStarted, Cause.OVER_CAPACITY)]
    assert all(client.commit().error is ErrorCode.none for client in clients)
    a, b, c, d = clients
    waiting = [a.join(), b.join()]
    call = c.join()
    assert call.outcome == FULL
    assert story(call.events) == [(MemberRemoved, Cause.GROUP_FULL), (JoinRefused, Cause.GROUP_FULL)]
    assert d.join().outcome == FULL
    h.sleep(5_000)
    assert [call.outcome.generation_id for call in waiting] == [2, 2]
    assert h.live.members.keys() == {a.member_id, b.member_id}


def test_refused_leader_is_succeeded() -> None:
    """X1, S12: even if the refusal itself is no longer written."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    h.settings = Harness(max_size=1).settings
    h.takeover()
    for _ in range(10):
        c.join(member_id=MemberId("ghost"), group_instance_id=None)
    b.join()
    assert a.join().outcome == FULL
    assert h.live.leader_id in (b.member_id, c.member_id)


def test_group_within_the_limit_is_left_alone() -> None:
    """X8: nothing happens to it, nor to a group that does not exist."""
    h = Harness(max_size=2)
    assert not h.send(CheckCapacity(group_id=h.group_id)).events
    h.stable_group(h.static("a"), h.static("b"))
    assert not h.send(CheckCapacity(group_id=h.group_id)).events


def test_a_full_group_is_full_before_an_instance_is_fenced() -> None:
    """J6: a member that lost its instance id has no place of its own; as in Kafka it gets 81, not 82."""
    h = Harness(max_size=2)
    _a, b = h.stable_group(h.static("a"), h.static("b"))
    assert b.restarted().join().error is ErrorCode.none
    assert b.join().outcome == FULL
