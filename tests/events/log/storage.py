"""The storage that an implementation provides to the contract suite.

A `LogStorage` outlives the logs that are opened on it. Two logs of one storage represent two processes.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from muster.events.log.base import EventLog

MIB = 1024 * 1024
BATCH_BYTES_MAX = 64 * MIB


class LogFaults(Protocol):
    """The faults that can be made in an opened log of this storage."""

    def lose_next_acknowledgement(self, log: EventLog) -> None:
        """Store the log's next append without an acknowledgement: its writer raises LogUnavailable."""
        ...


class LogStorage(Protocol):
    """A place that events are kept in, with two partitions or more, empty at first."""

    @property
    def faults(self) -> LogFaults | None:
        """None where this fault cannot be played; its tests are skipped then, with a reason."""
        ...

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> EventLog:
        """Another log on this storage, not yet opened. `batch_bytes_max` limits one transition."""
        ...


OpenLog = Callable[..., Awaitable[EventLog]]
"""`open_log(read_only=..., batch_bytes_max=...)`: as `LogStorage.make_log`, opened; closed after the test."""
