"""Compares the committed offsets of a topic, folded independently, with those in a process's memory."""

import json
from collections.abc import Iterable, Mapping

from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.memory import OffsetCache
from muster.events.ids import GroupId
from muster.events.records import StoredRecord

Offsets = Mapping[GroupId, Mapping[tuple[str, int], int]]


def offsets_of(records: Iterable[StoredRecord]) -> Offsets:
    """The last offset of each partition, by group, of a topic without compaction and without foreign records."""
    groups: dict[GroupId, dict[tuple[str, int], int]] = {}
    for record in records:
        name = json.loads(record.key)
        if "owner" in name:
            continue
        partitions = groups.setdefault(GroupId(name["group"]), {})
        partition = (name["topic"], name["partition"])
        if record.value is None:
            partitions.pop(partition, None)
        else:
            partitions[partition] = json.loads(record.value)["offset"]
    return {group_id: partitions for group_id, partitions in groups.items() if partitions}


def offsets_in(memory: OffsetCache | OffsetStore) -> Offsets:
    """The offsets in memory."""
    return {
        group_id: {partition: kept.offset for partition, kept in memory.committed(group_id).items()}
        for group_id in memory.group_ids()
    }
