"""The contract of an offset store: changes are durable when `write` returns; reads come from memory."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from coordinator.group.offsets import OffsetsChange
from events.ids import GroupId
from events.log.base import AppendRefused

TopicPartition = tuple[str, int]


class StoredOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The last committed offset of one partition. `leader_epoch` is -1 when the commit named none (OC19).

    Times: wall clock ms; `expire_ms` is None unless the commit gave a retention (v2 to v4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None


class OffsetStore(Protocol):
    """Offsets of all groups. One writer, as with the event log beside it."""

    async def open(self) -> None:
        """Connect. Raises events.log.base.LogError."""
        ...

    async def close(self) -> None: ...

    async def claim(self, partition: int) -> None:
        """Own the offsets of a partition's groups, again if need be, and know what is stored. Raises LogError."""
        ...

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        """Apply in order; durable and visible in `committed` on return. A change that is too large is refused alone.

        The changes are of groups of one partition, which is claimed. Raises events.log.base.LogError.
        """
        ...

    def committed(self, group_id: GroupId) -> Mapping[TopicPartition, StoredOffset]:
        """The durable offsets of a group; empty for one without."""
        ...

    def group_ids(self) -> frozenset[GroupId]:
        """The groups that have offsets."""
        ...
