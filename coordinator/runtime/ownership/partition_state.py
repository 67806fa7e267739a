"""The state of a partition in this process, and its transitions. `OwnedPartitions` keeps one state for each partition.

    from            by               to
    NotAssigned     assigned         TakingOver
    TakingOver      served           Serving
                    not_available    TakingOver     the log is not available: tried again
                    unreadable       NotReadable    an owner's record in it cannot be read: served by nobody
                    overtaken        NotAssigned    another process has claimed it
                    failed           Failed         the process ends, or the assignment was cancelled
    Serving         lost_for_now     TakingOver     the log is not available
                    deposed          Closing        another process has claimed it
                    failed           Failed         lost for good: the process ends
    each of these and NotReadable, Failed
                    released         Closing
    Closing         closed           NotAssigned
                    assigned         TakingOver     which waits until it is closed

A transition is a method of the states that have it: mypy rejects any other. What belongs here: values. What it must
not know: how a partition is taken over or closed. `OwnedPartitions` makes the tasks.
"""

import asyncio
from typing import Final, TypeAlias

import msgspec

from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition

Task: TypeAlias = asyncio.Task[None]


class NotAssigned(msgspec.Struct, frozen=True):
    """Not assigned to this process, and nothing of it is left here."""

    @property
    def is_read(self) -> bool:
        """Whether this process has read the partition, and was not told since that it is another's."""
        return False

    def assigned(self, attempt: Task) -> "TakingOver":
        """Take it over by this task."""
        return TakingOver(attempt=attempt, is_read=False)


NOT_ASSIGNED: Final = NotAssigned()


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """Not assigned any more, and not closed yet. A partition that is handed over is read until then."""

    closing: Task
    is_read: bool

    def assigned(self, attempt: Task) -> "TakingOver":
        """Take it over by this task, which waits for `closing` first."""
        return TakingOver(attempt=attempt, closing=self.closing, is_read=False)

    def closed(self) -> NotAssigned:
        """Note that nothing of it is left here."""
        return NOT_ASSIGNED


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """Each state of a partition that this process is to serve."""

    @property
    def is_read(self) -> bool:
        """As in NotAssigned."""
        raise NotImplementedError

    def released(self, closing: Task) -> Closing:
        """Give it up: it is assigned to another process, or this one stops."""
        return Closing(closing=closing, is_read=self.is_read)


class TakingOver(Assigned, frozen=True, kw_only=True):
    """Being taken over. `attempt`: the first attempt, or those that follow until one succeeds.

    `closing`: the end of the ownership before, for which an attempt waits.
    """

    attempt: Task
    closing: Task | None = None
    is_read: bool

    def served(self, ownership: OwnedPartition) -> "Serving":
        """Serve it: it was taken over."""
        return Serving(ownership=ownership)

    def not_available(self, attempts: Task) -> "TakingOver":
        """Try again by this task: the log was not available."""
        return TakingOver(attempt=attempts, is_read=self.is_read)

    def unreadable(self, reason: str) -> "NotReadable":
        """Leave it: a record of an owner cannot be read."""
        return NotReadable(reason=reason, is_read=self.is_read)

    def overtaken(self) -> NotAssigned:
        """Leave it to another process, which has claimed it meanwhile."""
        return NOT_ASSIGNED

    def failed(self, reason: str) -> "Failed":
        """Try no more."""
        return Failed(reason=reason, is_read=self.is_read)


class Serving(Assigned, frozen=True, kw_only=True):
    """Served by this process."""

    ownership: OwnedPartition

    @property
    def is_read(self) -> bool:
        return True

    def lost_for_now(self, attempts: Task, closing: Task) -> TakingOver:
        """Close it, and take it over again: the log is not available."""
        return TakingOver(attempt=attempts, closing=closing, is_read=True)

    def deposed(self, closing: Task) -> Closing:
        """Close it: another process has claimed it, and does not wait for that."""
        return Closing(closing=closing, is_read=False)

    def failed(self, reason: str) -> "Failed":
        """Serve it no more, as the process has to end."""
        return Failed(reason=reason, ownership=self.ownership, is_read=True)


class NotReadable(Assigned, frozen=True, kw_only=True):
    """Assigned, and served by nobody: a record of an owner cannot be read. `reason` is for people."""

    reason: str
    is_read: bool


class Failed(Assigned, frozen=True, kw_only=True):
    """Served and taken over no more, as the process ends. `ownership`: to be closed yet. `reason` is for people."""

    reason: str
    ownership: OwnedPartition | None = None
    is_read: bool


PartitionState: TypeAlias = NotAssigned | TakingOver | Serving | NotReadable | Failed | Closing
