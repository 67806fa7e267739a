"""A group returns to the upstream cluster: all members are removed in one step, and join there as new members."""

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import COORDINATOR, REGISTERED
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    ReleasedMember,
    ReleaseGroupOutcome,
    SyncGroupOutcome,
)
from muster.coordinator.group.retention import is_kept_without_offsets
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupConfigured, GroupEmptied, MemberRemoved, RebalanceStarted
from muster.events.ids import MemberId
from muster.events.state import NOT_CONFIGURED, GroupState
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness, story

Step = tuple[type[AnyEvent], Cause]
SET = ConfigOperation.SET

REMOVED: Step = (MemberRemoved, Cause.GROUP_RELEASED)
STARTED: Step = (RebalanceStarted, Cause.GROUP_RELEASED)
GONE: list[Step] = [STARTED, (GroupEmptied, Cause.ALL_JOINED)]
GONE_FROM_A_JOIN_PHASE: list[Step] = [(GroupEmptied, Cause.GROUP_RELEASED)]

OUT = JoinGroupOutcome(error=ErrorCode.unknown_member_id, member_id=MemberId(""))
"""The response to a parked join: without its id, so that the client asks for a new one."""


def of(client: Client, *, parked: bool = False) -> ReleasedMember:
    return ReleasedMember(
        member_id=client.member_id,
        group_instance_id=client.instance,
        client_id=client.name,
        client_host=client.host,
        session_timeout_ms=client.session_timeout_ms,
        rebalance_timeout_ms=client.rebalance_timeout_ms,
        was_parked=parked,
    )


def test_a_stable_group_is_empty_in_one_transition() -> None:
    """Each member's event has the cause of its removal; the response lists the members, the leader last."""
    h = Harness()
    a, b = h.stable_group(h.static("a", host="/10.0.0.5"), h.dynamic("b"))
    call = h.release()
    assert call.outcome == ReleaseGroupOutcome(members=(of(b), of(a)))
    assert story(call.events) == [REMOVED, REMOVED, *GONE]
    assert [event.why.member_id for event in call.events] == [b.member_id, a.member_id, None, None]
    assert {(event.why.client_id, event.why.client_host) for event in call.events} == {("admin", "/10.0.0.9")}
    assert (h.state, h.live.generation_id, dict(h.live.members)) == (GroupState.EMPTY, 2, {})
    for client in (a, b):
        assert client.heartbeat().error is ErrorCode.unknown_member_id


def test_a_member_waiting_for_a_rebalance_returns_as_a_new_member() -> None:
    """A parked join is answered at once, so the client learns of it before its next heartbeat."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    parked = a.join()
    call = h.release()
    assert parked.outcome == OUT
    assert story(call.events) == [REMOVED, REMOVED, *GONE_FROM_A_JOIN_PHASE]
    assert set(call.outcome.members) == {of(a, parked=True), of(b)}
    assert h.state is GroupState.EMPTY
    again = a.restarted()
    h.form(again)
    assert again.generation_id == 3


def test_a_member_waiting_for_its_assignment_returns_as_a_new_member() -> None:
    """In the sync phase."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    parked = b.sync()
    call = h.release()
    assert parked.outcome == SyncGroupOutcome(error=ErrorCode.unknown_member_id)
    assert story(call.events) == [REMOVED, REMOVED, *GONE]
    assert a.sync(h.assignments()).error is ErrorCode.unknown_member_id


def test_an_initial_delay_is_not_waited_for() -> None:
    """Leaving would not end it (I7)."""
    h = Harness()
    parked = [h.static(name).join() for name in "ab"]
    call = h.release()
    assert [join.outcome for join in parked] == [OUT, OUT]
    assert story(call.events) == [REMOVED, REMOVED, *GONE_FROM_A_JOIN_PHASE]
    assert h.sleep(60_000) == ()


def _nobody(h: Harness) -> None:
    (a,) = h.stable_group(h.static("a"))
    a.leave()


def _pending(h: Harness) -> None:
    h.dynamic("a").join()


@pytest.mark.parametrize("prepare", [_nobody, _pending])
def test_an_empty_group_stays_as_it_is(prepare: Callable[[Harness], None]) -> None:
    """Nothing is written, and pending ids are forgotten."""
    h = Harness()
    prepare(h)
    call = h.release()
    assert (call.outcome, call.events) == (ReleaseGroupOutcome(), ())
    assert not h.soft.pending_members
    assert h.state is GroupState.EMPTY


