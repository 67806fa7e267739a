"""The contract of event logs, on which the coordinator and the replay tool rely regardless of the storage.

A log has partitions. One writer at a time *claims* a partition and thereby deposes the one before it; any process may
read. An append is durable when it returns, and each transition in it is stored completely or not at all.

Errors, by what is at fault:

    LogError
      LogMismatch     the log contradicts its settings, or is not ours: refuse to start, or give it up
        LogMissing    ... because there is none, and none is created for reading
        LogDamaged    ... because its storage is damaged: waiting does not help
      LogUnavailable  the log cannot be reached, or an append's outcome stayed unknown until the limit
        LogDenied     our own principal lacks a permission: refuse to start; if it was revoked later, wait for it
        OddAnswer     a broker's response does not match the request
      Deposed         another writer has claimed the partition: give it up immediately

A transition that is refused for good (too large) raises nothing, since the others in the same append are fine: its
verdict is an `AppendRefused`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

import msgspec

from muster.events.records import RawRecord, StoredRecord, Transition

UNKNOWN_END: Final = 2**62
"""The end of a partition in a damaged log whose last record cannot be read: beyond every offset."""


class LogError(Exception):
    """The log as a whole failed, not just a single record."""


class LogMismatch(LogError):
    """The log contradicts its settings; the message names the setting, both values and how to fix it."""


class LogMissing(LogMismatch):
    """The log does not exist, and opening for reading does not create it."""


class LogDamaged(LogMismatch):
    """The log's storage is damaged; the message names it and how to fix it."""


class LogReplaced(LogMismatch):
    """The log was removed or replaced while it was in use.

    `what`: what happened; `way_out`: what the log's operator can do about it.
    """

    def __init__(self, what: str, way_out: str) -> None:
        super().__init__(what, way_out)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.what}. {self.way_out}"


class LogUnavailable(LogError):
    """The log cannot be reached. An append in flight may or may not have been stored."""


class LogDenied(LogUnavailable):
    """Our own principal lacks a permission, which may still be granted."""


class OddAnswer(LogUnavailable):
    """A broker's response does not match the request; the message says how."""


class Deposed(LogError):
    """Another writer has since claimed the partition."""

    def __init__(self, partition: int, epoch: int) -> None:
        super().__init__(
            f"partition {partition}: this process was deposed (its epoch is {epoch}): another process took over"
            " the event log, such as a muster serve with the same --log"
        )
        self.partition = partition
        self.epoch = epoch

    def name_successor(self, owner: str, elected_ms: int, *, shares: bool) -> None:
        """Name the successor (`host:pid`) and the time of its claim (wall clock, ms), both from its own record.

        `shares`: this process shares the log with others, so one of them may rightly have the partition.
        """
        at = datetime.fromtimestamp(elected_ms / 1000, UTC)
        if shares:
            way_out = (
                "This process continues with what it is assigned; if it had neither stalled nor been"
                f" cut off, {owner} uses the same --log without --share-partitions: stop that one"
            )
        else:
            way_out = (
                "Only one muster serve can use an event log: give this one another --log, or point its clients at"
                " the other one"
            )
        said = (
            f"{owner} took over the event log from this process at {at:%H:%M:%S} UTC (partition {self.partition}, whose"
            f" epoch was {self.epoch}). {way_out}"
        )
        self.args = (said,)


class AppendRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one transition that can never be stored: it exceeds the limit."""

    size_bytes: int
    limit_bytes: int


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's (`host:pid`) record alongside the events that shows it is alive. `wall_ms`: by its own wall clock."""

    owner: str
    wall_ms: int


class LogWriter(Protocol):
    """The right to append to one partition, until another writer claims it."""

    @property
    def partition(self) -> int: ...

    @property
    def epoch(self) -> int:
        """Grows with each claim of the partition."""
        ...

    @property
    def was_owned(self) -> bool:
        """True if an owner had written to the partition when it was claimed."""
        ...

    @property
    def next_offset(self) -> int | None:
        """One past the last record that this writer has appended; None if it does not know.

        If it grows by more than was appended, another process has appended in between.
        """
        ...

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        """Append in order; return when durable, with a verdict for each transition (None: it is stored).

        One append at a time. Raises Deposed or LogUnavailable; then the outcome of this append is unknown.
        """
        ...


Repeated = bool | Deposed
"""The outcome of an append that was sent again. True: the log acknowledged it again. Deposed: a newer writer has
appended since. False: unknown, because there was no append to repeat, or no response.
"""

Repeats = AsyncGenerator[Mapping[int, Repeated], None]
"""The outcomes of several appends, by partition, as responses arrive."""


