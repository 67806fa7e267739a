"""Committing and deleting offsets: accepted or refused (sections OC, OD), and the known bug S9."""

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import CommitOffsetsOutcome, DeleteOffsetsOutcome
from muster.events.causes import Cause
from muster.events.consumer_protocol import TOPICS_LOOKED_AT_MAX
from muster.events.events import GroupCreated
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story

ACCEPTED = CommitOffsetsOutcome(error=ErrorCode.none)
NOBODY = MemberId("")


def simple(h: Harness) -> Client:
    """A consumer without group management: generation -1, no ids."""
    return h.dynamic("simple")


# ---- OffsetCommit --------------------------------------------------------------------------------


@pytest.mark.parametrize(("member_id", "instance"), [("", None), ("whoever", "a")])
def test_simple_commit_makes_the_group(member_id: str, instance: str | None) -> None:
    """OC1, S9: whatever ids are given; the group is Empty, in generation 0, with no protocol type."""
    h = Harness()
    group_instance_id = GroupInstanceId(instance) if instance else None
    call = simple(h).commit(member_id=MemberId(member_id), group_instance_id=group_instance_id)
    assert call.outcome == ACCEPTED
    assert story(call.events) == [(GroupCreated, Cause.GROUP_CREATED)]
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, committed=(h.offset(),))
    image = h.live.image
    assert (image.state, image.generation_id, image.protocol_type) == (GroupState.EMPTY, 0, None)


@pytest.mark.parametrize("error", [ErrorCode.group_id_not_found, ErrorCode.illegal_generation])
def test_commit_of_a_generation_in_an_unknown_group_is_refused(error: ErrorCode) -> None:
    """OC2: 69 from v9 on, 22 before."""
    h = Harness()
    call = simple(h).commit(generation_id=0, unknown_group_error=error)
    assert call.error is error
    assert call.decision.offsets is None
    assert h.group is None


def test_simple_commit_in_an_empty_group_is_accepted() -> None:
    """OC5, S9: ids are not checked; OC21: no group event is written."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    call = simple(h).commit(member_id=MemberId("ghost"), group_instance_id=GroupInstanceId("x"))
    assert call.outcome == ACCEPTED
    assert not call.events
    assert a.commit(generation_id=2).error is ErrorCode.unknown_member_id  # OC6


def test_commit_of_a_member_is_checked() -> None:
    """OC3, OC7, OC8, OC9: member and instance before generation."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    assert a.commit().outcome == ACCEPTED
    assert a.commit(group_instance_id=None).outcome == ACCEPTED
    assert a.commit(generation_id=-1).error is ErrorCode.illegal_generation
    assert a.commit(generation_id=7).error is ErrorCode.illegal_generation
    assert a.commit(member_id=MemberId("ghost"), group_instance_id=None).error is ErrorCode.unknown_member_id
    assert a.commit(group_instance_id=GroupInstanceId("x")).error is ErrorCode.unknown_member_id
    assert a.commit(member_id=b.member_id, generation_id=7).error is ErrorCode.fenced_instance_id
    assert a.commit(member_id=NOBODY, group_instance_id=None).error is ErrorCode.unknown_member_id
    assert simple(h).commit().error is ErrorCode.unknown_member_id


def test_a_commit_in_the_sync_phase_is_answered_rebalance_in_progress() -> None:
    """OC10: only if everything else is valid; it does not refresh the session."""
    h = Harness()
    (a,) = h.form(h.static("a"))
    deadline_ms = h.soft.sessions[a.member_id].deadline_ms
    h.sleep(1_000)
    assert a.commit().error is ErrorCode.rebalance_in_progress
    assert a.commit(generation_id=0).error is ErrorCode.illegal_generation
    assert h.soft.sessions[a.member_id].deadline_ms == deadline_ms


