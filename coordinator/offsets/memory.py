"""Offsets in memory: the cache that every store reads from, and a complete store for a memory log."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.load.slices import Yielder
from muster.coordinator.offsets.base import BetweenWrites, StoredOffset, TopicPartition
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog


class OffsetCache:
    """The durable offsets of all groups."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, dict[TopicPartition, StoredOffset]] = {}

    @property
    def own_log(self) -> EventLog | None:
        return None

    async def begin_claim(self, partition: int) -> bool | None:  # noqa: ARG002 -- it has no topic
        return None

    def put(self, group_id: GroupId, partition: TopicPartition, offset: StoredOffset) -> None:
        self._groups.setdefault(group_id, {})[partition] = offset

    def remove(self, group_id: GroupId, partition: TopicPartition) -> None:
        offsets = self._groups.get(group_id, {})
        offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group_id, None)

    def apply(self, change: OffsetsChange) -> None:
        """Make a durable change visible."""
        if change.all_deleted:
            self._groups.pop(change.group_id, None)
        for partition in change.deleted:
            self.remove(change.group_id, partition)
        for commit in change.committed:
            self.put(change.group_id, (commit.topic, commit.partition), stored(commit))

    async def apply_each(self, changes: Sequence[OffsetsChange], refused: Sequence[AppendRefused | None]) -> None:
        """Apply the changes that are not refused, yielding to the event loop in between."""
        yielder = Yielder()
        for change, verdict in zip(changes, refused, strict=True):
            if verdict is None:
                self.apply(change)
                await yielder.maybe_yield()

    def committed(self, group_id: GroupId) -> Mapping[TopicPartition, StoredOffset]:
        return MappingProxyType(self._groups.get(group_id, {}))

    def group_ids(self) -> frozenset[GroupId]:
        return frozenset(self._groups)


def stored(commit: OffsetToCommit) -> StoredOffset:
    """Create the stored offset of a commit."""
    return StoredOffset(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_ms=commit.commit_ms,
        expire_ms=commit.expire_ms,
    )


class MemoryOffsetStore(OffsetCache):
    """A store that is lost when the process exits, like the memory log."""

    async def open(self) -> None:
        """Do nothing: there is nothing to read."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def claim(self, _partition: int) -> Iterable[GroupId]:
        """Return the groups with offsets; no other process can write to this store."""
        return self.group_ids()

    async def renew(self, _partition: int, _between_writes: BetweenWrites) -> None:
        """Do nothing: no other process can write to this store."""

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        verdicts = [None] * len(changes)
        await self.apply_each(changes, verdicts)
        return verdicts
