"""The contract of event logs, on which the coordinator and the replay tool rely, whatever stores the events.

A log has partitions. One writer at a time *claims* a partition and thereby deposes the one before it; anyone may
read. An append is durable when it returns, and each transition in it is there wholly or not at all.

Errors, by who is at fault:

    LogError
      LogMismatch     the log is not what its settings say, or not ours: refuse to start, or give it up
        LogMissing    ... because there is none, and none is made for reading
        LogDamaged    ... because its storage has been damaged: waiting does not help
      LogUnavailable  the log cannot be reached, or an append's outcome stayed unknown until the limit
        LogDenied     our own principal lacks a right: refuse to start, and wait for it when it is taken away later
        OddAnswer     a broker answered something else than it was asked
      Deposed         another writer has claimed the partition: give it up at once

A transition that is refused for good (too large) is no exception, since its neighbours in the same append are well:
it is the `AppendRefused` in the append's verdicts.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, runtime_checkable

import msgspec

from muster.events.records import RawRecord, StoredRecord, Transition

UNKNOWN_END: Final = 2**62
"""The end of a partition of which the last record cannot be read, of a damaged log: beyond every offset."""


class LogError(Exception):
    """The log failed, and not a single record in it."""


class LogMismatch(LogError):
    """The log contradicts its settings; the message names the setting, both values and the way out."""


class LogMissing(LogMismatch):
    """The log does not exist, and opening for reading does not create it."""


class LogDamaged(LogMismatch):
    """The log's storage has been damaged; the message names it and the way out."""


class LogReplaced(LogMismatch):
    """The log was taken away, or another one put in its place, while it was in use.

    `what` happened; `way_out`: what the log's owner can do.
    """

    def __init__(self, what: str, way_out: str) -> None:
        super().__init__(what, way_out)
        self.what = what
        self.way_out = way_out

    def __str__(self) -> str:
        return f"{self.what}. {self.way_out}"


class LogUnavailable(LogError):
    """The log cannot be reached. The append under way may or may not be there."""


class LogDenied(LogUnavailable):
    """Our own principal lacks a right, which somebody may give it later."""


class OddAnswer(LogUnavailable):
    """A broker answered something else than it was asked; the message says what."""


class Deposed(LogError):
    """Another writer has claimed the partition since."""

    def __init__(self, partition: int, epoch: int) -> None:
        super().__init__(
            f"partition {partition}: this process was deposed (its epoch is {epoch}): another one has taken the event"
            " log over, such as a muster serve with the same --log"
        )
        self.partition = partition
        self.epoch = epoch

    def name_successor(self, owner: str, elected_ms: int, *, shares: bool) -> None:
        """Name the successor (`host:pid`), by its own record, and when by its clock (wall, in ms).

        `shares`: this process shares the log with others, so one of them may rightly have the partition.
        """
        at = datetime.fromtimestamp(elected_ms / 1000, UTC)
        if shares:
            way_out = (
                "This process serves on what it is given; if it had not stood still, and was not cut off,"
                f" {owner} has the same --log without --share-partitions: stop that one"
            )
        else:
            way_out = (
                "One event log has one muster serve: give this one another --log, or point its clients at that one"
            )
        said = (
            f"{owner} took the event log over from this process at {at:%H:%M:%S} UTC (partition {self.partition}, whose"
            f" epoch was {self.epoch}). {way_out}"
        )
        self.args = (said,)


class AppendRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one transition that can never be stored: it is over the limit."""

    size_bytes: int
    limit_bytes: int


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True):
    """The note of an owner (`host:pid`) that it lives, beside the events. `wall_ms`: by its own wall clock."""

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
        """Whether an owner had written to the partition when it was claimed."""
        ...

    @property
    def next_offset(self) -> int | None:
        """One past the last record that this writer has appended; None when it does not know.

        Where it grows by more than was appended, somebody else has appended between.
        """
        ...

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        """Append in order; return when durable, with a verdict for each transition (None: it is there).

        One append at a time. Raises Deposed or LogUnavailable; then nothing is known about this append.
        """
        ...


Repeated = bool | Deposed
"""The outcome of an append that was sent again: True: it was answered as before; Deposed: a newer writer has appended
since; False: nothing is known, as there was none, or no answer."""

Repeats = AsyncGenerator[Mapping[int, Repeated], None]
"""The outcomes of several, by partition, as the answers come."""


class EventLog(Protocol):
    """One log, opened. `location` names it in messages: a topic or a file."""

    @property
    def location(self) -> str: ...

    @property
    def identity(self) -> str:
        """The identity of this log: the same at each opening, another one if the log is recreated.

        Known when the log is open. Letters, digits, `.`, `_` and `-`, so that it can be part of a name in Kafka.
        """
        ...

    @property
    def partitions(self) -> int: ...

    @property
    def format_level(self) -> int:
        """The level at which an owner writes this log, and no other one (see `FORMAT_LEVEL`); known when it is open."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Findings at opening that weaken the guarantee, in words for the operator."""
        ...

    @property
    def trouble(self) -> str | None:
        """The reason why appends fail for the moment, in words for the operator; None: nothing is known to be wrong."""
        ...

    @property
    def can_be_taken_over(self) -> bool:
        """Whether another process can claim partitions while this one runs; else a lock keeps it out."""
        ...

    @property
    def claim_renewal_ms(self) -> int | None:
        """The interval at which an owner must claim anew, or its fence is forgotten; None: a claim stands for ever."""
        ...

    def stored_by(self, partition: int) -> str:
        """Name the broker or file that stores the partition's appends, for people. Any thread may call it."""
        ...

    async def open(self) -> None:
        """Connect, make the log if it is missing and may be made, check its settings. Raises LogError."""
        ...

    async def close(self) -> None: ...

    async def raise_format_level(self) -> None:
        """Have writers that are claimed from now on write at the highest level, and refuse older versions for good.

        Of a log that is open for writing, without an owner. A topic has it noted with their first append. Raises
        LogError.
        """
        ...

    async def claim(self, partition: int) -> LogWriter:
        """Claim the partition: from the new writer's first append on, the former one can append no more.

        A claimer must append something (its fence record) before it trusts what it reads as complete.
        """
        ...

    def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        """Send the last append of each writer again, once, which appends nothing; appends may be under way meanwhile.

        Those that one broker stores go in one request; yields its answers, by partition, as soon as they are there.
        """
        ...

    async def has_owners_record(self, partition: int) -> bool:
        """Whether the partition has a record of an owner's: a claim alone leaves none, and strangers' do not count.

        Of a log that is open for writing. Raises LogUnavailable.
        """
        ...

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """Note that an owner lives, beside the events, in place of the last such note; from format level 4 on.

        It waits for no append, and no append for it longer than for any other. Raises LogError.
        """
        ...

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        """Read the wall time (ms) of the last note of each owner of late, as far as they are kept.

        Raises LogError, and EventsError where the notes cannot be read.
        """
        ...

    async def end_offset(self, partition: int) -> int:
        """Return the offset after the last durable record; UNKNOWN_END where that one cannot be read."""
        ...

    def read(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read chunks of records in offset order, from `start` up to `end` (exclusive; default: the end at the call).

        Foreign records are among them, and say so (`StoredRecord.is_foreign`): `foreign_records.py` skips them.
        Offsets may have gaps where compaction removed records. Reading disturbs no writer.
        """
        ...


Ends = AsyncGenerator[Mapping[int, int], None]
"""The end offsets of several partitions, by partition, as the answers come."""


@runtime_checkable
class FollowedLog(Protocol):
    """A log whose partitions can be followed by a process that does not own them."""

    @property
    def location(self) -> str:
        """See EventLog."""
        ...

    @property
    def deletions_kept_ms(self) -> int | None:
        """How long the log keeps what was deleted, at least, since it was; None: that is not known.

        Who has not read a partition for longer may have missed a deletion: it has been compacted away, its tombstone,
        too.
        """
        ...

    def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
        """Ask once for the ends of these partitions, in one request for those that one broker stores.

        A partition is left out of the answers if its end cannot be had at the moment. Raises nothing of the log's.
        """
        ...

    def read(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        ...

    async def prepare_claim(self, partition: int) -> None:
        """Do ahead what a claim of the partition would wait for, without changing anything, unless it is done.

        Raises nothing of the log's: what cannot be done costs the claim time.
        """
        ...


@runtime_checkable
class SearchableLog(Protocol):
    """A log that finds records by their keys without reading the values of others."""

    def read_wanted(
        self, partition: int, wanted: Sequence[bytes], *, start: int, end: int
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read chunks as `EventLog.read`, but leave out other keys of ours than those that begin with one of `wanted`.

        See `events.keys.prefix_of`. A key that is not ours is there; one of ours that is broken further in may not be.
        """
        ...


@runtime_checkable
class ReplaceableLog(Protocol):
    """A log in a file or a topic, which somebody may take away or replace while it is open."""

    async def check_in_place(self) -> None:
        """Check that its path or name still names what was opened. Raises LogMismatch, LogUnavailable."""
        ...


@runtime_checkable
class WatchedLog(Protocol):
    """A log whose settings somebody else may change, or of which somebody may delete a part, while it is served."""

    async def flaws(self) -> Sequence[str]:
        """Look at the settings, and where the records begin; say what is wrong, each with the way out.

        Of a log that is open for writing. Raises LogUnavailable, LogMismatch.
        """
        ...


class OwnersMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a partition's owners, by which strangers' records are told (see kafka/marks.py).

    `since`: the offset from which on owners mark; `native_from`: from which on marked records must be native; `home`:
    the cluster whose owners count. None: not noted.
    """

    since: int | None = None
    native_from: int | None = None
    home: str | None = None


@runtime_checkable
class RawLog(Protocol):
    """A log whose records have headers, and may be strangers': both can be had as they are stored."""

    def read_raw(self, partition: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[RawRecord]]:
        """Read chunks as `EventLog.read`, byte by byte, strangers' records among them, with all that they carry.

        A stranger's batch that cannot be read is left out; an owner's raises BrokenBatch.
        """
        ...

    async def owners_marks(self, partition: int) -> OwnersMarks:
        """Read the notes of the partition's last owner. Raises LogUnavailable."""
        ...
