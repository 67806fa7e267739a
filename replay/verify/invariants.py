"""The invariants of a group as its events make it, and of each change of its own record.

The numbers are those of `events/state.py`, the letters those of the catalogue of rules. Here for `verify`; the tests of
the rules ask the same after every command.
"""

from collections.abc import Iterator

from muster.coordinator.group.transitions import VALID_PREVIOUS_STATES
from muster.events.events import (
    AnyGroupEvent,
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    RebalanceStarted,
)
from muster.events.state import NO_GENERATION, Group, GroupImage, GroupState, MemberRole

_ENTERED_BY: dict[GroupState, type[AnyGroupEvent]] = {
    GroupState.PREPARING_REBALANCE: RebalanceStarted,
    GroupState.COMPLETING_REBALANCE: JoinPhaseCompleted,
    GroupState.STABLE: GroupStabilized,
    GroupState.EMPTY: GroupEmptied,
    GroupState.DEAD: GroupDeleted,
}
_SETTLED = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def broken_invariants(group: Group) -> Iterator[str]:
    """The numbered invariants that do not hold, each with what is wrong."""
    yield from _of_members(group)
    yield from _of_registrations(group)
    yield from _of_leader(group)
    yield from _of_assignments(group)


def _of_members(group: Group) -> Iterator[str]:
    members = group.members
    if any(member.member_id != member_id for member_id, member in members.items()):
        yield "1: a member stands under another's id"
    static_members = [m for m in members.values() if m.group_instance_id is not None]
    static = {m.group_instance_id: m.member_id for m in static_members}
    if group.instances != static:
        yield "2: the instance ids are not those of the static members"
    if len(static) != len(static_members):
        yield "2: two members have one instance id"
    if group.state in (GroupState.EMPTY, GroupState.DEAD) and members:
        yield f"4: {group.state.value} with {len(members)} members"


def _of_registrations(group: Group) -> Iterator[str]:
    for instance, registration in group.registrations.items():
        if registration.group_instance_id != instance:
            yield "7: a registration stands under another instance id"
    if group.registrations.keys() & group.instances.keys():
        yield "7: a member's instance id is registered still"


def _of_leader(group: Group) -> Iterator[str]:
    image, members = group.image, group.members
    if members and image.leader_id not in members:
        yield f"3: the leader {image.leader_id} is no member"
    if members and image.emptied_by is not None:
        yield "10: members, and a cause for which the group is empty"
    if not members and image.leader_id is not None:
        yield f"3: a leader {image.leader_id}, and no member"
    if image.state in _SETTLED:
        leader = members.get(image.leader_id) if image.leader_id is not None else None
        if leader is None or leader.is_inactive:
            yield f"9: {image.state.value} without an active leader"
    if image.state not in (GroupState.STABLE, GroupState.PREPARING_REBALANCE) and any(
        member.role is MemberRole.CALLED for member in members.values()
    ):
        yield f"9: a standby is called in {image.state.value}"


def _of_assignments(group: Group) -> Iterator[str]:
    image, members = group.image, group.members.values()
    if image.state in (GroupState.EMPTY, GroupState.DEAD) and image.protocol_name is not None:
        yield f"4: {image.state.value} with the protocol {image.protocol_name}"
    if image.departures_gathered and image.state is not GroupState.STABLE:
        yield f"8: departures are gathered in {image.state.value}"
    if image.departures_gathered and not any(member.retiring for member in members):
        yield "8: departures are gathered, and nobody retires"
    if any(member.assigned_generation_id > image.generation_id for member in members):
        yield "6: an assignment for a later generation"
    if image.state is GroupState.STABLE:
        if any(member.assigned_generation_id != image.generation_id for member in members):
            yield "6: Stable, and a member has no assignment for this generation"
        if image.assigned_generation_id != image.generation_id:
            yield "6: Stable, and the assignments are those of another generation"
    elif image.state is GroupState.EMPTY:
        if image.assigned_generation_id != NO_GENERATION:
            yield "6: Empty, with assignments"
    elif image.state is not GroupState.PREPARING_REBALANCE and image.assigned_generation_id >= image.generation_id:
        yield f"6: {image.state.value}, with assignments for this generation"


def broken_move(before: GroupImage, event: AnyGroupEvent) -> Iterator[str]:
    """The illegal parts of the change that the event makes of the group's own record (S1, S4, S5)."""
    after = event.group
    expected = before.generation_id + isinstance(event, JoinPhaseCompleted | GroupEmptied)
    if after.generation_id != expected:
        yield f"S5: generation {after.generation_id} after {before.generation_id} with {type(event).__name__}"
    if after.state is before.state:
        if (after.previous_state, after.state_since_ms) != (before.previous_state, before.state_since_ms):
            yield "S4: another previous state, or time of entry, in the same state"
        return
    if before.state not in VALID_PREVIOUS_STATES[after.state]:
        yield f"S1: {before.state.value} to {after.state.value}"
    if after.previous_state is not before.state:
        yield f"S4: {before.state.value} before, recorded {after.previous_state.value}"
    if not isinstance(event, _ENTERED_BY[after.state]):
        yield f"S1: {after.state.value} entered by {type(event).__name__}"
