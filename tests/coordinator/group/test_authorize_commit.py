"""Authorizing commits of offsets that are stored elsewhere: as OffsetCommit (section OC) and TxnOffsetCommit (TO)."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import AuthorizeCommitOutcome
from muster.events.causes import Cause
from muster.events.events import MemberFenced
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Call, Client
from tests.coordinator.group.harness import Harness, story

NOBODY = {"member_id": MemberId(""), "group_instance_id": None, "generation_id": -1}


# ---- groups of a and b, and the one of them who commits ------------------------------------------


def unknown(h: Harness) -> Client:
    return h.static("a")


def empty(h: Harness) -> Client:
    a = stable(h)
    h.leave_instance("a", "b")
    return a


def stable(h: Harness) -> Client:
    a, _ = h.stable_group(h.static("a"), h.static("b"))
    return a


def preparing(h: Harness) -> Client:
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    return b


def completing(h: Harness) -> Client:
    a, _ = h.form(h.static("a"), h.static("b"))
    return a


STAGES: dict[GroupState | None, Callable[[Harness], Client]] = {
    None: unknown,
    GroupState.EMPTY: empty,
    GroupState.STABLE: stable,
    GroupState.PREPARING_REBALANCE: preparing,
    GroupState.COMPLETING_REBALANCE: completing,
}
SENDERS: tuple[dict[str, Any], ...] = (
    {},
    {"generation_id": -1},
    {"generation_id": 7},
    {"group_instance_id": None},
    {"group_instance_id": GroupInstanceId("x")},
    {"member_id": MemberId("ghost")},
    {"member_id": MemberId("ghost"), "group_instance_id": None},
    {"member_id": MemberId("ghost"), "group_instance_id": None, "generation_id": -1},
    {"member_id": MemberId(""), "group_instance_id": None},
    NOBODY,
    {"unknown_group_error": ErrorCode.illegal_generation, "generation_id": 0},
)


def staged(state: GroupState | None) -> tuple[Harness, Client]:
    h = Harness()
    client = STAGES[state](h)
    assert h.state is state
    return h, client


# ---- OffsetCommit --------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", SENDERS, ids=str)
@pytest.mark.parametrize("state", STAGES, ids=str)
def test_the_verdict_is_that_on_a_commit_that_is_kept_here(state: GroupState | None, sender: dict[str, Any]) -> None:
    """OC1 to OC10: in every state, for every sender; with the generation that it was accepted in."""
    h, client = staged(state)
    call = client.may_commit(**sender)
    assert call.decision.offsets is None
    assert h.state is state
    accepted = call.error is ErrorCode.none and h.group is not None
    assert call.outcome.generation_id == (h.live.generation_id if accepted else -1)
    assert client.commit(**sender).error is call.error


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_simple_consumer_needs_no_group(in_transaction: bool) -> None:
    """OC1, TO1: unlike a commit that is stored here it creates no group; upstream has it."""
    h = Harness()
    call = h.dynamic("simple").may_commit(in_transaction=in_transaction)
    assert call.outcome == AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=-1)
    assert h.group is None
    assert not h.events


@pytest.mark.parametrize("stage", [stable, preparing])
def test_an_accepted_commit_keeps_the_session(stage: Callable[[Harness], Client]) -> None:
    """OC11, OC12: in the join phase too, with the old generation."""
    h = Harness()
    client = stage(h)
    h.sleep(1_000)
    assert client.may_commit().outcome == AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=1)
    assert h.soft.sessions[client.member_id].deadline_ms == h.now_ms + client.session_timeout_ms


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_process_that_lost_its_instance_id_is_fenced_and_noted(in_transaction: bool) -> None:
    """OC7, TO3, S16: with both hosts, as for a commit that is stored here."""
    h = Harness()
    old = stable(h)
    old.restarted(host="/10.0.0.2").join()
    call = old.may_commit(in_transaction=in_transaction)
    assert call.outcome == AuthorizeCommitOutcome(error=ErrorCode.fenced_instance_id)
    assert story(call.events) == [(MemberFenced, Cause.INSTANCE_FENCED)]


# ---- TxnOffsetCommit -----------------------------------------------------------------------------


def ask(client: Client, **sender: Any) -> Call[AuthorizeCommitOutcome]:
    return client.may_commit(in_transaction=True, **sender)


def test_a_transaction_of_a_generation_in_an_unknown_group_is_refused() -> None:
    """TO1: 22 in all versions, where OffsetCommit has 69 from v9 on."""
    h = Harness()
    call = ask(h.dynamic(), generation_id=0, unknown_group_error=ErrorCode.group_id_not_found)
    assert call.error is ErrorCode.illegal_generation
    assert h.group is None


def test_a_transaction_outside_group_management_in_an_empty_group_is_accepted() -> None:
    """TO2: ids are not checked; those of a generation are."""
    h = Harness()
    a = empty(h)
    ghost = {"member_id": MemberId("ghost"), "group_instance_id": GroupInstanceId("x")}
    assert ask(a, generation_id=-1, **ghost).outcome == AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=2)
    assert ask(a).error is ErrorCode.unknown_member_id


def test_all_ids_of_a_transaction_are_checked() -> None:
    """TO3: member and instance before generation, as for OffsetCommit."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    assert ask(a).outcome == AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=1)
    assert ask(a, group_instance_id=None).error is ErrorCode.none
    assert ask(a, generation_id=-1).error is ErrorCode.illegal_generation
    assert ask(a, generation_id=7).error is ErrorCode.illegal_generation
    assert ask(a, member_id=MemberId("ghost"), group_instance_id=None).error is ErrorCode.unknown_member_id
    assert ask(a, **(NOBODY | {"member_id": MemberId("ghost")})).error is ErrorCode.unknown_member_id
    assert ask(a, **(NOBODY | {"generation_id": 1})).error is ErrorCode.unknown_member_id
    assert ask(a, **(NOBODY | {"group_instance_id": GroupInstanceId("x")})).error is ErrorCode.unknown_member_id
    assert ask(a, **(NOBODY | {"group_instance_id": a.instance})).error is ErrorCode.fenced_instance_id
    assert ask(a, member_id=b.member_id, generation_id=7).error is ErrorCode.fenced_instance_id


@pytest.mark.parametrize("state", STAGES, ids=str)
def test_a_transaction_without_member_ids_is_accepted(state: GroupState | None) -> None:
    """TO4: below v3 there is no member field; with or without members in the group."""
    h, client = staged(state)
    assert ask(client, **NOBODY).error is ErrorCode.none
    assert h.state is state


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_a_transaction_is_not_held_up_by_a_rebalance(state: GroupState) -> None:
    """TO5: no 27 in the sync phase; wrong ids are refused there, too."""
    _, client = staged(state)
    assert ask(client).outcome == AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=1)
    assert ask(client, generation_id=0).error is ErrorCode.illegal_generation
    assert ask(client, member_id=MemberId("ghost"), group_instance_id=None).error is ErrorCode.unknown_member_id


@pytest.mark.parametrize("stage", [stable, preparing, completing])
def test_a_transaction_keeps_no_session(stage: Callable[[Harness], Client]) -> None:
    """TO6: unlike OffsetCommit it does not refresh the member's session."""
    h = Harness()
    client = stage(h)
    deadline_ms = h.soft.sessions[client.member_id].deadline_ms
    h.sleep(1_000)
    call = ask(client)
    assert (call.error, call.decision.refreshed_session) == (ErrorCode.none, None)
    assert h.soft.sessions[client.member_id].deadline_ms == deadline_ms
