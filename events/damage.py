"""Finds which records of a quarantined group can be read, and which cannot. Pure.

`coordinator/group/repair.py` repairs the group with the result.

    survey = DamageSurvey(projector)
    for chunk in chunks:  # the same that the projector was fed
        survey.read(chunk)
    survey.damages()
"""

from collections.abc import Iterable

import msgspec

from muster.events.avro.codec import decode
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key
from muster.events.projector import Projector, entity_of
from muster.events.records import BrokenRecord, StoredRecord, UndecodableKey
from muster.events.state import Group


class BrokenEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entity of a group whose value cannot be read. `entity_id` names a member or an instance; else it is empty."""

    kind: EntityKind
    entity_id: str
    offset: int
    reason: str


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined group. `group`: built from the readable records, None if there are none; its own record may be
    broken.

    `keys`: the keys of all values that are left of the group; the key of the group's own record is the last.
    """

    group_id: GroupId
    partition: int
    group: Group | None
    broken: tuple[BrokenEntity, ...]
    keys: tuple[bytes, ...]

    @property
    def is_image_known(self) -> bool:
        """True if the group's own record (generation, protocol) can be read."""
        return self.group is not None and not any(each.kind is EntityKind.GROUP for each in self.broken)


class DamageSurvey:
    """Reads the log and keeps the last records of the quarantined groups."""

    def __init__(self, projector: Projector) -> None:
        self._projector = projector
        self._last: dict[GroupId, dict[bytes, StoredRecord]] = {group_id: {} for group_id in projector.quarantined}

    def read(self, chunk: Iterable[StoredRecord]) -> None:
        """Process the next records, in offset order."""
        for record in chunk:
            if record.is_foreign:
                continue
            try:
                entity = entity_of(record)
            except UndecodableKey:
                continue  # it has a tombstone; otherwise the projector would have stopped there
            of_group = self._last.get(GroupId(entity.group_id))
            if of_group is None or entity.kind is EntityKind.PARTITION:
                continue
            of_group.pop(record.key, None)
            if record.value is not None:
                of_group[record.key] = record
            elif entity.kind is EntityKind.GROUP:
                of_group.clear()  # left over from an earlier incarnation

    def damages(self) -> dict[GroupId, Damage]:
        """Return the damage of each quarantined group."""
        return {group_id: self._damage(group_id) for group_id in self._last}

    def _damage(self, group_id: GroupId) -> Damage:
        records = self._last[group_id].values()
        broken = tuple(each for record in records if (each := _broken(record)) is not None)
        keys = sorted((record.key for record in records), key=_is_groups_own)
        return Damage(
            group_id=group_id,
            partition=self._projector.quarantined[group_id].partition,
            group=self._projector.groups.get(group_id),
            broken=broken,
            keys=tuple(keys),
        )


def _broken(record: StoredRecord) -> BrokenEntity | None:
    entity = entity_of(record)
    try:
        decode(record.value or b"")
    except BrokenRecord as broken:
        return BrokenEntity(kind=entity.kind, entity_id=entity.entity_id, offset=record.offset, reason=broken.reason)
    return None


def _is_groups_own(key: bytes) -> bool:
    return decode_key(key).kind is EntityKind.GROUP
