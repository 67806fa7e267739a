"""JoinGroup: its checks, refusals, and the choice of leader and protocol (sections J, K1, JE3, JS7, S8 to S10)."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.turn import NAME_CHARS_MAX, OFFERED_MAX
from muster.events.causes import Cause
from muster.events.events import (
    GroupAdvanced,
    GroupCreated,
    GroupDeleted,
    JoinRefused,
    MemberFenced,
    MemberJoined,
)
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness, story


def refusal(error: ErrorCode, member_id: str = "") -> JoinGroupOutcome:
    return JoinGroupOutcome(error=error, member_id=MemberId(member_id))


# ---- gates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused_before_the_group_is_made(timeout_ms: int) -> None:
    """K1: 26 with the member id echoed, and nothing is created."""
    h = Harness()
    call = h.static("a").join(session_timeout_ms=timeout_ms, member_id=MemberId("me"))
    assert call.outcome == refusal(ErrorCode.invalid_session_timeout, "me")
    assert h.group is None


def test_a_refusal_by_an_unknown_group_is_recorded_and_leaves_nothing() -> None:
    """Its history is all that is left to show an operator why a consumer cannot join."""
    h = Harness()
    h.static("a", protocols=protocols("range", "sticky")).join(session_timeout_ms=1)
    created, refused, deleted = h.events
    assert isinstance(created, GroupCreated)
    assert isinstance(refused, JoinRefused)
    assert isinstance(deleted, GroupDeleted)
    assert (refused.why.cause, refused.error_code) == (
        Cause.SESSION_TIMEOUT_REFUSED,
        ErrorCode.invalid_session_timeout.value,
    )
    assert (refused.protocol_type, refused.offered_protocols, refused.session_timeout_ms) == (
        "consumer",
        ("range", "sticky"),
        1,
    )
    assert h.group is None
    assert h.decisions[-1].offsets is None


def test_a_refusal_is_recorded_in_the_existing_group() -> None:
    """For any error; the group itself does not change."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.dynamic("b").join(session_timeout_ms=1)
    refused = h.events[-1]
    assert isinstance(refused, JoinRefused)
    assert (refused.why.client_id, refused.group.state) == ("b", GroupState.STABLE)
    assert a.heartbeat().error is ErrorCode.none


def test_the_protocols_of_a_refused_join_are_recorded_up_to_a_limit() -> None:
    """A client may send any protocol names."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.dynamic("b", protocols=protocols(*(f"{number}-{'x' * 1000}" for number in range(100)))).join()
    refused = h.events[-1]
    assert isinstance(refused, JoinRefused)
    assert len(refused.offered_protocols) == OFFERED_MAX
    assert {len(name) for name in refused.offered_protocols} == {NAME_CHARS_MAX}


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_session_timeout_on_the_bounds_is_accepted(timeout_ms: int) -> None:
    """K1: both bounds are inclusive."""
    assert Harness().static("a").join(session_timeout_ms=timeout_ms).parked


@pytest.mark.parametrize(("size", "is_taken"), [(95, True), (96, False)])
def test_metadata_of_a_member_has_a_bound_over_all_its_protocols(size: int, is_taken: bool) -> None:
    """RE13: -1, as for what is too large to be stored; nothing is created."""
    h = Harness(member_metadata_max_bytes=200)
    client = h.static("a", protocols=protocols("range", metadata=bytes(95)) + protocols("other", metadata=bytes(size)))
    call = client.join(member_id=MemberId("") if is_taken else MemberId("me"))
    assert call.parked is is_taken
    if not is_taken:
        assert call.outcome == refusal(ErrorCode.unknown_server_error, "me")
        assert h.group is None


def test_empty_group_id_is_refused() -> None:
    """G17: 24."""
    assert Harness(group_id="").static("a").join().error is ErrorCode.invalid_group_id


@pytest.mark.parametrize("instance", [None, "a"])
def test_unknown_group_and_known_member_id_is_refused(instance: str | None) -> None:
    """J1, ST4: 25 with the id echoed, with an instance id too, and the group is not made."""
    h = Harness()
    call = h.dynamic().join(
        member_id=MemberId("ghost"), group_instance_id=GroupInstanceId(instance) if instance else None
    )
    assert call.outcome == refusal(ErrorCode.unknown_member_id, "ghost")
    assert h.group is None
    assert not h.events


def test_unknown_group_and_new_dynamic_member_makes_the_group() -> None:
    """J2, J3, JE1: the group is created and stays, although the join yields only a member id."""
    h = Harness()
    call = h.dynamic().join()
    assert call.outcome == refusal(ErrorCode.member_id_required, "consumer-1")
    assert story(call.events) == [(GroupCreated, Cause.GROUP_CREATED)]
    assert h.state is GroupState.EMPTY
    assert h.live.generation_id == 0
    assert h.soft.join_deadline_ms is None


@pytest.mark.parametrize("lacking", [{"protocol_type": ""}, {"protocols": ()}])
def test_no_protocols_in_an_empty_group_is_refused(lacking: dict[str, object]) -> None:
    """J8, S9: 23 with an empty member id; the group stays (J2)."""
    h = Harness()
    call = h.static("a").join(**lacking)
    assert call.outcome == refusal(ErrorCode.inconsistent_group_protocol)
    assert story(call.events) == [
        (GroupCreated, Cause.GROUP_CREATED),
        (JoinRefused, Cause.PROTOCOL_MISMATCH),
    ]


@pytest.mark.parametrize("other", [{"protocol_type": "connect"}, {"protocols": protocols("sticky")}, {"protocols": ()}])
def test_other_protocols_than_the_group_are_refused(other: dict[str, object]) -> None:
    """J7: 23, an empty member id for a new member, and the state is unchanged."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.static("b").join(**other)
    assert call.outcome == refusal(ErrorCode.inconsistent_group_protocol)
    assert h.state is GroupState.STABLE


