"""DescribeGroups and DeleteGroups (sections DG, DL)."""

import typing

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyCommand, AnyRequest, EndJoinPhase
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.outcomes import (
    AuthorizeCommitOutcome,
    CommitOffsetsOutcome,
    DeleteGroupOutcome,
    DeleteOffsetsOutcome,
    DescribedMember,
    DescribeGroupOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    ReleaseGroupOutcome,
    Reply,
    Superseded,
    SyncGroupOutcome,
)
from muster.coordinator.group.soft_state import SoftState
from muster.events.causes import Cause
from muster.events.events import GroupCreated, GroupDeleted
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story


def test_unknown_group_is_shown_as_dead() -> None:
    """DG1: with error 69, which versions below 6 omit."""
    assert Harness().describe() == DescribeGroupOutcome(error=ErrorCode.group_id_not_found, state=GroupState.DEAD)


def test_stable_group_is_shown_whole() -> None:
    """DG2: metadata for the selected protocol, assignments, hosts."""
    h = Harness()
    h.stable_group(h.static("a", protocols=protocols("range", "sticky")))
    assert h.describe() == DescribeGroupOutcome(
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol_name="range",
        members=(
            DescribedMember(
                member_id=MemberId("a-1"),
                group_instance_id=GroupInstanceId("a"),
                client_id="app-a",
                client_host="/10.0.0.1",
                metadata=subscription("orders"),
                assignment=b"a-1@1",
            ),
        ),
    )


def test_rebalancing_group_is_shown_without_protocol_and_metadata() -> None:
    """DG3: in both phases."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    for client in (a, b):
        client.join()
        shown = h.describe()
        assert shown.state is h.state
        assert (shown.protocol_type, shown.protocol_name) == ("consumer", "")
        assert {member.metadata for member in shown.members} == {b""}
    assert h.state is GroupState.COMPLETING_REBALANCE


def test_empty_group_is_shown_with_its_type() -> None:
    """DG4, DG6: pending members are not visible."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    h.dynamic().join()
    assert h.describe() == DescribeGroupOutcome(state=GroupState.EMPTY, protocol_type="consumer")


def test_unknown_group_cannot_be_deleted() -> None:
    """DL1: the error is 69."""
    assert Harness().delete().outcome == DeleteGroupOutcome(error=ErrorCode.group_id_not_found)


def test_group_with_members_cannot_be_deleted() -> None:
    """DL1: in any state."""
    h = Harness()
    a = h.static("a")
    a.join()
    assert h.delete().error is ErrorCode.non_empty_group
    h.form(h.static("b"))
    assert h.delete().error is ErrorCode.non_empty_group
    h.sync_all(a)
    assert h.delete().error is ErrorCode.non_empty_group
    assert h.state is GroupState.STABLE


def test_empty_group_is_deleted_with_its_offsets() -> None:
    """DL1, DL2, DL3: nothing is left, and the same id starts again in a higher incarnation."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    incarnation = h.live.incarnation
    call = h.delete()
    assert call.error is ErrorCode.none
    assert story(call.events) == [(GroupDeleted, Cause.GROUP_DELETED)]
    assert call.events[0].why.client_host == "/10.0.0.9"
    assert call.decision.offsets == OffsetsChange(group_id=h.group_id, all_deleted=True)
    assert (h.group, h.soft) == (None, SoftState())
    assert h.describe().state is GroupState.DEAD
    again = h.dynamic().join()
    assert story(again.events) == [(GroupCreated, Cause.GROUP_CREATED)]
    assert (h.live.generation_id, h.live.seq) == (0, 1)
    assert h.live.incarnation > incarnation


def test_a_group_recreated_in_the_same_millisecond_has_a_higher_incarnation() -> None:
    """(group_id, incarnation, seq) identifies an event for ever."""
    h = Harness()
    simple = h.dynamic()
    for _ in range(3):
        simple.commit(generation_id=-1)
        h.delete()
    numbers = [(event.incarnation, event.seq) for event in h.events]
    assert len(set(numbers)) == len(numbers) == 6
    assert numbers == sorted(numbers)


# ---- answers when nothing can be decided ---------------------------------------------------------


@pytest.mark.parametrize(
    ("send", "outcome"),
    [
        (lambda a: a.join(), JoinGroupOutcome(error=ErrorCode.not_coordinator, member_id=MemberId("me"))),
        (lambda a: a.sync(), SyncGroupOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.heartbeat(), HeartbeatOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.leave(), LeaveGroupOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.commit(), CommitOffsetsOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.harness.delete_offsets(), DeleteOffsetsOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.harness.delete(), DeleteGroupOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.may_commit(), AuthorizeCommitOutcome(error=ErrorCode.not_coordinator)),
        (lambda a: a.harness.release(), ReleaseGroupOutcome(error=ErrorCode.not_coordinator)),
    ],
)
def test_failed_request_is_answered_in_its_own_form(send: object, outcome: Outcome) -> None:
    """W12, W14, LD12: a join with its own member id."""
    h = Harness()
    a: Client = h.dynamic(member_id=MemberId("me"))
    command = send(a).command  # type: ignore[operator]
    assert error_replies(command, ErrorCode.not_coordinator) == (Reply(command.caller.request_id, outcome),)


def test_failed_description_is_answered_in_its_own_form() -> None:
    """G19: with the current error."""
    h = Harness()
    h.describe()
    (command,) = (call.command for call in h.calls.values())
    (reply,) = error_replies(command, ErrorCode.coordinator_load_in_progress)
    assert isinstance(reply.outcome, DescribeGroupOutcome)
    assert reply.outcome.error is ErrorCode.coordinator_load_in_progress


def test_every_request_can_fail() -> None:
    """Each sender gets the error, whatever the request."""
    caller = Harness().caller(0, 0)
    for kind in typing.get_args(AnyRequest):
        request = kind(**dict.fromkeys(kind.__struct_fields__) | {"caller": caller})
        (reply,) = error_replies(request, ErrorCode.not_coordinator)
        assert not isinstance(reply.outcome, Superseded)
        assert reply.outcome.error is ErrorCode.not_coordinator


def test_a_failed_deadline_sends_no_response() -> None:
    """No client sent it."""
    command: AnyCommand = EndJoinPhase(group_id=Harness().group_id, due_ms=0)
    assert error_replies(command, ErrorCode.not_coordinator) == ()
