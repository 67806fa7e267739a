"""Learners: new members without partitions, until they are promoted, in one rebalance."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation, EndExpansion, PromoteLearners
from muster.coordinator.group.configs import LEARNER_TIMEOUT, LEARNERS, LIST_LENGTH_MAX
from muster.coordinator.group.roles import EMPTY_ASSIGNMENT
from muster.events.causes import Cause
from muster.events.state import GroupState, MemberRole
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_registration import starts


def with_learners(h: Harness, *names: str, timeout_ms: int = 30_000) -> list[Client]:
    """A stable group of one, and learners that joined later; no session expires."""
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    h.set(members_learner_timeout_ms=str(timeout_ms))
    learners = [h.static(name, session_timeout_ms=600_000) for name in names]
    for learner in learners:
        assert learner.join().error is ErrorCode.none
        learner.sync()
    return learners


def rejoin(h: Harness, instance: str) -> None:
    """Rejoin this instance, with whichever process it has."""
    client = h.static(instance, session_timeout_ms=600_000)
    client.member_id = h.member_of(instance)
    assert client.join().error is ErrorCode.none


def test_a_new_member_learns_and_moves_nothing() -> None:
    """It heartbeats and commits like any other, with an empty assignment."""
    h = Harness()
    (b,) = with_learners(h, "b")
    assert Cause.LEARNER_ADMITTED in {event.why.cause for event in h.events}
    assert (b.assignment, b.heartbeat().error, b.commit().error) == (EMPTY_ASSIGNMENT, ErrorCode.none, ErrorCode.none)
    assert h.state is GroupState.STABLE
    assert h.describe_config().values[LEARNERS] == "b"


def test_learners_that_do_not_fit_into_one_value_are_cut_off() -> None:
    """Each name takes a comma, too: two fit exactly."""
    h = Harness()
    names = [letter * (LIST_LENGTH_MAX // 2 - 1) for letter in "bcd"]
    with_learners(h, *names)
    assert h.describe_config().values[LEARNERS] == ",".join(names[:2])


def test_learners_are_promoted_together_after_a_time() -> None:
    """The timer starts with the first one; then there is one rebalance."""
    h = Harness()
    b, c = with_learners(h, "b", "c")
    h.sleep(30_000)
    assert starts(h)[1:] == [Cause.LEARNER_TIMEOUT_ELAPSED]
    assert {h.live.members[client.member_id].role for client in (b, c)} == {MemberRole.ACTIVE}


def test_a_learner_that_never_syncs_is_removed() -> None:
    """Heartbeats do not prove that it received its empty assignment; no other member is affected."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    h.set(members_learner_timeout_ms="600000")
    b = h.static("b", session_timeout_ms=600_000, rebalance_timeout_ms=12_000)
    b.join()
    h.sleep(11_999)
    assert b.heartbeat().error is ErrorCode.none
    h.sleep(1)
    assert b.member_id not in h.live.members
    assert starts(h)[1:] == []


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_a_learner_without_a_rebalance_timeout_is_removed_at_once(rebalance_timeout_ms: int) -> None:
    """K2: clients may send a negative one, which counts as zero."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_learner_timeout_ms="600000")
    b = h.static("b", rebalance_timeout_ms=rebalance_timeout_ms)
    b.join()
    h.sleep(0)
    assert b.member_id not in h.live.members


def test_a_delayed_join_that_is_repeated_becomes_a_learner_once() -> None:
    """Learning was switched on in between: the first attempt is fenced, and nothing of it is admitted later."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    h.set(members_expansion_delay_ms="60000")
    b = h.static("b", session_timeout_ms=600_000)
    held = b.join()
    assert held.parked
    h.set(members_learner_timeout_ms="600000")
    assert h.static("b", session_timeout_ms=600_000).join().error is ErrorCode.none
    assert held.error is ErrorCode.fenced_instance_id
    assert not h.soft.held_joins
    assert [each.role for each in h.live.members.values()] == [MemberRole.ACTIVE, MemberRole.LEARNER]


def test_an_early_timer_promotes_no_learner() -> None:
    """The timer may have been moved or dropped after it was found to be due."""
    h = Harness()
    early = PromoteLearners(group_id=h.group_id, due_ms=h.now_ms)
    (b,) = with_learners(h, "b")
    h.sleep(29_999)
    assert h.send(early).events == ()
    h.alter((LEARNERS, ConfigOperation.SUBTRACT, "b"))
    h.rejoin_all(h.static("a", session_timeout_ms=600_000), b)
    assert h.soft.promotion_deadline_ms is None
    assert h.send(early).events == ()


