"""One event applied to one group; missing previous events are never an error."""

import msgspec
import pytest
from hypothesis import given

from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    AnyGroupEvent,
    AnyMemberEvent,
    GroupConfigured,
    GroupCreated,
    GroupDeleted,
    GroupEvent,
    GroupStabilized,
    InstanceRegistered,
    MemberAssigned,
    MemberEvent,
    MemberJoined,
    MemberRemoved,
    StaticMemberReplaced,
    Why,
)
from muster.events.evolve import evolve, first, is_gone, remove_member
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import (
    NO_GENERATION,
    NOT_CONFIGURED,
    Group,
    GroupConfig,
    GroupImage,
    GroupState,
    Member,
    Protocol,
    Registration,
    new_group,
)
from tests.events.strategies import group_and_member_events

WHY = Why(cause=Cause.NEW_STATIC_MEMBER, arrived_ms=1, decided_ms=2)
IMAGE = new_group(GroupId("orders"), incarnation=1, wall_ms=0).image


def member(member_id: str, instance: str | None = None) -> Member:
    return Member(
        member_id=MemberId(member_id),
        group_instance_id=GroupInstanceId(instance) if instance is not None else None,
        client_id="app",
        client_host="/10.0.0.1",
        principal="User:app",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(Protocol(name="range", metadata=b"m"),),
        assignment=b"mine",
        assigned_generation_id=3,
        joined_ms=5,
    )


def of_group(
    seq: int, *, incarnation: int = 1, image: GroupImage = IMAGE, event_type: type[AnyGroupEvent] = GroupCreated
) -> AnyGroupEvent:
    return event_type(  # type: ignore[call-arg]
        group_id=GroupId("orders"), incarnation=incarnation, seq=seq, owner_epoch=0, group=image, why=WHY
    )


def of_member(
    seq: int, who: Member, *, incarnation: int = 1, event_type: type[AnyMemberEvent] = MemberJoined, **fields: object
) -> AnyMemberEvent:
    return event_type(
        group_id=GroupId("orders"),
        incarnation=incarnation,
        seq=seq,
        owner_epoch=0,
        member=who,
        last_seen_ms=1,
        longest_silence_ms=0,
        why=WHY,
        **fields,  # type: ignore[arg-type]
    )


def of_everything(seq: int) -> list[AnyEvent]:
    """One event of each thing that a group can have besides its image: a member, a registration, configs."""
    of_orders = {"group_id": GroupId("orders"), "incarnation": 1, "owner_epoch": 0, "why": WHY}
    registration = Registration(group_instance_id=GroupInstanceId("b"), registered_ms=5)
    return [
        of_member(seq, member("a-1", "a")),
        InstanceRegistered(**of_orders, seq=seq + 1, registration=registration),  # type: ignore[arg-type]
        GroupConfigured(**of_orders, seq=seq + 2, config=GroupConfig(target_group_size=3)),  # type: ignore[arg-type]
    ]


def group_of(*events: AnyEvent) -> Group:
    return evolve(new_group(GroupId("orders"), incarnation=1, wall_ms=0), events)


def test_given_group_stays_as_it_is() -> None:
    """A new value is made."""
    before = group_of(of_group(1), of_member(2, member("a-1", "a")))
    copy = before.copy()
    after = evolve(before, [of_member(3, member("a-2", "a")), of_member(4, member("b-1"))])
    assert before == copy
    assert after.members.keys() == {"a-2", "b-1"}


def test_member_event_carries_the_whole_member() -> None:
    """The instance id of a static member leads to its member id; seq is that of the last event."""
    group = group_of(of_member(7, member("a-1", "a")), of_member(8, member("b-1")))
    assert group.members == {"a-1": member("a-1", "a"), "b-1": member("b-1")}
    assert group.instances == {"a": "a-1"}
    assert group.seq == 8


def test_replacement_takes_the_old_member_out() -> None:
    """Whatever was under the instance id before, or nothing."""
    replacement = of_member(
        3,
        member("a-2", "a"),
        event_type=StaticMemberReplaced,
        replaced_member_id=MemberId("a-1"),
        replaced_client_id="app",
        replaced_client_host="/10.0.0.1",
    )
    for before in ((), (of_member(2, member("a-1", "a")),), (of_member(2, member("a-0", "a")),)):
        group = group_of(*before, replacement)
        assert group.members.keys() == {"a-2"}
        assert group.instances == {"a": "a-2"}


