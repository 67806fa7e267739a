"""The invariants of a group that results from its events, and of each change of the group's own record.

Invariants are numbered as in `events/state.py`; rule ids like S1 are those of the catalogue of rules. Used by `verify`,
and by the rules' tests after every command.

If all invariants held and a decision changed neither state nor generation, only the members that it touched can break
one, so the others, maybe thousands, are not checked again (`changed_members`).
"""

from collections.abc import Collection, Iterable, Iterator

from muster.coordinator.group.transitions import VALID_PREVIOUS_STATES
from muster.events.events import (
    AnyEvent,
    AnyGroupEvent,
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberEvent,
    RebalanceStarted,
    StaticMemberReplaced,
)
from muster.events.ids import MemberId
from muster.events.state import NO_GENERATION, Group, GroupImage, GroupState, Member, MemberRole

_ENTERED_BY: dict[GroupState, type[AnyGroupEvent]] = {
    GroupState.PREPARING_REBALANCE: RebalanceStarted,
    GroupState.COMPLETING_REBALANCE: JoinPhaseCompleted,
    GroupState.STABLE: GroupStabilized,
    GroupState.EMPTY: GroupEmptied,
    GroupState.DEAD: GroupDeleted,
}
_SETTLED = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


def broken_invariants(group: Group) -> Iterator[str]:
    """Yield the numbered invariants that do not hold, each with what is wrong."""
    members = group.members.values()
    yield from _of_members(group)
    yield from _of_registrations(group)
    yield from _of_leader(group, members)
    yield from _of_assignments(group, members)


def invariants_broken_by(before: Group, parts: Iterable[AnyEvent], after: Group) -> Iterator[str]:
    """Like `broken_invariants`, for the group `after` these events, given that all invariants held for the group
    `before`.
    """
    one, other = before.image, after.image
    if (one.state, one.generation_id) != (other.state, other.generation_id):
        yield from broken_invariants(after)
        return
    changed = changed_members(before, parts)
    members = [after.members[each] for each in changed if each in after.members]
    yield from _of_changed(before, changed, after)
    yield from _of_registrations(after)
    yield from _of_leader(after, members)
    yield from _of_assignments(after, members)


def changed_members(before: Group, parts: Iterable[AnyEvent]) -> set[MemberId]:
    """Return the ids under which the events may have added, changed or removed a member."""
    changed: set[MemberId] = set()
    for event in parts:
        if not isinstance(event, MemberEvent):
            continue
        instance = event.member.group_instance_id
        changed.add(event.member.member_id)
        if isinstance(event, StaticMemberReplaced):
            changed.add(event.replaced_member_id)
        if instance is not None and instance in before.instances:
            changed.add(before.instances[instance])
    return changed


def _of_changed(before: Group, changed: Collection[MemberId], after: Group) -> Iterator[str]:
    """Check invariants 1, 2 and 4 for the changed members only."""
    was = [before.members[each] for each in changed if each in before.members]
    now = [(each, after.members[each]) for each in changed if each in after.members]
    if any(member.member_id != member_id for member_id, member in now):
        yield "1: a member is stored under another's id"
    static = {m.group_instance_id: m.member_id for _, m in now if m.group_instance_id is not None}
    grown = len(static) - sum(m.group_instance_id is not None for m in was)
    if len(after.instances) - len(before.instances) != grown or any(
        after.instances.get(instance) != member_id for instance, member_id in static.items()
    ):
        yield "2: the instance ids are not those of the static members"
    if len(static) != sum(m.group_instance_id is not None for _, m in now):
        yield "2: two members have the same instance id"
    if after.state in (GroupState.EMPTY, GroupState.DEAD) and after.members:
        yield f"4: {after.state.value} with {len(after.members)} members"


def _of_members(group: Group) -> Iterator[str]:
    members = group.members
    if any(member.member_id != member_id for member_id, member in members.items()):
        yield "1: a member is stored under another's id"
    static_members = [m for m in members.values() if m.group_instance_id is not None]
    static = {m.group_instance_id: m.member_id for m in static_members}
    if group.instances != static:
        yield "2: the instance ids are not those of the static members"
    if len(static) != len(static_members):
        yield "2: two members have the same instance id"
    if group.state in (GroupState.EMPTY, GroupState.DEAD) and members:
        yield f"4: {group.state.value} with {len(members)} members"


def _of_registrations(group: Group) -> Iterator[str]:
    for instance, registration in group.registrations.items():
        if registration.group_instance_id != instance:
            yield "7: a registration is stored under another instance id"
    if any(instance in group.instances for instance in group.registrations):
        yield "7: a member's instance id is registered still"


def _of_leader(group: Group, looked_at: Iterable[Member]) -> Iterator[str]:
    image, members = group.image, group.members
    if members and image.leader_id not in members:
        yield f"3: the leader {image.leader_id} is not a member"
    if members and image.emptied_by is not None:
        yield "10: members, and a cause for which the group is empty"
    if not members and image.leader_id is not None:
        yield f"3: a leader {image.leader_id}, and no member"
    if image.state in _SETTLED:
        leader = members.get(image.leader_id) if image.leader_id is not None else None
        if leader is None or leader.is_inactive:
            yield f"9: {image.state.value} without an active leader"
    if image.state not in (GroupState.STABLE, GroupState.PREPARING_REBALANCE) and any(
        member.role is MemberRole.CALLED for member in looked_at
    ):
        yield f"9: a standby is called in {image.state.value}"


def _of_assignments(group: Group, looked_at: Collection[Member]) -> Iterator[str]:
    image = group.image
    if image.state in (GroupState.EMPTY, GroupState.DEAD) and image.protocol_name is not None:
        yield f"4: {image.state.value} with the protocol {image.protocol_name}"
    if image.departures_gathered and image.state is not GroupState.STABLE:
        yield f"8: departures are gathered in {image.state.value}"
    if image.departures_gathered and not any(m.retiring for m in group.members.values()):
        yield "8: departures are gathered, but no member retires"
    if any(member.assigned_generation_id > image.generation_id for member in looked_at):
        yield "6: an assignment for a later generation"
    if image.state is GroupState.STABLE:
        if any(member.assigned_generation_id != image.generation_id for member in looked_at):
            yield "6: Stable, and a member has no assignment for this generation"
        if image.assigned_generation_id != image.generation_id:
            yield "6: Stable, and the assignments are those of another generation"
    elif image.state is GroupState.EMPTY:
        if image.assigned_generation_id != NO_GENERATION:
            yield "6: Empty, with assignments"
    elif image.state is not GroupState.PREPARING_REBALANCE and image.assigned_generation_id >= image.generation_id:
        yield f"6: {image.state.value}, with assignments for this generation"


def broken_move(before: GroupImage, event: AnyGroupEvent) -> Iterator[str]:
    """Yield the illegal parts of the event's change of the group's own record (S1, S4, S5)."""
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