def test_a_known_member_with_unsupported_protocols_is_refused_and_kept() -> None:
    """JP5, J7: 23 with the id echoed, and the registration stays as it was."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    before = h.live.members[b.member_id]
    assert b.join(protocols=protocols("sticky")).outcome == refusal(ErrorCode.inconsistent_group_protocol, b.member_id)
    a.join()
    assert b.join(protocols=protocols("sticky")).error is ErrorCode.inconsistent_group_protocol
    assert h.live.members[b.member_id] == before


def test_no_protocols_in_a_join_phase_without_members_is_refused() -> None:
    """S9: with no members to agree with, the join still needs a protocol."""
    h = Harness()
    a = h.static("a")
    a.join(proposed_member_id=MemberId("a-0"))
    a.member_id = MemberId("a-0")
    a.leave()
    assert h.state is GroupState.PREPARING_REBALANCE
    assert h.static("b").join(protocols=()).error is ErrorCode.inconsistent_group_protocol
    assert h.static("b").join(protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert h.static("b").join().parked


def test_pending_members_do_not_count_for_protocols() -> None:
    """S9: a pending id supports none."""
    h = Harness()
    h.stable_group(h.static("a"))
    assert h.dynamic().join().error is ErrorCode.member_id_required
    assert h.static("b").join().parked


# ---- unknown ids ---------------------------------------------------------------------------------


def test_unknown_id_in_an_empty_group_is_refused() -> None:
    """JE3: 25, the id echoed."""
    h = Harness()
    h.dynamic().join()
    call = h.dynamic().join(member_id=MemberId("ghost"))
    assert call.outcome == refusal(ErrorCode.unknown_member_id, "ghost")
    assert story(call.events) == [(JoinRefused, Cause.UNKNOWN_MEMBER)]


def test_unknown_id_in_a_stable_group_is_refused_with_the_id_echoed() -> None:
    """JS7: 25."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.dynamic().join(member_id=MemberId("ghost"))
    assert call.outcome == refusal(ErrorCode.unknown_member_id, "ghost")


# ---- refusals are written, with a limit ---------------------------------------------------------


