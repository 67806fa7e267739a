"""Rewriting of entities whose last record in the log is foreign.

Readers skip a foreign record under a key of ours, for instance a tombstone. But compaction keeps the last record of a
key, and would remove the owner's. So the owner writes the entity again, after it: the same value, with a cause of its
own, and the group's record at the end, as after every transition.
"""

from typing import assert_never

from muster.coordinator.group.commands import RewriteEntities
from muster.coordinator.group.roles import change_role
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupAdvanced, InstanceRegistered
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.keys import EntityKind, RecordKey
from muster.events.state import NOT_CONFIGURED, Group, Member


def rewrite_entities(turn: Turn, command: RewriteEntities) -> None:
    """Rewrite the entities that still exist."""
    turn.caused_by_deadline(Cause.RECORD_OVERWRITTEN, turn.now_ms)
    for entity in command.entities:
        _rewrite(turn, entity)


def _rewrite(turn: Turn, entity: RecordKey) -> None:
    group = turn.group
    match entity.kind:
        case EntityKind.GROUP:
            turn.record(GroupAdvanced)
        case EntityKind.STATIC_MEMBER | EntityKind.DYNAMIC_MEMBER:
            member = _member(group, entity)
            if member is not None:
                change_role(turn, member)
        case EntityKind.REGISTRATION:
            registration = group.registrations.get(GroupInstanceId(entity.entity_id))
            if registration is not None:
                turn.record_registration(InstanceRegistered, registration)
        case EntityKind.GROUP_CONFIG:
            if group.config != NOT_CONFIGURED:
                turn.record_config(group.config)
        case EntityKind.PARTITION:
            pass  # an owner writes its own with each claim
        case _:
            assert_never(entity.kind)


def _member(group: Group, entity: RecordKey) -> Member | None:
    """Return the member that has this key."""
    if entity.kind is EntityKind.STATIC_MEMBER:
        member_id = group.instances.get(GroupInstanceId(entity.entity_id))
        return None if member_id is None else group.members.get(member_id)
    member = group.members.get(MemberId(entity.entity_id))
    return None if member is None or member.group_instance_id is not None else member
