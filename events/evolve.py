"""The only way to change hard state: one event applied to one group.

The live path and the takeover path both use this module. It decides nothing: an event is a fact. Events missing before
it (compacted away) are never an error, since every event carries the whole value of its entity.
"""

from collections.abc import Iterable
from copy import copy

from muster.events.events import (
    AnyEvent,
    AnyMemberEvent,
    GroupConfigured,
    GroupDeleted,
    GroupEvent,
    MemberEvent,
    MemberRemoved,
    RegistrationEnded,
    RegistrationEvent,
)
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import NOT_CONFIGURED, Group, GroupState, Member, new_group


def evolve(group: Group, events: Iterable[AnyEvent]) -> Group:
    """Return the group after the events, without changing the given one. Both share the tables that did not change."""
    evolved = copy(group)
    for event in events:
        if event.incarnation == evolved.incarnation:
            if isinstance(event, MemberEvent):
                if evolved.members is group.members:
                    evolved.members = group.members.copy()
                if evolved.instances is group.instances and _changes_instances(evolved, event):
                    evolved.instances = group.instances.copy()
                apply(evolved, event)
                continue
            if isinstance(event, GroupEvent) and not isinstance(event, GroupDeleted):
                apply(evolved, event)
                continue
        _own_all_tables(evolved, group)
        apply(evolved, event)
    return evolved


def _changes_instances(group: Group, event: AnyMemberEvent) -> bool:
    instance = event.member.group_instance_id
    if instance is None:
        return False
    return isinstance(event, MemberRemoved) or group.instances.get(instance) != event.member.member_id


def _own_all_tables(evolved: Group, group: Group) -> None:
    for name in ("members", "instances", "registrations"):
        if getattr(evolved, name) is getattr(group, name):
            setattr(evolved, name, getattr(group, name).copy())


def first(event: AnyEvent) -> Group:
    """Create a group from the first of its events that is known."""
    group = new_group(event.group_id, incarnation=event.incarnation, wall_ms=0)
    apply(group, event)
    return group


def apply(group: Group, event: AnyEvent) -> None:
    """Change the group in place. Only folds call this, on copies of their own: `evolve`, the projector, a `Turn` of the
    rules, the replay tool.
    """
    if event.incarnation != group.incarnation:
        if event.incarnation < group.incarnation:
            return  # left over from an earlier incarnation of the group id
        _forget(group)
        group.incarnation = event.incarnation
    group.seq = event.seq
    if isinstance(event, MemberEvent):
        if isinstance(event, MemberRemoved):
            remove_member(group, event.member.member_id, event.member.group_instance_id)
        else:
            _put_member(group, event.member)
    elif isinstance(event, GroupEvent):
        group.image = event.group
        if isinstance(event, GroupDeleted):
            _forget(group)
    elif isinstance(event, RegistrationEvent):
        registration = event.registration
        if isinstance(event, RegistrationEnded):
            group.registrations.pop(registration.group_instance_id, None)
        else:
            group.registrations[registration.group_instance_id] = registration
    elif isinstance(event, GroupConfigured):
        group.config = event.config


def remove_member(group: Group, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> None:
    """Remove a member; a missing one is no error (known bug L1). Tombstones are applied through this too."""
    if group_instance_id is not None:
        member_id = group.instances.pop(group_instance_id, member_id)
    group.members.pop(member_id, None)


def _put_member(group: Group, member: Member) -> None:
    instance = member.group_instance_id
    if instance is not None:
        previous = group.instances.get(instance)
        if previous is not None and previous != member.member_id:
            group.members.pop(previous, None)
        if previous != member.member_id:
            group.instances[instance] = member.member_id
    group.members[member.member_id] = member


def _forget(group: Group) -> None:
    group.members.clear()
    group.instances.clear()
    group.registrations.clear()
    group.config = NOT_CONFIGURED


def is_gone(group: Group) -> bool:
    """Return whether the group was deleted, so that nothing of it is kept."""
    return group.state is GroupState.DEAD