def test_an_id_that_was_handed_out_holds_up_nothing() -> None:
    """P6: a rebalance would wait for it."""
    h = Harness()
    h.stable_group(h.static("a"))
    b = h.dynamic("b")
    b.join()
    assert story(h.release().events) == [REMOVED, *GONE]
    assert b.join().error is ErrorCode.unknown_member_id


def test_delayed_joins_are_refused_and_not_admitted() -> None:
    """A join phase would make members of them; those sent back to retry are no longer awaited."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=60_000))
    h.set(members_expansion_delay_ms="60000")
    early = h.static("early").join()
    h.sleep(21_000)
    assert early.error is ErrorCode.coordinator_load_in_progress
    held = h.static("held").join()
    assert held.parked
    call = h.release()
    assert held.outcome == OUT
    assert story(call.events) == [REMOVED, *GONE]
    assert not h.soft.held_joins
    assert h.sleep(120_000) == ()


def test_learners_standbys_and_retiring_members_leave_alike() -> None:
    """No standby is called, and nothing is awaited."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.set(target_group_size="2")
    c = h.static("c")
    c.join()
    c.sync()
    h.alter(("members.retired", ConfigOperation.SET, "b"))
    call = h.release()
    assert story(call.events) == [REMOVED, REMOVED, REMOVED, *GONE]
    assert set(call.outcome.members) == {of(a), of(b), of(c)}
    assert h.soft.retirement_deadline_ms is None


def test_configs_of_the_group_are_kept() -> None:
    """The operator's configs apply again when Muster adopts the group."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(target_group_size="2")
    h.alter(("members.registered", ConfigOperation.SET, "b"))
    h.release()
    assert h.live.config.target_group_size == 2
    assert list(h.live.registrations) == ["b"]


def test_no_group_can_be_released_twice_or_if_it_is_not_there() -> None:
    """69; after the first release there are no members."""
    h = Harness()
    assert h.release().outcome == ReleaseGroupOutcome(error=ErrorCode.group_id_not_found)
    h.stable_group(h.static("a"))
    assert h.release().outcome.members
    assert h.release().outcome == ReleaseGroupOutcome()


def test_after_a_takeover_the_group_is_still_released() -> None:
    """The config is in the log."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.release()
    h.takeover()
    assert h.state is GroupState.EMPTY
    left = a.leave().outcome
    assert isinstance(left, LeaveGroupOutcome)
    assert left.members[0].error is ErrorCode.unknown_member_id


def test_setting_the_coordinator_releases_the_group_in_the_same_transition() -> None:
    """`members.coordinator=upstream`: from then on all joins here get an error with which clients retry."""
    h = Harness(offsets_are_upstream=True)
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    call = h.alter((COORDINATOR, SET, "upstream"))
    assert call.outcome == AlterGroupConfigOutcome(error=ErrorCode.none, released=(of(b), of(a)))
    assert story(call.events) == [(GroupConfigured, Cause.GROUP_CONFIGURED), REMOVED, REMOVED, *GONE]
    assert h.state is GroupState.EMPTY
    assert h.describe_config().values == {COORDINATOR: "upstream"}
    register = h.alter((REGISTERED, SET, "c"))
    assert register.error is ErrorCode.invalid_request, "nobody would ever arrive here"
    assert "adopt it first" in (register.outcome.message or "")
    h.takeover()
    assert a.heartbeat().error is ErrorCode.unknown_member_id
    assert h.static("a").join().error is ErrorCode.coordinator_load_in_progress
    assert h.alter((COORDINATOR, SET, "upstream")).outcome.released == ()
    assert h.alter((COORDINATOR, SET, "muster")).error is ErrorCode.none
    assert h.live.config == NOT_CONFIGURED
    h.form(h.static("a"))


def test_an_invalid_coordinator_is_refused() -> None:
    """A validate-only request releases nothing."""
    h = Harness(offsets_are_upstream=True)
    h.stable_group(h.static("a"))
    call = h.alter((COORDINATOR, SET, "elsewhere"))
    assert call.error is ErrorCode.invalid_config
    assert "'muster' or 'upstream'" in (call.outcome.message or "")
    assert h.alter((COORDINATOR, SET, "upstream"), validate_only=True).outcome.released == ()
    assert h.state is GroupState.STABLE


def test_a_group_that_was_released_does_not_expire() -> None:
    """An operator has set its config."""
    h = Harness(offsets_are_upstream=True)
    h.stable_group(h.static("a"))
    h.alter((COORDINATOR, SET, "upstream"))
    assert h.group is not None
    assert is_kept_without_offsets(h.group, h.soft)
