"""Standbys and learners in `why`: who took over from whom, and joins and leaves without partitions."""

from muster.events.causes import Cause
from muster.events.state import MemberRole
from muster.replay.rebalances.rebalance import HappeningKind
from muster.replay.rebalances.wording import headline
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.replay import memberships
from tests.replay.memberships import two
from tests.replay.told import happenings, last_rebalance, names, state_of


def test_a_takeover_moves_the_lost_members_partitions_and_no_others() -> None:
    """With the lost member, the cause, and the duration; the next rebalance starts from that assignment."""
    h = memberships.standby()
    (call,) = happenings(h, HappeningKind.STANDBY_CALLED)
    assert call.who is not None
    assert (call.who.group_instance_id, names(call.members)) == ("c", ["b"])
    assert (call.at, call.until) == ("2023-11-14T22:13:37.000Z", "2023-11-14T22:13:38.850Z")
    assert call.movement is not None
    assert (call.movement.moved, call.movement.stayed) == (6, 6)
    (move,) = call.movement.moves
    assert (move.previous and move.previous.group_instance_id, move.owner and move.owner.group_instance_id) == (
        "b",
        "c",
    )
    rebalance = last_rebalance(h)
    assert rebalance.movement is not None
    assert (rebalance.movement.moved, rebalance.movement.stayed) == (0, 12)
    assert names(rebalance.held) == ["b"]


def test_a_standby_that_is_lost_itself_before_it_took_over() -> None:
    """The next standby gets the partitions of the first lost member."""
    h, (_a, b) = two()
    h.set(target_group_size="2")
    c, d = h.static("c"), h.static("d")
    for client in (c, d):
        client.join()
        client.sync()
    b.leave()
    c.leave()
    memberships.take_over(d)
    first, second = happenings(h, HappeningKind.STANDBY_CALLED)
    assert "was lost itself" in first.text
    assert "took over the 6 partitions of 'c' (orders 6-11) within 850 ms" in second.text
    assert state_of(h).members[-1].role is MemberRole.ACTIVE


def test_a_called_standby_that_was_too_late() -> None:
    """A rebalance with another cause began before it asked."""
    h, (a, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    b.leave()
    a.leave()
    (call,) = happenings(h, HappeningKind.STANDBY_CALLED)
    assert "had not asked for them when the group rebalanced" in call.text
    assert last_rebalance(h).trigger.cause is Cause.MEMBER_LEFT


def test_two_members_are_lost_at_once_with_one_standby() -> None:
    """The rebalance has both, and the call that failed."""
    h, (_a, _b, _e) = two("abe")
    h.set(target_group_size="3")
    c = h.static("c")
    c.join()
    c.sync()
    h.leave_instance("b", "e")
    rebalance = last_rebalance(h)
    assert names(rebalance.trigger.who) == ["b", "e"]
    (call,) = happenings(h, HappeningKind.STANDBY_CALLED)
    assert "when the group rebalanced" in call.text


def test_an_old_client_cannot_take_the_leaders_place() -> None:
    """The standby is the cause of that rebalance, which names what it lacks."""
    h, (a, _b) = two(version=8)
    h.set(target_group_size="2")
    c = h.static("c", version=8)
    c.join()
    c.sync()
    a.leave()
    c.join()
    assert last_rebalance(h).trigger.cause is Cause.STANDBY_UNFIT
    assert headline(last_rebalance(h)).startswith(
        "After generation 1: the standby 'c' (10.0.0.1, client app-c) could not take"
    )


def test_held_members_come_change_and_go_without_a_rebalance() -> None:
    """Each is reported, also while the leader computes the assignment."""
    h, (a, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    c.join(protocols=protocols("range", metadata=subscription("orders", "payments")))
    h.sleep(10)
    c = c.restarted()
    c.join()
    c.leave()
    assert [each.text.partition(")")[2] for each in happenings(h, HappeningKind.INACTIVE_MEMBER_CAME)] == [
        " joined as a standby; no partitions moved",
        ", a learner or standby, rejoined; no partitions moved",
    ]
    assert len(happenings(h, HappeningKind.INACTIVE_MEMBER_WENT)) == 1
    (restart,) = happenings(h, HappeningKind.STATIC_RESTART)
    assert restart.text.endswith("rejoined under a new member id; it is a standby, without partitions")
    a.join()
    b.join()
    h.static("d").join()
    h.sleep(10)
    assert [each.kind for each in last_rebalance(h).meanwhile] == [HappeningKind.INACTIVE_MEMBER_CAME]
    assert last_rebalance(h).folded == ()


def test_a_called_standby_restarts_before_it_took_over() -> None:
    """The process that comes back has another member id, and is the same standby."""
    h, (_, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    b.leave()
    h.sleep(500)
    c = c.restarted()
    c.join()
    c.sync()
    (call,) = happenings(h, HappeningKind.STANDBY_CALLED)
    assert "took over the 6 partitions of 'b' (orders 6-11) within 500 ms" in call.text


def while_the_assignment_is_computed() -> tuple[Harness, Client]:
    """Return a group with a standby, whose members have all rejoined."""
    h, (a, b) = two()
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    a.join()
    for client in (b, c):
        client.join()
    h.sleep(10)
    return h, c


def test_a_standby_that_leaves_while_the_assignment_is_computed_would_have_started_nothing() -> None:
    """It is reported within the rebalance, and is no cause of it."""
    h, c = while_the_assignment_is_computed()
    c.leave()
    assert [each.kind for each in last_rebalance(h).meanwhile] == [HappeningKind.INACTIVE_MEMBER_WENT]
    assert last_rebalance(h).folded == ()


def test_a_standby_that_rejoins_while_the_assignment_is_computed_is_shown_within_the_rebalance() -> None:
    """The decision has no other event."""
    h, c = while_the_assignment_is_computed()
    c.join(protocols=protocols("range", metadata=subscription("orders", "payments")))
    assert [each.kind for each in last_rebalance(h).meanwhile] == [HappeningKind.INACTIVE_MEMBER_CAME]
    assert last_rebalance(h).folded == ()
