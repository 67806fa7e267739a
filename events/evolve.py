"""The only way to change hard state: one event applied to one group.

The live path and the takeover path both come through here. Nothing here decides: an event is a fact, and what is
missing before it (compacted away) is never an error, since every event carries the whole value of its entity.
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
    """The group after the events; the given group stays as it is. What they leave alone is the same in both."""
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
    """The group of which this event is the first one known, with the event applied."""
    group = new_group(event.group_id, incarnation=event.incarnation, wall_ms=0)
    apply(group, event)
    return group


def apply(group: Group, event: AnyEvent) -> None:
    """Change the group in place. Only folds call this, on a copy of their own: `evolve`, the projector, a turn of the
    rules, the replay tool.
    """
    if event.incarnation != group.incarnation:
        if event.incarnation < group.incarnation:
            return  # a leftover of an earlier life of the same group id
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
    """Take a member out; one that is not there is no error (known bug L1). A tombstone does this, too."""
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
    """Whether the group was deleted: nothing of it is to be kept."""
    return group.state is GroupState.DEAD
