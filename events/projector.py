"""Folds many records into the groups of a partition. Records are fed to it: it has no consumer and no clock.

An owner's takeover, `replay state`, the fleet and the property tests all use it. A value that cannot be read, or whose
type is unknown here, *quarantines* its group and nothing else, so that an owner does not serve it; an unreadable key
raises UndecodableKey, since not even the group is known. Readers report `quarantined` as what they could not read.

    projector = Projector()
    for record in records:
        projector.feed(record)
    projector.groups, projector.quarantined
"""

from collections.abc import Collection
from typing import assert_never

import msgspec

from muster.events.avro.codec import decode
from muster.events.events import (
    AnyPartitionEvent,
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorReady,
    GroupEvent,
    PartitionEvent,
)
from muster.events.evolve import apply, first, is_gone, remove_member
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.events.records import FORMAT_LEVEL, BrokenRecord, LogTooNew, StoredRecord, UndecodableKey
from muster.events.state import NOT_CONFIGURED, Group


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A group with an unreadable record, and the offset of the first one."""

    group_id: GroupId
    partition: int
    offset: int
    reason: str


def entity_of(record: StoredRecord) -> RecordKey:
    """Decode the record's key. Raises UndecodableKey, which names the record."""
    try:
        return decode_key(record.key)
    except UndecodableKey as broken:
        raise UndecodableKey(broken.reason, partition=record.partition, offset=record.offset) from broken


class Projector:
    """The groups of one partition, built from its records so far."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, Group] = {}
        self.quarantined: dict[GroupId, Quarantined] = {}
        self.deleted: dict[GroupId, None] = {}
        """Groups that existed, according to the records, and no longer do; the most recently deleted one is last."""
        self.last_partition_event: AnyPartitionEvent | None = None
        self.before_election: AnyPartitionEvent | None = None
        """The last event under the epoch before the newest one, by another owner or the same."""
        self.served_by: str | None = None
        """The last owner that was ready; others may have been elected since, and commands may have written."""
        self.incarnation_max = 0
        self.events_read = 0
        self.next_offset = 0
        self._known_by_parts: set[GroupId] = set()

    def feed(self, record: StoredRecord) -> None:
        """Apply the next record. Raises UndecodableKey and LogTooNew."""
        self.next_offset = record.offset + 1
        if record.is_foreign:
            return
        key = entity_of(record)
        if record.value is None:
            self._apply_tombstone(key)
            return
        self.events_read += 1
        try:
            event = decode(record.value)
        except BrokenRecord as broken:
            self._quarantine(key, record, broken)
            return
        self.feed_event(event)

    def feed_event(self, event: AnyRecordedEvent) -> None:
        """Apply an event that is already decoded."""
        if isinstance(event, PartitionEvent):
            self._take_partition_event(event)
            return
        self.incarnation_max = max(self.incarnation_max, event.incarnation)
        group = self.groups.get(event.group_id)
        if group is None:
            group = self.groups[event.group_id] = first(event)
            self._known_by_parts.add(event.group_id)
            self.deleted.pop(event.group_id, None)
        else:
            apply(group, event)
        if is_gone(group):
            del self.groups[event.group_id]
            self._note_deleted(event.group_id)
        if event.group_id in self._known_by_parts:
            if isinstance(event, GroupEvent):
                self._known_by_parts.discard(event.group_id)
            else:
                self._drop_if_compacted_away(event.group_id)

    @property
    def known_by_parts(self) -> Collection[GroupId]:
        """The groups of which members, registrations or configs are known, but no record of the group itself."""
        return self._known_by_parts

    def resume_group(self, group: Group, *, has_own_record: bool) -> None:
        """Add a group that another projector has built."""
        self.groups[group.group_id] = group
        if not has_own_record:
            self._known_by_parts.add(group.group_id)

    def has(self, entity: RecordKey) -> bool:
        """Return whether this entity of a group exists, with a record of its own."""
        group_id = GroupId(entity.group_id)
        group = self.groups.get(group_id)
        if group is None:
            return False
        match entity.kind:
            case EntityKind.GROUP:
                return group_id not in self._known_by_parts
            case EntityKind.STATIC_MEMBER:
                return GroupInstanceId(entity.entity_id) in group.instances
            case EntityKind.DYNAMIC_MEMBER:
                member = group.members.get(MemberId(entity.entity_id))
                return member is not None and member.group_instance_id is None
            case EntityKind.REGISTRATION:
                return GroupInstanceId(entity.entity_id) in group.registrations
            case EntityKind.GROUP_CONFIG:
                return group.config != NOT_CONFIGURED
            case EntityKind.PARTITION:
                return False
            case _:
                assert_never(entity.kind)

    def _take_partition_event(self, event: AnyPartitionEvent) -> None:
        if isinstance(event, CoordinatorElected) and event.format_level > FORMAT_LEVEL:
            raise LogTooNew(
                f"the event log has format level {event.format_level}, this version knows {FORMAT_LEVEL}: "
                f"it was written by Muster {event.version}; use a newer Muster"
            )
        if isinstance(event, CoordinatorElected):
            self.before_election = self.last_partition_event
        if isinstance(event, CoordinatorReady):
            self.served_by = event.owner
            self.incarnation_max = max(self.incarnation_max, event.incarnation_max)
        self.last_partition_event = event

    def _apply_tombstone(self, key: RecordKey) -> None:
        """Apply a tombstone; if its entity does not exist, that is no error (known bug L1)."""
        if key.kind is EntityKind.PARTITION:
            return  # written by a repair
        group_id = GroupId(key.group_id)
        group = self.groups.get(group_id)
        if key.kind is EntityKind.GROUP:
            self.groups.pop(group_id, None)
            self.quarantined.pop(group_id, None)
            self._known_by_parts.discard(group_id)
            self._note_deleted(group_id)
        elif group is not None and key.kind is EntityKind.STATIC_MEMBER:
            remove_member(group, MemberId(""), GroupInstanceId(key.entity_id))
        elif group is not None and key.kind is EntityKind.DYNAMIC_MEMBER:
            remove_member(group, MemberId(key.entity_id), None)
        elif group is not None and key.kind is EntityKind.REGISTRATION:
            group.registrations.pop(GroupInstanceId(key.entity_id), None)
        elif group is not None and key.kind is EntityKind.GROUP_CONFIG:
            group.config = NOT_CONFIGURED
        self._drop_if_compacted_away(group_id)

    def _note_deleted(self, group_id: GroupId) -> None:
        self.deleted.pop(group_id, None)
        self.deleted[group_id] = None

    def _drop_if_compacted_away(self, group_id: GroupId) -> None:
        """Drop a group without a record of its own or anything else: it was deleted, since compaction keeps a live
        group's own record.
        """
        if group_id not in self._known_by_parts:
            return
        group = self.groups[group_id]
        if not group.members and not group.registrations and group.config == NOT_CONFIGURED:
            self._known_by_parts.discard(group_id)
            del self.groups[group_id]
            self._note_deleted(group_id)

    def _quarantine(self, key: RecordKey, record: StoredRecord, broken: BrokenRecord) -> None:
        if key.kind is EntityKind.PARTITION:
            raise BrokenRecord(broken.reason, partition=record.partition, offset=record.offset) from broken
        group_id = GroupId(key.group_id)
        known = self.quarantined.get(group_id)
        if known is None or record.offset < known.offset:
            self.quarantined[group_id] = Quarantined(
                group_id=group_id, partition=record.partition, offset=record.offset, reason=broken.reason
            )