def test_an_expansion_delay_that_is_not_over_ends_nothing() -> None:
    """It causes no rebalance then, nor does a delay that never started."""
    h = Harness()
    early = EndExpansion(group_id=h.group_id, due_ms=h.now_ms)
    h.stable_group(h.static("a", session_timeout_ms=600_000))
    assert h.send(early).events == ()
    h.set(members_expansion_delay_ms="60000")
    h.static("b", session_timeout_ms=600_000).join()
    deadline_ms = h.soft.expansion_deadline_ms
    assert h.send(early).events == ()
    assert deadline_ms is not None
    assert h.soft.expansion_deadline_ms == deadline_ms


def test_a_learner_is_promoted_by_hand() -> None:
    """The other one remains a learner through the rebalance."""
    h = Harness()
    b, c = with_learners(h, "b", "c")
    h.alter((LEARNERS, ConfigOperation.SUBTRACT, "c"))
    assert starts(h)[1:] == [Cause.LEARNERS_PROMOTED]
    assert h.live.members[b.member_id].role is MemberRole.LEARNER
    assert h.live.members[c.member_id].role is MemberRole.ACTIVE


def test_no_member_becomes_a_learner_by_command() -> None:
    """A member with partitions keeps them; a member that is not a learner cannot be promoted."""
    h = Harness()
    with_learners(h)
    assert h.alter((LEARNERS, ConfigOperation.APPEND, "a")).error is ErrorCode.invalid_config
    assert h.alter((LEARNERS, ConfigOperation.SUBTRACT, "a")).error is ErrorCode.invalid_request


def test_switching_learning_off_promotes_all() -> None:
    """No member stays in a role that no longer exists."""
    h = Harness()
    with_learners(h, "b")
    h.alter((LEARNER_TIMEOUT, ConfigOperation.DELETE, None))
    assert starts(h)[1:] == [Cause.GROUP_CONFIGURED]


def test_a_learner_stays_one_in_a_rebalance_for_another_reason() -> None:
    """It is not in the leader's member list."""
    h = Harness()
    (b,) = with_learners(h, "b")
    h.set(members_rebalance="static")
    b.join()
    rejoin(h, "a")
    assert h.live.members[b.member_id].role is MemberRole.LEARNER


def test_the_last_active_member_gone_makes_a_learner_active() -> None:
    """The partitions need an active member."""
    h = Harness()
    (b,) = with_learners(h, "b")
    h.leave_instance("a")
    assert b.join().error is ErrorCode.none
    assert h.live.members[b.member_id].role is MemberRole.ACTIVE


def test_a_new_group_has_no_learners() -> None:
    """There are no members to disturb yet."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.set(members_learner_timeout_ms="30000")
    a.leave()
    clients = h.form(h.static("b"), h.static("c"))
    assert {h.live.members[client.member_id].role for client in clients} == {MemberRole.ACTIVE}


def test_one_that_joins_a_running_join_phase_learns_too() -> None:
    """It takes part in the rebalance, but is not in the leader's member list."""
    h = Harness()
    with_learners(h)
    h.set(members_rebalance="static")
    b = h.static("b")
    b.join()
    rejoin(h, "a")
    assert h.live.members[b.member_id].role is MemberRole.LEARNER


def test_learning_restarts_after_a_takeover() -> None:
    """In full."""
    h = Harness()
    with_learners(h, "b")
    h.sleep(29_000)
    h.takeover()
    h.sleep(29_999)
    assert h.state is GroupState.STABLE
    h.sleep(1)
    assert h.state is not GroupState.STABLE


def test_a_learner_promoted_by_hand_and_by_switching_learning_off_is_promoted_once() -> None:
    """The config is the cause of the rebalance: there was no learner left to promote."""
    h = Harness()
    with_learners(h, "b")
    call = h.alter((LEARNER_TIMEOUT, ConfigOperation.DELETE, None), (LEARNERS, ConfigOperation.SUBTRACT, "b"))
    assert {event.why.cause for event in call.events} == {Cause.GROUP_CONFIGURED}