def test_refusals_are_written_up_to_a_limit() -> None:
    """Ten in a minute; the next one written has the number of suppressed ones."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=1_800_000))
    ghost = h.dynamic()
    written = [ghost.join(member_id=MemberId("ghost")).events for _ in range(13)]
    assert [len(events) for events in written] == [1] * 10 + [0] * 3
    h.sleep(60_000)
    (refused,) = ghost.join(member_id=MemberId("ghost")).events
    assert isinstance(refused, JoinRefused)
    assert (refused.error_code, refused.suppressed) == (25, 3)
    (refused,) = ghost.join(member_id=MemberId("ghost")).events
    assert isinstance(refused, JoinRefused)
    assert refused.suppressed == 0


def test_refusals_that_are_not_written_are_counted_for_their_own_client() -> None:
    """A client that was refused once in vain is not blamed for the refusals of another one."""
    h = Harness()
    h.stable_group(h.static("a", session_timeout_ms=1_800_000))
    stubborn, other = h.dynamic(host="/10.0.0.1"), h.dynamic(host="/10.0.0.2")
    for _ in range(13):
        stubborn.join(member_id=MemberId("ghost"))
    other.join(member_id=MemberId("ghost"))
    h.sleep(60_000)
    refused = [*other.join(member_id=MemberId("ghost")).events, *stubborn.join(member_id=MemberId("ghost")).events]
    assert [each.suppressed for each in refused if isinstance(each, JoinRefused)] == [1, 3]


def test_a_duel_hides_no_refused_join() -> None:
    """Fences and refused joins have limits of their own."""
    h = Harness()
    (first,) = h.stable_group(h.static("a", session_timeout_ms=1_800_000))
    first.restarted().join()
    for _ in range(20):
        assert first.heartbeat().error is ErrorCode.fenced_instance_id
    (refused,) = h.dynamic().join(member_id=MemberId("ghost")).events
    assert isinstance(refused, JoinRefused)


def test_fenced_join_names_both_processes() -> None:
    """S16, ST3: 82 with the id echoed; the event has the current holder of the instance id."""
    h = Harness()
    h.stable_group(h.static("a"))
    call = h.static("a", host="/10.0.0.66").join(member_id=MemberId("a-0"), reason="why not")
    assert call.outcome == refusal(ErrorCode.fenced_instance_id, "a-0")
    (fenced,) = call.events
    assert isinstance(fenced, MemberFenced)
    assert (fenced.current_member_id, fenced.current_client_host) == ("a-1", "/10.0.0.1")
    assert (fenced.why.member_id, fenced.why.client_host, fenced.why.client_reason) == ("a-0", "/10.0.0.66", "why not")


# ---- leader, protocol ----------------------------------------------------------------------------


def test_protocol_with_most_votes_is_chosen_among_those_all_support() -> None:
    """S10: each member votes for the first in its list that all members support."""
    h = Harness()
    h.form(
        h.static("a", protocols=protocols("only-a", "range", "sticky")),
        h.static("b", protocols=protocols("sticky", "range")),
        h.static("c", protocols=protocols("sticky", "range")),
    )
    assert h.live.image.protocol_name == "sticky"


def test_a_tied_vote_goes_to_the_member_that_joined_first() -> None:
    """S10: Kafka breaks ties arbitrarily, here the choice is stable."""
    h = Harness()
    a = h.static("a", protocols=protocols("range", "sticky"))
    b = h.static("b", protocols=protocols("sticky", "range"))
    a.join()
    h.sleep(1)
    h.form(b)
    assert h.live.image.protocol_name == "range"


def test_followers_get_no_members_and_the_leader_gets_all() -> None:
    """J16, S8: with instance ids, whatever the leader's version; W13: all members get the protocol type."""
    h = Harness()
    a, b = h.form(h.dynamic("old", version=3), h.static("b"))
    assert a.joined is not None
    assert b.joined is not None
    assert [m.group_instance_id for m in a.joined.members] == ["b", None]
    assert b.joined.members == ()
    assert (a.joined.leader_id, b.joined.leader_id) == (a.member_id, a.member_id)
    assert (a.joined.protocol_type, b.joined.protocol_type) == ("consumer", "consumer")


@pytest.mark.parametrize("metadata", [b"x" * 60, b"\0\0" + b"\xff" * 8], ids=["garbage", "null arrays"])
def test_undecodable_metadata_refuses_no_member(metadata: bytes) -> None:
    """R16: metadata is opaque; the group forms, and other members join it later."""
    h = Harness()
    garbage = h.static("a", protocols=protocols(metadata=metadata))
    a, b = h.stable_group(garbage, h.static("b"))
    waiting = h.static("c").join()
    a.join()
    b.join()
    assert waiting.outcome.generation_id == 2
    assert h.soft.subscribed_topics is None


def test_group_advanced_ends_a_transition_that_touches_members_alone() -> None:
    """A transition always rewrites the group's own record, even if it only changes members."""
    h = Harness()
    a, _b = h.stable_group(h.static("a"), h.static("b"))
    a.join()
    assert story(h.static("c").join().events) == [
        (MemberJoined, Cause.NEW_STATIC_MEMBER),
        (GroupAdvanced, Cause.NEW_STATIC_MEMBER),
    ]
