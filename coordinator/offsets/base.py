"""The contract of an offset store: changes are durable when `write` returns; reads come from memory."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.service import CommittedOffset
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused, EventLog

TopicPartition = tuple[str, int]


class StoredOffset(CommittedOffset, frozen=True, kw_only=True):
    """The last committed offset of one partition.

    Times: wall clock, ms; `expire_ms` is None unless the commit had a retention (v2 to v4).
    """

    commit_ms: int
    expire_ms: int | None


class BetweenWrites(Protocol):
    """Runs a step while no `write` of this owner is in progress; returns when the step is done."""

    async def __call__(self, step: Callable[[], Awaitable[None]]) -> None: ...


class OffsetStore(Protocol):
    """A store of the offsets of all groups, with one writer, like the event log."""

    @property
    def own_log(self) -> EventLog | None:
        """The log of the offsets' own topic, once it is open; None if they have no topic of their own."""
        ...

    async def open(self) -> None:
        """Connect. Raises events.log.base.LogError."""
        ...

    async def close(self) -> None: ...

    async def begin_claim(self, partition: int) -> bool | None:
        """Begin a claim without writing; returns whether the partition's offsets ever had an owner.

        None: they have no topic of their own. Raises LogError.
        """
        ...

    async def claim(self, partition: int) -> Iterable[GroupId]:
        """Claim the offsets of a partition's groups, and read them. Raises LogError.

        Returns the groups that have offsets, including those of other partitions if the store does not separate them.
        """
        ...

    async def renew(self, partition: int, between_writes: BetweenWrites) -> None:
        """Renew the claim of an owned partition; reads it again only if others wrote. Raises LogError."""
        ...

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        """Make changes durable, in order, and visible in `committed`. Only changes that are too large are refused.

        All changes are of groups of one claimed partition. Raises events.log.base.LogError.
        """
        ...

    def committed(self, group_id: GroupId) -> Mapping[TopicPartition, StoredOffset]:
        """The durable offsets of a group; empty if it has none."""
        ...

    def group_ids(self) -> frozenset[GroupId]:
        """The groups that have offsets."""
        ...