def test_commit_before_rejoining_is_accepted() -> None:
    """OC11, OC12: with the old generation, in the join phase."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    h.sleep(1_000)
    assert b.commit().outcome == ACCEPTED
    assert h.soft.sessions[b.member_id].deadline_ms == h.now_ms + b.session_timeout_ms


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    """OC14, K4: measured in characters."""
    h = Harness(offset_metadata_max_bytes=10)
    fits, too_long = h.offset(partition=0, metadata="ä" * 10), h.offset(partition=1, metadata="x" * 11)
    call = simple(h).commit(fits, too_long)
    assert call.outcome == CommitOffsetsOutcome(
        error=ErrorCode.none, refused={("orders", 1): ErrorCode.offset_metadata_too_large}
    )
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, committed=(fits,))


def test_commit_of_nothing_but_too_long_metadata_keeps_the_session() -> None:
    """OC15: nothing is stored, but the session is refreshed."""
    h = Harness(offset_metadata_max_bytes=10)
    (a,) = h.stable_group(h.static("a"))
    h.sleep(1_000)
    call = a.commit(h.offset(metadata="x" * 11))
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id)
    assert h.soft.sessions[a.member_id].deadline_ms == h.now_ms + a.session_timeout_ms


def test_offsets_are_not_judged() -> None:
    """OC16: negative ones are stored."""
    h = Harness()
    negative = msgspec.structs.replace(h.offset(), offset=-5)
    call = simple(h).commit(negative)
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, committed=(negative,))


def test_group_without_a_name_may_commit() -> None:
    """G17: the empty group id is legal for offsets, and such a group can be deleted (DL4)."""
    h = Harness(group_id="")
    assert simple(h).commit().outcome == ACCEPTED
    assert h.delete().error is ErrorCode.none


# ---- OffsetDelete --------------------------------------------------------------------------------


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    """OD1: 24 for an empty group id, 69 for an unknown group."""
    assert Harness().delete_offsets(("orders", 0)).error is ErrorCode.group_id_not_found
    assert Harness(group_id="").delete_offsets(("orders", 0)).error is ErrorCode.invalid_group_id


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    """OD3, OD8: the group stays."""
    h = Harness()
    simple(h).commit()
    call = h.delete_offsets(("orders", 0))
    assert call.outcome == DeleteOffsetsOutcome(error=ErrorCode.none)
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, deleted=(("orders", 0),))
    assert h.state is GroupState.EMPTY


def test_offsets_of_other_protocol_types_are_kept_while_there_are_members() -> None:
    """OD2: the error is 68."""
    h = Harness()
    h.stable_group(h.static("a", protocol_type="connect"))
    assert h.delete_offsets(("orders", 0)).outcome == DeleteOffsetsOutcome(error=ErrorCode.non_empty_group)


def test_subscribed_topics_are_kept() -> None:
    """OD4: those of any member; the others are deleted."""
    h = Harness()
    h.stable_group(
        h.static("a", protocols=protocols(metadata=subscription("orders"))),
        h.static("b", protocols=protocols(metadata=subscription("payments"))),
    )
    call = h.delete_offsets(("orders", 0), ("payments", 1), ("old", 2))
    assert call.outcome.refused == {
        ("orders", 0): ErrorCode.group_subscribed_to_topic,
        ("payments", 1): ErrorCode.group_subscribed_to_topic,
    }
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, deleted=(("old", 2),))


def test_undecodable_subscriptions_keep_every_topic() -> None:
    """OD5: each topic gets 86."""
    h = Harness()
    h.stable_group(h.static("a", protocols=protocols(metadata=b"x" * 60)))
    assert h.delete_offsets(("old", 0)).outcome.refused == {("old", 0): ErrorCode.group_subscribed_to_topic}


@pytest.mark.parametrize("topics_number", [TOPICS_LOOKED_AT_MAX // 2, TOPICS_LOOKED_AT_MAX // 2 + 1])
def test_more_topics_than_are_examined_keep_every_topic(topics_number: int) -> None:
    """With two different subscriptions of several members each, and after a takeover, too."""
    h = Harness()
    kinds = [subscription(*(f"{kind}{n}" for n in range(topics_number))) for kind in "xy"]
    h.stable_group(*(h.static(f"{n}", protocols=protocols(metadata=kinds[n % 2])) for n in range(4)))
    is_known = 2 * topics_number <= TOPICS_LOOKED_AT_MAX
    for _ in range(2):
        assert h.delete_offsets(("x1", 0)).outcome.refused == {("x1", 0): ErrorCode.group_subscribed_to_topic}
        assert bool(h.delete_offsets(("old", 0)).outcome.refused) is not is_known
        h.takeover()


@pytest.mark.parametrize("topics_number", [TOPICS_LOOKED_AT_MAX - 1, TOPICS_LOOKED_AT_MAX])
def test_more_topics_with_those_of_a_learner_keep_every_topic(topics_number: int) -> None:
    """It joins without a rebalance, and its topics are added to the known ones."""
    h = Harness()
    h.stable_group(h.static("a", protocols=protocols(metadata=subscription("orders"))))
    h.set(members_learner_timeout_ms="30000")
    h.static("b", protocols=protocols(metadata=subscription(*(f"x{n}" for n in range(topics_number))))).join()
    is_known = topics_number + 1 <= TOPICS_LOOKED_AT_MAX
    assert h.delete_offsets(("x1", 0)).outcome.refused == {("x1", 0): ErrorCode.group_subscribed_to_topic}
    assert bool(h.delete_offsets(("old", 0)).outcome.refused) is not is_known


def test_subscriptions_are_those_of_the_last_join_phase() -> None:
    """OD6: not those of rejoining members; before the first join phase has ended any topic may be subscribed."""
    h = Harness()
    a, b = h.static("a"), h.static("b")
    a.join()
    assert h.delete_offsets(("old", 0)).outcome.refused
    h.form(b)
    h.sync_all(a, b)
    a.join(protocols=protocols(metadata=subscription("new")))
    assert not h.delete_offsets(("new", 0)).outcome.refused
    assert h.delete_offsets(("orders", 0)).outcome.refused
    b.join()
    assert h.delete_offsets(("new", 0)).outcome.refused
