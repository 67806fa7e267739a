"""The event log in one SQLite file: the embedded default, without any server.

What belongs here: the contract of `base.py` on the tables of `schema.py`. Threads and transactions are
`file.py`'s.

*Atomic*: an append is one transaction, so of a process that was killed in the middle of it nothing is there.
*Fenced*: claiming raises the partition's epoch in the table `owners`; an append compares it in its own transaction,
so a deposed writer finds out before anything of it is there. A second process is kept out before that by the file's
lock, with one clear message, instead of the two deposing each other.
*Offsets* are counted by partition, without gaps, and never used again: trimming leaves the last record alone.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from muster.events.keys import KEY_HEADER
from muster.events.log.base import AppendRefused, Deposed, LogDamaged, LogUnavailable, SignOfLife
from muster.events.log.limits import BATCH_BYTES_MAX, CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX, verdict_on
from muster.events.log.sqlite import schema as sqlite_schema
from muster.events.log.sqlite import trim as sqlite_trim
from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.salvage import UNKNOWN_END, read_around
from muster.events.log.sqlite.schema import Meta
from muster.events.log.sqlite.trim import Trimmed
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, FORMAT_LEVEL_WRITTEN_MIN, StoredRecord, Transition

T = TypeVar("T")

_BATCH_RECORDS = 200
"""The records read at once: a chunk exceeds its limit by less than this."""

_CLAIM = "INSERT INTO owners VALUES (?, 1) ON CONFLICT (partition) DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
_EPOCH = "SELECT epoch FROM owners WHERE partition = ?"
_LAST_OFFSET = "SELECT offset FROM records WHERE partition = ? ORDER BY offset DESC LIMIT 1"
_LEAVE_SIGN = "INSERT OR REPLACE INTO meta VALUES ('sign_of_life', ?)"
_LAST_SIGN = "SELECT value FROM meta WHERE name = 'sign_of_life'"
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?)"
_READ = "SELECT offset, timestamp_ms, key, value FROM records WHERE partition = ? AND offset >= ? AND offset < ?"
_IN_ORDER = " ORDER BY offset LIMIT ?"
_SEARCHED_OFFSETS = 50_000
"""The offsets that one read looks through for wanted keys: some 20 ms."""


class SqliteEventLog:
    """An `EventLog` in a file. `file` is for the other tables that standalone mode keeps beside the log.

    `partitions` counts when the file is made (default 8), and is compared when it is there already. A given
    `audit_window_ms` is stored; without one the file's own holds (7 days in a new file).
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
        self._damage: LogDamaged | None = None

    @property
    def location(self) -> str:
        return str(self.file.path)

    @property
    def identity(self) -> str:
        """The id that was made with the file; a copy of the file has it, too."""
        return self.meta.log_id

    @property
    def partitions(self) -> int:
        return self.meta.partitions

    @property
    def format_level(self) -> int:
        return max(FORMAT_LEVEL_WRITTEN_MIN, self.meta.format_level)

    @property
    def warnings(self) -> Sequence[str]:
        """The damage of a file that is opened for reading, once it was read."""
        return () if self._damage is None else (f"{self._damage}. What cannot be read was left out",)

    @property
    def trouble(self) -> str | None:
        """See EventLog: the disk does not answer."""
        return self.file.trouble

    def stored_by(self, _partition: int) -> str:
        """See EventLog: the file."""
        return f"the disk of {self.location}"

    @property
    def can_be_taken_over(self) -> bool:
        """No: the file is locked while it is open for writing."""
        return False

    @property
    def claim_renewal_ms(self) -> int | None:
        """None: epochs are kept in the file."""
        return None

    @property
    def meta(self) -> Meta:
        """The file's own settings. Raises LogUnavailable before `open`."""
        if self._meta is None:
            raise LogUnavailable(f"the event log {self.location} is not open")
        return self._meta

    async def open(self) -> None:
        """See EventLog. Raises LogMismatch, LogUnavailable, or LogTooNew (events.records)."""
        if self._read_only:
            prepare = partial(sqlite_schema.check, location=self.location, partitions=self._partitions_asked_for)
        else:
            prepare = partial(
                sqlite_schema.prepare,
                location=self.location,
                partitions=self._partitions_asked_for,
                audit_window_ms=self._audit_window_ms,
            )
        look = partial(sqlite_schema.refuse_somebody_elses, location=self.location)
        self._meta = await self.file.open(prepare, look=look)

    async def close(self) -> None:
        await self.file.close()

    async def raise_format_level(self) -> None:
        await self.file.write(sqlite_schema.upgrade)
        self._meta = msgspec.structs.replace(self.meta, format_level=FORMAT_LEVEL)

    async def claim(self, partition: int) -> "SqliteLogWriter":
        self._check_partition(partition)
        epoch = await self.file.write(partial(_claim, partition))
        return SqliteLogWriter(self.file, partition, epoch, self._batch_bytes_max, self._wall_ms)

    async def restore(self, records: Sequence[StoredRecord]) -> None:
        """Store records with the offsets and times that they have already. Of a log that no owner has claimed."""
        await self.file.write(partial(_restore, records))

    async def has_owners_record(self, partition: int) -> bool:
        """Whether the partition has any record: no stranger writes into the file."""
        return await self.end_offset(partition) > 0

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """See EventLog: a row, in a transaction with the appends of the moment."""
        await self._in_time(self.file.write(lambda connection: _leave_sign(sign, connection)), timeout_ms)

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        """See EventLog: of the last owner alone."""
        return await self._in_time(self.file.read(_last_sign), timeout_ms)

    async def _in_time(self, asked: Awaitable[T], timeout_ms: int) -> T:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asked
        except TimeoutError as error:
            raise LogUnavailable(f"the disk of {self.location} has not answered for {timeout_ms} ms") from error

    async def end_offset(self, partition: int) -> int:
        self._check_partition(partition)
        try:
            return await self.file.read(partial(_end_offset, partition))
        except LogDamaged as damage:
            self._note(damage)
            return UNKNOWN_END

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """As in the contract; each chunk is a read transaction of its own.

        Opened for reading, a damaged file is read as far as that can be done; `warnings` tells of it afterwards.
        """
        stop = await self.end_offset(partition)
        if end is not None:
            stop = min(stop, end)
        read_range = partial(self._read_range, partition, ())
        while start < stop:
            try:
                chunk = await read_range(start, stop)
            except LogDamaged as damage:
                self._note(damage)
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
        """See SearchableLog. Of a damaged file, or of its end, everything is read."""
        with suppress(LogDamaged):  # who reads everything meets it again, and notes it
            while start < end < UNKNOWN_END:
                until = min(end, start + _SEARCHED_OFFSETS)
                chunk = await self._read_range(partition, wanted, start, until)
                if chunk:
                    yield chunk
                start = chunk[-1].offset + 1 if chunk else until
        async for chunk in self.read(partition, start=start, end=end):
            yield chunk

    async def _read_range(
        self, partition: int, wanted: Sequence[bytes], start: int, end: int
    ) -> Sequence[StoredRecord]:
        return await self.file.read(partial(_read_chunk, partition, wanted, start, end))

    def _note(self, damage: LogDamaged) -> None:
        """Note damage when opened for reading, else raise it: an owner must not go on with a part of the records."""
        if not self._read_only:
            raise damage
        self._damage = damage

    async def trim(self, now_ms: int) -> Trimmed:
        """Compact a bounded number of records older than the audit window; see `trim.py`. `now_ms`: wall clock.

        Call it now and then, and again at once while the result says that there is more.
        """
        return await sqlite_trim.trim(self.file, self.meta, now_ms)

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise ValueError(f"{self.location} has no partition {partition}, it has {self.partitions}")


