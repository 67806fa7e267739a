"""The state of a partition in this process, and its transitions. `OwnedPartitions` keeps one state for each partition.

    from            by               to
    NotAssigned     assigned         TakingOver
    TakingOver      served           Serving
                    not_available    TakingOver     the log is not available: retried
                    unreadable       NotReadable    an owner's record in it is unreadable: no process serves it
                    overtaken        NotAssigned    another process has claimed it
                    failed           Failed         the process exits, or the assignment was cancelled
    Serving         lost_for_now     TakingOver     the log is not available
                    deposed          Closing        another process has claimed it
                    failed           Failed         lost for good: the process exits
    each of these and NotReadable, Failed
                    released         Closing
    Closing         closed           NotAssigned
                    assigned         TakingOver     which waits until it is closed

A transition is a method of the states that have it: mypy rejects any other. States are plain values;
`OwnedPartitions` creates the tasks.
"""

import asyncio
from typing import Final, TypeAlias

import msgspec

from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition

Task: TypeAlias = asyncio.Task[None]


class NotAssigned(msgspec.Struct, frozen=True):
    """The partition is not assigned to this process, and nothing of it is left here."""

    @property
    def is_read(self) -> bool:
        """Return whether this process has read the partition, and has not seen another owner since."""
        return False

    def assigned(self, attempt: Task) -> "TakingOver":
        """Return the state in which this task takes the partition over."""
        return TakingOver(attempt=attempt, is_read=False)


NOT_ASSIGNED: Final = NotAssigned()


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """No longer assigned, but not closed yet. A partition that is handed over counts as read until it is closed."""

    closing: Task
    is_read: bool

    def assigned(self, attempt: Task) -> "TakingOver":
        """Take it over with this task, which waits for `closing` first."""
        return TakingOver(attempt=attempt, closing=self.closing, is_read=False)

    def closed(self) -> NotAssigned:
        """Note that nothing of it is left here."""
        return NOT_ASSIGNED


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the states of a partition that this process is to serve."""

    @property
    def is_read(self) -> bool:
        """See NotAssigned."""
        raise NotImplementedError

    def released(self, closing: Task) -> Closing:
        """Release it: it is assigned to another process, or this one stops."""
        return Closing(closing=closing, is_read=self.is_read)


class TakingOver(Assigned, frozen=True, kw_only=True):
    """Being taken over. `attempt`: the first attempt, or the retries after it.

    `closing`: the end of the previous ownership, which the attempt waits for.
    """

    attempt: Task
    closing: Task | None = None
    is_read: bool

    def served(self, ownership: OwnedPartition) -> "Serving":
        """Serve it: the takeover succeeded."""
        return Serving(ownership=ownership)

    def not_available(self, attempts: Task) -> "TakingOver":
        """Retry with this task: the log was not available."""
        return TakingOver(attempt=attempts, is_read=self.is_read)

    def unreadable(self, reason: str) -> "NotReadable":
        """Leave it unserved: a record of an owner is unreadable."""
        return NotReadable(reason=reason, is_read=self.is_read)

    def overtaken(self) -> NotAssigned:
        """Leave it to another process, which has claimed it in the meantime."""
        return NOT_ASSIGNED

    def failed(self, reason: str) -> "Failed":
        """Stop trying."""
        return Failed(reason=reason, is_read=self.is_read)


class Serving(Assigned, frozen=True, kw_only=True):
    """Served by this process."""

    ownership: OwnedPartition

    @property
    def is_read(self) -> bool:
        return True

    def lost_for_now(self, attempts: Task, closing: Task) -> TakingOver:
        """Close it, and take it over again when the log is available."""
        return TakingOver(attempt=attempts, closing=closing, is_read=True)

    def deposed(self, closing: Task) -> Closing:
        """Close it: another process has claimed it, and does not wait for that."""
        return Closing(closing=closing, is_read=False)

    def failed(self, reason: str) -> "Failed":
        """Stop serving it because the process has to end."""
        return Failed(reason=reason, ownership=self.ownership, is_read=True)


class NotReadable(Assigned, frozen=True, kw_only=True):
    """Assigned, but no process serves it: a record of an owner is unreadable. `reason` is human-readable."""

    reason: str
    is_read: bool


class Failed(Assigned, frozen=True, kw_only=True):
    """Neither served nor retried: the process exits. `ownership`: still to be closed. `reason` is human-readable."""

    reason: str
    ownership: OwnedPartition | None = None
    is_read: bool


PartitionState: TypeAlias = NotAssigned | TakingOver | Serving | NotReadable | Failed | Closing
