"""A group's first member, as tracked, equals the result of a full search, however its members join and leave."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.group.census import count, rank_of
from muster.events.ids import MemberId
from muster.events.state import GroupState, Member, MemberRole
from muster.events.tables import SMALL
from tests.coordinator.group.harness import Harness

ROLES = (MemberRole.ACTIVE, MemberRole.LEARNER)


def member(number: int, joined_ms: int, role: MemberRole = MemberRole.ACTIVE) -> Member:
    return Member(
        member_id=MemberId(f"m{number}"),
        group_instance_id=None,
        client_id="app",
        client_host="/127.0.0.1",
        principal="User:ANONYMOUS",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        protocols=(),
        assignment=b"",
        assigned_generation_id=0,
        joined_ms=joined_ms,
        role=role,
    )


def test_a_newcomer_that_ranks_before_others_comes_before_them() -> None:
    """After the wall clock was set back, or for members that joined in the same millisecond."""
    members = {each.member_id: each for each in (member(1, 10), member(2, 20))}
    census = count(members.values())
    assert census.oldest(members) == "m1"
    members[MemberId("m3")] = newcomer = member(3, 5)
    census.change(None, newcomer)
    assert census.oldest(members) == "m3"


def test_a_member_that_rejoins_is_ordered_by_its_new_time() -> None:
    """Everything else about it is unchanged."""
    members = {each.member_id: each for each in (member(1, 10), member(2, 20))}
    census = count(members.values())
    assert census.oldest(members) == "m1"
    before = members[MemberId("m2")]
    members[before.member_id] = after = msgspec.structs.replace(before, joined_ms=5)
    census.change(before, after)
    assert census.oldest(members) == "m2"


def test_an_admitted_member_comes_before_later_joiners() -> None:
    members = {each.member_id: each for each in (member(1, 10), member(2, 20), member(3, 5, MemberRole.LEARNER))}
    census = count(members.values())
    assert census.oldest(members) == "m1"
    learner = members[MemberId("m3")]
    members[learner.member_id] = active = msgspec.structs.replace(learner, role=MemberRole.ACTIVE)
    census.change(learner, active)
    assert census.oldest(members) == "m3"


def test_a_member_that_is_replaced_keeps_its_place_under_its_new_id() -> None:
    """A static member's restart: all ranking fields are unchanged, and it is still found."""
    members = {each.member_id: each for each in (member(1, 10), member(2, 20))}
    census = count(members.values())
    assert census.oldest(members) == "m1"
    before = members.pop(MemberId("m1"))
    members[MemberId("m9")] = after = msgspec.structs.replace(before, member_id=MemberId("m9"))
    census.change(before, after)
    assert census.oldest(members) == "m9"
    assert census == count(members.values())


changes = st.lists(st.tuples(st.integers(0, 5), st.none() | st.tuples(st.integers(0, 3), st.sampled_from(ROLES))))


@given(changes=changes)
def test_the_first_member_is_the_first_of_all(changes: list[tuple[int, tuple[int, MemberRole] | None]]) -> None:
    """After any sequence of members joining, leaving or being replaced."""
    members: dict[MemberId, Member] = {}
    census = count(())
    for number, becomes in changes:
        before = members.pop(MemberId(f"m{number}"), None)
        after = None if becomes is None else member(number, *becomes)
        if after is not None:
            members[after.member_id] = after
        census.change(before, after)
        assert census.oldest(members) == (min(members.values(), key=rank_of).member_id if members else None)
        assert census == count(members.values())


def test_a_small_group_keeps_its_census_while_it_rebalances_and_no_longer() -> None:
    """At rest it would be memory for each of many groups; a large group would have to be recounted each time."""
    h = Harness()
    clients = h.form(h.static("a"), h.static("b"))
    kept = [h.soft.census is not None]
    h.sync_all(*clients)
    assert h.state is GroupState.STABLE
    assert [*kept, h.soft.census is not None] == [True, False]
    large = Harness()
    large.stable_group(*(large.static(f"{number}") for number in range(SMALL + 1)))
    assert large.soft.census is not None
    assert large.soft.census.size == SMALL + 1