class SqliteLogWriter:
    """A `LogWriter`: the epoch that it was given, compared with the file's at each append."""

    def __init__(
        self, file: SqliteFile, partition: int, epoch: int, batch_bytes_max: int, wall_ms: Callable[[], int]
    ) -> None:
        self._file = file
        self._partition = partition
        self._epoch = epoch
        self._batch_bytes_max = batch_bytes_max
        self._wall_ms = wall_ms
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
        append = partial(_append, self._partition, self._epoch, self._wall_ms(), accepted)
        self._next_offset = await self._file.write(append)
        return verdicts


def _claim(partition: int, connection: sqlite3.Connection) -> int:
    epoch: int = connection.execute(_CLAIM, (partition,)).fetchone()[0]
    return epoch


def _append(
    partition: int,
    epoch: int,
    timestamp_ms: int,
    transitions: Iterable[Transition],
    connection: sqlite3.Connection,
) -> int:
    """Append the transitions; returns the offset after the last record."""
    owner = connection.execute(_EPOCH, (partition,)).fetchone()
    if owner is None or owner[0] != epoch:
        raise Deposed(partition, epoch)
    offset = _end_offset(partition, connection)
    records = [record for transition in transitions for record in transition]
    connection.executemany(
        _INSERT,
        ((partition, offset, timestamp_ms, record.key, record.value) for offset, record in enumerate(records, offset)),
    )
    return offset + len(records)


def _restore(records: Iterable[StoredRecord], connection: sqlite3.Connection) -> None:
    connection.executemany(_INSERT, ((r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records))


def _leave_sign(sign: SignOfLife, connection: sqlite3.Connection) -> None:
    connection.execute(_LEAVE_SIGN, (msgspec.json.encode(sign).decode(),))


def _last_sign(connection: sqlite3.Connection) -> dict[str, int]:
    row = connection.execute(_LAST_SIGN).fetchone()
    try:
        sign = None if row is None else msgspec.json.decode(row[0], type=SignOfLife)
    except msgspec.MsgspecError:  # somebody has changed it by hand
        return {}
    return {} if sign is None else {sign.owner: sign.wall_ms}


def _end_offset(partition: int, connection: sqlite3.Connection) -> int:
    last = connection.execute(_LAST_OFFSET, (partition,)).fetchone()
    return 0 if last is None else last[0] + 1


def _read_chunk(
    partition: int, wanted: Sequence[bytes], start: int, end: int, connection: sqlite3.Connection
) -> list[StoredRecord]:
    query, values = _READ, list[int | bytes]((partition, start, end))
    if wanted:  # by the key alone, so that the values of others are not read
        query += f" AND (substr(key, 1, ?) <> ?{' OR substr(key, 1, ?) = ?' * len(wanted)})"
        values.extend(each for prefix in (KEY_HEADER, *wanted) for each in (len(prefix), prefix))
    rows = connection.execute(query + _IN_ORDER, (*values, CHUNK_RECORDS_MAX))
    chunk: list[StoredRecord] = []
    size_bytes = 0
    # By batches, since counting the bytes row by row costs a fifth of the reading.
    while size_bytes < CHUNK_BYTES_MAX and (batch := rows.fetchmany(_BATCH_RECORDS)):
        chunk += [
            StoredRecord(partition, offset, timestamp_ms, key, value) for offset, timestamp_ms, key, value in batch
        ]
        size_bytes += sum([len(value or b"") for _, _, _, value in batch])
    rows.close()  # ends the read transaction
    return chunk
