"""The event log in one SQLite file: the embedded default, without any server.

It implements the contract of `base.py` on the tables of `schema.py`. Threads and transactions are in `file.py`.

*Atomic*: an append is one transaction, so if the process is killed in the middle of it nothing is stored. *Fenced*:
claiming raises the partition's epoch in the table `owners`; an append compares it in its own transaction, so a deposed
writer fails before anything is stored. Before that, the file's lock keeps a second process out, with one clear message,
instead of the two deposing each other. *Offsets* are counted by partition, without gaps, and never reused: trimming
keeps the last record.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from muster.events.log.base import (
    UNKNOWN_END,
    AppendRefused,
    LogDamaged,
    LogUnavailable,
    LogWriter,
    Repeats,
    SignOfLife,
)
from muster.events.log.limits import BATCH_BYTES_MAX, verdict_on
from muster.events.log.sqlite import schema as sqlite_schema
from muster.events.log.sqlite import statements
from muster.events.log.sqlite import trim as sqlite_trim
from muster.events.log.sqlite.failures import read_around
from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.missing_records import (
    PartitionEnds,
    describe_missing,
    encode_note,
    note_closed,
    note_in_use,
    read_ends,
)
from muster.events.log.sqlite.schema import Meta
from muster.events.log.sqlite.trim import Trimmed
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, FORMAT_LEVEL_WRITTEN_MIN, StoredRecord, Transition

T = TypeVar("T")

_SEARCHED_OFFSETS = 50_000
"""How many offsets one read searches for wanted keys: about 20 ms of work."""


class SqliteEventLog:
    """An `EventLog` in a file. `file` is for the other tables that standalone mode keeps next to the log's.

    `partitions` is used when the file is created (default 8), and compared if it exists already. A given
    `audit_window_ms` is stored; otherwise the file's own applies (7 days in a new file).
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        exclusive: bool = True,
        partitions: int | None = None,
        audit_window_ms: int | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.file = SqliteFile(path, read_only=read_only, exclusive=exclusive)
        self._read_only = read_only
        self._partitions_asked_for = partitions
        self._audit_window_ms = audit_window_ms
        self._batch_bytes_max = batch_bytes_max
        self._wall_ms = wall_ms
        self._meta: Meta | None = None
        self._damage: dict[int, LogDamaged] = {}
        self._gaps: dict[int, str] = {}
        self._looked_to: dict[int, int] = {}
        """The offset up to which gaps have been searched for, by partition."""
        self._missing: str | None = None
        self._ends = PartitionEnds(log_id="", offsets={})
        """The ends of a log that is open for writing, as in its note; changed only on the writer's thread."""
        self._exclusive = exclusive

    @property
    def location(self) -> str:
        return str(self.file.path)

    @property
    def identity(self) -> str:
        """The id that was created with the file; a copy of the file has it too."""
        return self.meta.log_id

    @property
    def partitions(self) -> int:
        return self.meta.partitions

    @property
    def format_level(self) -> int:
        return max(FORMAT_LEVEL_WRITTEN_MIN, self.meta.format_level)

    @property
    def warnings(self) -> Sequence[str]:
        """Missing last records; and, once it was read, the damage of a file that is opened for reading."""
        found = [] if self._missing is None else [self._missing]
        if self._damage:
            partitions = " and ".join(map(str, sorted(self._damage)))
            first, *_ = self._damage.values()
            found.append(f"{first}. The unreadable records of partition {partitions} were left out")
        found += [
            f"the event log {self.location} lacks {gap} of partition {partition}: it was damaged, or made"
            " from a damaged one. What is shown lacks them"
            for partition, gap in self._gaps.items()
            if partition not in self._damage
        ]
        return found

    @property
    def trouble(self) -> str | None:
        return self.file.trouble  # the disk does not respond

    def stored_by(self, _partition: int) -> str:
        return f"the disk of {self.location}"

    @property
    def supports_takeover(self) -> bool:
        return False  # the file is locked while it is open for writing

    @property
    def claim_renewal_ms(self) -> int | None:
        return None  # epochs are kept in the file

    @property
    def meta(self) -> Meta:
        """The file's own settings. Raises LogUnavailable before `open`."""
        if self._meta is None:
            raise LogUnavailable(f"the event log {self.location} is not open")
        return self._meta

    async def open(self) -> None:
        """See EventLog. Raises LogMismatch, LogUnavailable, or LogTooNew (events.records)."""
        look = partial(sqlite_schema.refuse_foreign, location=self.location)
        self._meta, self._missing = await self.file.open(self._prepare, look=look)

    def _prepare(self, connection: sqlite3.Connection) -> tuple[Meta, str | None]:
        """Return the settings, and what is missing; the check comes before any change."""
        location, partitions = self.location, self._partitions_asked_for
        if self._read_only:
            meta = sqlite_schema.check(connection, location, partitions=partitions)
            return meta, self._lacks(meta, connection)
        missing = None
        if not sqlite_schema.is_empty(connection):
            meta = sqlite_schema.check(connection, location, partitions=partitions)
            missing = self._lacks(meta, connection)
        meta = sqlite_schema.prepare(connection, location, partitions=partitions, audit_window_ms=self._audit_window_ms)
        self._ends = read_ends(connection, meta)
        if self._exclusive:  # otherwise another owner may have it open when this one closes it
            note_in_use(connection)
        return meta, missing

    def _lacks(self, meta: Meta, connection: sqlite3.Connection) -> str | None:
        return describe_missing(connection, meta, self.file.path) if self._exclusive else None

    async def check_in_place(self) -> None:
        """See ReplaceableLog."""
        await self.file.check_in_place()

    async def close(self) -> None:
        await self.file.close(note_closed if self._exclusive else None)

    async def raise_format_level(self) -> None:
        await self.file.write(sqlite_schema.upgrade)
        self._meta = msgspec.structs.replace(self.meta, format_level=FORMAT_LEVEL)

    async def claim(self, partition: int) -> "SqliteLogWriter":
        self._check_partition(partition)
        epoch = await self.file.write(partial(statements.claim, partition))
        return SqliteLogWriter(
            self.file,
            partition,
            epoch,
            self._batch_bytes_max,
            self._wall_ms,
            note=self._note_end,
            was_owned=await self.has_owners_record(partition),
        )

    def _note_end(self, partition: int, end: int) -> bytes:
        self._ends.offsets[partition] = end
        return encode_note(self._ends)

    async def restore(self, records: Sequence[StoredRecord]) -> None:
        """Store records with their existing offsets and times. Only for a log that no owner has claimed."""
        await self.file.write(partial(statements.restore, records))

    async def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:  # noqa: ARG002 -- asks no broker
        """See EventLog: a lock keeps other writers out, so there is nothing to prove."""
        yield dict.fromkeys((writer.partition for writer in writers), False)

    async def has_owners_record(self, partition: int) -> bool:
        """Return whether the partition has any record: the file has no foreign ones."""
        return await self.end_offset(partition) > 0

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """See EventLog: the sign is a row, written in a transaction with the current appends."""
        await self._in_time(self.file.write(lambda connection: statements.leave_sign(sign, connection)), timeout_ms)

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        """See EventLog: only of the last owner."""
        return await self._in_time(self.file.read(statements.last_sign), timeout_ms)

    async def _in_time(self, asked: Awaitable[T], timeout_ms: int) -> T:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asked
        except TimeoutError as error:
            raise LogUnavailable(f"the disk of {self.location} has not answered for {timeout_ms} ms") from error

    async def end_offset(self, partition: int) -> int:
        self._check_partition(partition)
        try:
            return await self.file.read(partial(statements.end_offset, partition))
        except LogDamaged as damage:
            self._note(partition, damage)
            return UNKNOWN_END

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """Read as the contract says; each chunk is a separate read transaction.

        When opened for reading, a damaged file is read as far as possible; `warnings` reports the damage afterwards.
        """
        stop = await self.end_offset(partition)
        if end is not None:
            stop = min(stop, end)
        read_range = partial(self._read_range, partition, ())
        while start < stop:
            try:
                chunk = await read_range(start, stop)
                await self._check_gap(partition, start, chunk[-1].offset + 1 if chunk else stop, len(chunk))
            except LogDamaged as damage:
                self._note(partition, damage)
                break
            if not chunk:
                return
            yield chunk
            start = chunk[-1].offset + 1
        async for chunk in read_around(read_range, start, stop):
            yield chunk

    async def read_wanted(
        self, partition: int, wanted: Sequence[bytes], *, start: int, end: int
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See SearchableLog. In a damaged file, or a damaged end of it, records with any key are read."""
        with suppress(LogDamaged):  # reading everything raises it again, and notes it
            while start < end < UNKNOWN_END:
                until = min(end, start + _SEARCHED_OFFSETS)
                chunk = await self._read_range(partition, wanted, start, until)
                until = chunk[-1].offset + 1 if chunk else until
                await self._check_gap(partition, start, until, len(chunk))
                if chunk:
                    yield chunk
                start = until
        async for chunk in self.read(partition, start=start, end=end):
            yield chunk

    async def _read_range(
        self, partition: int, wanted: Sequence[bytes], start: int, end: int
    ) -> Sequence[StoredRecord]:
        return await self.file.read(partial(statements.read_chunk, partition, wanted, start, end))

    async def _check_gap(self, partition: int, start: int, end: int, found: int = -1) -> None:
        """When opened for reading, note if not all records between two offsets exist. Raises LogDamaged.

        An owner accepts a file as it is: it may be what was recovered from a damaged one.
        """
        if not self._read_only or found == end - start or end <= self._looked_to.get(partition, 0):
            return
        self._looked_to[partition] = end
        lacking = await self.file.read(partial(statements.lacking, partition, start, end))
        if lacking:
            self._gaps.setdefault(partition, f"{lacking:,} of the records between offsets {start} and {end}")

    def _note(self, partition: int, damage: LogDamaged) -> None:
        """Note damage when opened for reading, else raise it: an owner must not continue with only some of the
        records.
        """
        if not self._read_only:
            raise damage
        self._damage.setdefault(partition, damage)

    async def trim(self, now_ms: int) -> Trimmed:
        """Compact a bounded number of records older than the audit window; see `trim.py`. `now_ms`: wall clock.

        Call it periodically, and again immediately while the result says that there is more.
        """
        return await sqlite_trim.trim(self.file, self.meta, now_ms)

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise ValueError(f"{self.location} has no partition {partition}, it has {self.partitions}")


class SqliteLogWriter:
    """A `LogWriter`: its epoch is compared with the file's at each append."""

    def __init__(
        self,
        file: SqliteFile,
        partition: int,
        epoch: int,
        batch_bytes_max: int,
        wall_ms: Callable[[], int],
        *,
        note: Callable[[int, int], bytes],
        was_owned: bool,
    ) -> None:
        self.was_owned = was_owned
        self._file = file
        self._partition = partition
        self._epoch = epoch
        self._batch_bytes_max = batch_bytes_max
        self._wall_ms = wall_ms
        self._note = note
        self._next_offset: int | None = None

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_offset(self) -> int | None:
        return self._next_offset

    async def append(self, transitions: Sequence[Transition]) -> Sequence[AppendRefused | None]:
        verdicts = [verdict_on(transition, self._batch_bytes_max) for transition in transitions]
        accepted = [transition for transition, verdict in zip(transitions, verdicts, strict=True) if verdict is None]
        append = partial(statements.append, self._partition, self._epoch, self._wall_ms(), accepted)
        self._next_offset = await self._file.write(append, note=partial(self._note, self._partition))
        return verdicts