@pytest.mark.parametrize("instance", [None, "a"])
def test_removed_member_is_gone(instance: str | None) -> None:
    """Under its instance id too; removing an unknown member is not an error (L1)."""
    removed = of_member(3, member("a-1", instance), event_type=MemberRemoved)
    for before in ((of_member(2, member("a-1", instance)),), ()):
        group = group_of(*before, removed)
        assert (dict(group.members), dict(group.instances), group.seq) == ({}, {}, 3)


def test_removal_by_instance_removes_any_member_with_it() -> None:
    """A tombstone knows the instance id alone."""
    group = group_of(of_member(2, member("a-9", "a")), of_member(3, member("b-1", "b")))
    remove_member(group, MemberId(""), GroupInstanceId("a"))
    remove_member(group, MemberId(""), GroupInstanceId("ghost"))
    assert group.members.keys() == {"b-1"}


def test_group_event_carries_the_whole_image() -> None:
    """Members stay."""
    image = msgspec.structs.replace(IMAGE, state=GroupState.STABLE, generation_id=3, leader_id=MemberId("a-1"))
    group = group_of(of_member(2, member("a-1", "a")), of_group(3, image=image, event_type=GroupStabilized))
    assert group.image == image
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, 3, "a-1")
    assert group.members.keys() == {"a-1"}


def test_assignment_counts_for_its_generation_alone() -> None:
    """Invariant 6: one group record invalidates all assignments."""
    who = member("a-1", "a")
    valid = msgspec.structs.replace(IMAGE, assigned_generation_id=3)
    assert group_of(of_member(2, who), of_group(3, image=valid)).assignment_of(who) == b"mine"
    invalid = msgspec.structs.replace(IMAGE, assigned_generation_id=NO_GENERATION)
    assert group_of(of_member(2, who), of_group(3, image=invalid)).assignment_of(who) == b""


def test_deleted_group_is_gone() -> None:
    """Nothing of it is kept."""
    dead = msgspec.structs.replace(IMAGE, state=GroupState.DEAD)
    group = group_of(*of_everything(2), of_group(5, image=dead, event_type=GroupDeleted))
    assert is_gone(group)
    assert (dict(group.members), dict(group.instances), dict(group.registrations)) == ({}, {}, {})
    assert group.config == NOT_CONFIGURED
    assert not is_gone(group_of(of_group(1)))


def test_next_incarnation_begins_with_nothing() -> None:
    """With whichever event of it was kept first."""
    old = group_of(of_group(8), *of_everything(9))
    assert (set(old.instances), set(old.registrations)) == ({"a"}, {"b"})
    assert old.config != NOT_CONFIGURED
    for event in (of_group(1, incarnation=2), of_member(1, member("b-1"), incarnation=2)):
        group = evolve(old, [event])
        assert (group.incarnation, group.seq) == (2, 1)
        assert "a-1" not in group.members
        assert (dict(group.instances), dict(group.registrations), group.config) == ({}, {}, NOT_CONFIGURED)


def test_leftover_of_an_earlier_incarnation_changes_nothing() -> None:
    """seq included."""
    group = group_of(of_group(5, incarnation=4))
    leftover = of_member(99, member("a-1", "a"), incarnation=3)
    assert evolve(group, [leftover]) == group


def test_event_with_no_predecessor_makes_the_group() -> None:
    """Compaction may have left only it."""
    group = first(of_member(42, member("a-1", "a"), incarnation=9, event_type=MemberAssigned))
    assert (group.group_id, group.incarnation, group.seq) == ("orders", 9, 42)
    assert group.members == {"a-1": member("a-1", "a")}
    assert group.image == new_group(GroupId("orders"), incarnation=9, wall_ms=0).image


@given(group_and_member_events())
def test_any_event_can_be_the_first(event: AnyEvent) -> None:
    """No event is a delta."""
    group = first(event)
    assert (group.group_id, group.incarnation, group.seq) == (event.group_id, event.incarnation, event.seq)
    if isinstance(event, GroupEvent):
        assert group.image == event.group
    if isinstance(event, MemberEvent):
        assert (event.member.member_id in group.members) is not isinstance(event, MemberRemoved)
    assert evolve(group, [event]) == group


def test_metadata_for_a_protocol_the_member_does_not_offer_is_empty() -> None:
    """And for none at all."""
    assert member("a").metadata_for("range") == b"m"
    assert member("a").metadata_for("sticky") == member("a").metadata_for(None) == b""
