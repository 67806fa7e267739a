"""Repair of a quarantined group: it is recreated from the records that can be read (`members.repair`).

This module decides what is kept, and which events record it. `events/damage.py` finds out what can be read.

The group gets a new incarnation: Empty, in the next generation, with the configs and registrations that can be read. It
has no members, since it may be their assignments that are lost; all of them join again, in one rebalance. Its committed
offsets are not in the event log, so they are kept. The first event names the administrator. It is preceded by
tombstones for every record of the former incarnation. The group's own is the last of them, and ends the quarantine for
later readers of the log.
"""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import ANEW, REPAIR, values_set
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, GroupDamage, UnreadableRecord
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now, Turn
from muster.events.causes import Cause
from muster.events.damage import Damage
from muster.events.events import AnyEvent, GroupCreated, InstanceRegistered
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.records import Record
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig, Registration, new_group


def describe_damage(damage: Damage) -> GroupDamage:
    """Describe what a repair would lose and keep."""
    registrations, config = _kept(damage)
    return GroupDamage(
        partition=damage.partition,
        unreadable=tuple(
            UnreadableRecord(kind=each.kind, entity_id=each.entity_id, offset=each.offset, reason=each.reason)
            for each in damage.broken
        ),
        generation_id=damage.group.generation_id if damage.group is not None and damage.is_image_known else None,
        members=0 if damage.group is None else len(damage.group.members),
        registered=tuple(each.group_instance_id for each in registrations),
        configs=values_set(config),
    )


def is_repair(changes: Sequence[ConfigChange]) -> bool:
    """Return whether the request asks for a repair, valid or not."""
    return any(change.name == REPAIR for change in changes)


def repair_refusal(changes: Sequence[ConfigChange]) -> AlterGroupConfigOutcome | None:
    """Return the error that refuses a repair; None if it is valid."""
    if len(changes) > 1:
        message = f"{REPAIR} must be the only change: no config of a quarantined group can be changed"
        return AlterGroupConfigOutcome(error=ErrorCode.invalid_request, message=message)
    (change,) = changes
    if change.operation is not ConfigOperation.SET or change.value != ANEW:
        return AlterGroupConfigOutcome(error=ErrorCode.invalid_config, message=f"{REPAIR}: should be set to '{ANEW}'")
    return None


def repair_group(
    damage: Damage, command: AlterGroupConfig, now: Now, settings: GroupSettings
) -> tuple[Group, Sequence[AnyEvent]]:
    """Return the recreated group, and the events that create it."""
    group = new_group(damage.group_id, incarnation=now.incarnation, wall_ms=now.wall_ms)
    turn = Turn(group, SoftState(), now, settings)
    turn.caused_by(Cause.GROUP_REPAIRED, command.caller, UNKNOWN_MEMBER_ID, None)
    if damage.group is not None and damage.is_image_known:
        known = damage.group.image
        turn.change(generation_id=known.generation_id + 1, protocol_type=known.protocol_type)
    turn.record(GroupCreated)
    registrations, config = _kept(damage)
    for registration in registrations:
        turn.record_registration(InstanceRegistered, registration)
    if config != NOT_CONFIGURED:
        turn.record_config(config)
    turn.finish()
    return turn.group, turn.events


def tombstones(damage: Damage) -> tuple[Record, ...]:
    """Return tombstones for all records of the former incarnation; written before the events, in one transition."""
    return tuple(Record(key, None) for key in damage.keys)


def _kept(damage: Damage) -> tuple[Sequence[Registration], GroupConfig]:
    """Return the registrations and the configs that can be read."""
    if damage.group is None:
        return (), NOT_CONFIGURED
    return tuple(damage.group.registrations.values()), damage.group.config
