"""The offset store of a sidecar, which stores nothing: the cluster upstream keeps the offsets."""

from collections.abc import Iterable, Mapping, Sequence

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.base import BetweenWrites, StoredOffset, TopicPartition
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog


class UpstreamOffsetStore:
    """A store without offsets, which ignores all changes."""

    @property
    def own_log(self) -> EventLog | None:
        return None

    async def open(self) -> None:
        """Do nothing: there is nothing to read."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def begin_claim(self, _partition: int) -> bool | None:
        return None

    async def claim(self, _partition: int) -> Iterable[GroupId]:
        """Return no groups. The shadow in the upstream group fences writers."""
        return ()

    async def renew(self, _partition: int, _between_writes: BetweenWrites) -> None:
        """Do nothing: the shadow in the upstream group fences writers."""

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        """Ignore the changes: offsets are deleted and expire in the cluster upstream."""
        return [None] * len(changes)

    def committed(self, _group_id: GroupId) -> Mapping[TopicPartition, StoredOffset]:
        return {}

    def group_ids(self) -> frozenset[GroupId]:
        return frozenset()