class EventLog(Protocol):
    """One opened log. `location` names it in messages: a topic or a file."""

    @property
    def location(self) -> str: ...

    @property
    def identity(self) -> str:
        """The identity of this log: the same at each opening, another one if the log is recreated.

        Known while the log is open. Letters, digits, `.`, `_` and `-`, so that it can be part of a name in Kafka.
        """
        ...

    @property
    def partitions(self) -> int: ...

    @property
    def format_level(self) -> int:
        """The level at which owners write this log (see `FORMAT_LEVEL`); known while it is open."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Findings at opening that weaken the guarantees, worded for the operator."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why appends currently fail, worded for the operator; None: no problem is known."""
        ...

    @property
    def supports_takeover(self) -> bool:
        """True if another process can claim partitions while this one runs; if not, a lock prevents it."""
        ...

    @property
    def claim_renewal_ms(self) -> int | None:
        """How often an owner must renew its claim, or its fence is forgotten; None: a claim never expires."""
        ...

    def stored_by(self, partition: int) -> str:
        """Name the broker or file that stores the partition's appends, for messages. Any thread may call it."""
        ...

    async def open(self) -> None:
        """Connect, create the log if it is missing and that is allowed, check its settings. Raises LogError."""
        ...

    async def close(self) -> None: ...

    async def raise_format_level(self) -> None:
        """Make writers that are claimed from now on write at the highest level, and refuse older versions for good.

        The log must be open for writing, without an owner. A topic records the level with their first append. Raises
        LogError.
        """
        ...

    async def claim(self, partition: int) -> LogWriter:
        """Claim the partition: from the new writer's first append on, the former one can no longer append.

        A new owner must append something (its fence record) before it may treat what it reads as complete.
        """
        ...

    def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        """Send the last append of each writer once more, which appends nothing; other appends may be in flight.

        All that go to the same broker share one request; yields the outcomes by partition, as soon as responses arrive.
        """
        ...

    async def has_owners_record(self, partition: int) -> bool:
        """Return whether the partition has an owner's record. A claim alone writes none, and foreign records do not
        count.

        The log must be open for writing. Raises LogUnavailable.
        """
        ...

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """Record that an owner is alive, alongside the events, replacing its last such record; from format level 4 on.

        Does not wait for appends, and delays them no more than another append would. Raises LogError.
        """
        ...

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        """Read the wall time (ms) of the last sign of life of each recent owner, if the log still has it.

        Raises LogError, and EventsError if they cannot be read.
        """
        ...

    async def end_offset(self, partition: int) -> int:
        """Return the offset after the last durable record; UNKNOWN_END if that record cannot be read."""
        ...

    def read(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read chunks of records in offset order, from `start` up to `end` (exclusive; default: the end at the call).

        Foreign records are included and marked (`StoredRecord.is_foreign`); `records.ForeignRecords` skips them.
        Offsets may have gaps where compaction removed records. Reading does not affect writers.
        """
        ...


Ends = AsyncGenerator[Mapping[int, int], None]
"""The end offsets of several partitions, by partition, as responses arrive."""


@runtime_checkable
class FollowedLog(Protocol):
    """A log whose partitions can be followed by a process that does not own them."""

    @property
    def location(self) -> str:
        """See EventLog."""
        ...

    @property
    def deletions_kept_ms(self) -> int | None:
        """How long the log keeps deleted entries at least, counted from the deletion; None: unknown.

        A reader that has not read a partition for longer may miss a deletion: even its tombstone has been compacted
        away.
        """
        ...

    def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
        """Ask once for the ends of these partitions, in one request per broker.

        A partition whose end is currently unavailable is left out of the results. Raises none of the log's errors.
        """
        ...

    def read(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        ...

    async def prepare_claim(self, partition: int) -> None:
        """Do in advance everything that a claim of the partition would have to wait for, without changing anything; do
        nothing if that is done already.

        Raises none of the log's errors: what cannot be prepared takes time during the claim.
        """
        ...


@runtime_checkable
class SearchableLog(Protocol):
    """A log that finds records by their keys without reading the values of others."""

    def read_wanted(
        self, partition: int, wanted: Sequence[bytes], *, start: int, end: int
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read chunks like `EventLog.read`, but of our own keys only those that begin with one of `wanted`.

        See `events.keys.prefix_of`. Foreign keys are included; one of ours that is broken after the prefix may be
        missing.
        """
        ...


@runtime_checkable
class ReplaceableLog(Protocol):
    """A log in a file or a topic, which may be removed or replaced while it is open."""

    async def check_in_place(self) -> None:
        """Check that its path or name still refers to what was opened. Raises LogMismatch, LogUnavailable."""
        ...


@runtime_checkable
class WatchedLog(Protocol):
    """A log whose settings may be changed, or part of which may be deleted, by others while it is served."""

    async def flaws(self) -> Sequence[str]:
        """Check the settings and the first offsets; return the problems, each with a way to fix it.

        The log must be open for writing. Raises LogUnavailable, LogMismatch.
        """
        ...


@runtime_checkable
class CutLog(Protocol):
    """A log of which others can delete the beginning of a partition."""

    @property
    def deletion_warning(self) -> str | None:
        """The warning (in `warnings`) about beginnings of partitions that had been deleted when the log was opened."""
        ...

    async def begin_offset(self, partition: int) -> int:
        """Ask where the partition begins: at offset 0 unless its beginning was deleted. Raises LogUnavailable."""
        ...


class OwnersMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of a partition's owners, by which foreign records are recognized (see kafka/marks.py).

    `since`: the offset from which owners mark their records; `native_from`: from which marked records must be native;
    `home`: the cluster whose owners count. None: not noted.
    """

    since: int | None = None
    native_from: int | None = None
    home: str | None = None


@runtime_checkable
class RawLog(Protocol):
    """A log whose records have headers and may be foreign; both can be read as they are stored."""

    def read_raw(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[RawRecord]]:
        """Read chunks like `EventLog.read`, byte by byte, with foreign records and everything that the records carry.

        A foreign batch that cannot be read is left out; an owner's raises BrokenBatch.
        """
        ...

    async def owners_marks(self, partition: int) -> OwnersMarks:
        """Read the marks of the partition's last owner. Raises LogUnavailable."""
        ...
