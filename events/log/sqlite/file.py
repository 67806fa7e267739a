"""One SQLite file with one writing thread, shared by the event log and the offset store of standalone mode.

Manages threads, connections and transactions. Knows nothing of the contents of tables.

*Group commit.* A write is a function that takes the connection. While one transaction is being made durable, incoming
writes queue up and then form the next transaction, so many partitions, groups and offset commits share one sync of the
disk. Each write has its own savepoint: if it raises a LogError, only this write is undone, and only its caller gets the
error. Any other exception undoes the whole transaction, and all its callers get that exception.

*Reading* has its own thread and read-only connection. The file is in WAL mode, so a reader sees whole transactions and
neither waits for the writer nor blocks it, as long as its own transactions are short: a long one would prevent
checkpoints of the write-ahead log.

*A disk that does not respond* blocks a thread, never the process: calls raise LogUnavailable after a timeout, and the
write in flight may or may not be stored, as after any failure. Once the disk responds, new calls work immediately.
Closing the file waits for the disk for a few seconds at most.

*A file that is damaged, missing, or not the one that was opened* is never written again: every write raises the same
LogMismatch. A log that keeps the file open calls `check_in_place` periodically.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from muster.events.log.base import LogError, LogMismatch, LogUnavailable
from muster.events.log.sqlite.disk_thread import DiskThread
from muster.events.log.sqlite.failures import failure_of
from muster.events.log.sqlite.open import (
    FileIdentity,
    FileLock,
    check_same_file,
    connect_and_prepare,
    connect_for_reading,
    connect_for_writing,
    connect_to_salvage,
    identities,
    identity_of_read,
    look_at,
)
from muster.events.log.sqlite.permissions import refuse_unusable

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""The timeout of a write or a read, like that of an append to a Kafka log."""

SLOW_DISK_S = 5.0
"""The time after which a disk is reported as not responding."""

FILE_CLOSE_TIMEOUT_S = 5.0
_LOOK_TIMEOUT_S = 1.0


class _Write(Generic[T]):
    """A waiting write: the change, and the future of its caller."""

    def __init__(
        self, change: Callable[[sqlite3.Connection], T], done: "asyncio.Future[T]", note: Callable[[T], bytes] | None
    ) -> None:
        self.change = change
        self.done = done
        self.note = note
        self.result: T
        self.error: LogError | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Make the change in a savepoint; called on the writer's thread."""
        connection.execute("SAVEPOINT one")
        try:
            self.result = self.change(connection)
        except LogError as error:
            connection.execute("ROLLBACK TO one")
            self.error = error
        connection.execute("RELEASE one")

    def set_outcome(self, failure: BaseException | None) -> None:
        """Set the outcome; `failure` is that of the whole transaction."""
        error = failure or self.error
        if self.done.done():
            return  # the caller was cancelled
        if error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(error)


class SqliteFile:
    """A SQLite file, opened by at most one writing process at a time, and by any number of reading ones.

    With `exclusive` False there is no lock between processes; the caller then fences writers in another way.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        exclusive: bool = True,
        call_timeout_s: float = CALL_TIMEOUT_S,
        slow_after_s: float = SLOW_DISK_S,
        close_timeout_s: float = FILE_CLOSE_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._call_timeout_s = call_timeout_s
        self._slow_after_s = slow_after_s
        self._close_timeout_s = close_timeout_s
        self._read_only = read_only
        self._lock = FileLock(path) if exclusive and not read_only else None
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._writer = DiskThread("sqlite-writer")
        self._reader = DiskThread("sqlite-reader")
        self._looker = DiskThread("sqlite-place")
        self._waiting: list[_Write[Any]] = []
        self._in_flight: list[_Write[Any]] = []
        self._committing: asyncio.Future[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._place: Mapping[Path, FileIdentity] = {}
        self._given_up: LogMismatch | None = None

    @property
    def path(self) -> Path:
        return self._path

    async def open(
        self, prepare: Callable[[sqlite3.Connection], T], *, look: Callable[[sqlite3.Connection], None] | None = None
    ) -> T:
        """Open or create the file, and run `prepare` on it first, outside of any transaction.

        `look` runs on an existing file before anything is created, even the lock. Raises LogMismatch if the file cannot
        be opened or another process has it, and the errors of `look` and `prepare`.
        """
        path = self._path
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self.close)
            lock = self._lock is not None
            await self._reader.submit(partial(refuse_unusable, path, writes=not self._read_only, locks=lock))
            if look is not None:
                await self._reader.submit(partial(look_at, path, look))
            if self._lock is not None:
                self._lock.acquire()
            if self._read_only:
                self._reading, prepared = await self._reader.submit(
                    partial(connect_and_prepare, path, connect_to_salvage, prepare)
                )
                self._place = await self._looker.submit(partial(identity_of_read, path))
            else:
                self._writing, prepared = await self._writer.submit(
                    partial(connect_and_prepare, path, connect_for_writing, prepare)
                )
                self._reading, _ = await self._reader.submit(
                    partial(connect_and_prepare, path, connect_for_reading, _nothing)
                )
                self._place = await self._looker.submit(partial(identities, path))
            on_failure.pop_all()
        return prepared

    @property
    def trouble(self) -> str | None:
        """How long the disk has not responded, for messages; None if it responds. Any thread may read it."""
        busy_s = max(thread.busy_s for thread in (self._writer, self._reader, self._looker))
        return None if busy_s < self._slow_after_s else f"the disk of {self._path} has not answered for {busy_s:.0f} s"

    async def check_in_place(self) -> None:
        """Check that the path still names the file that was opened. Raises LogMismatch, after which every write fails.

        If the disk does not respond, nothing is raised: `trouble` reports it.
        """
        if not self._place:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                look = partial(check_same_file, self._path, self._place, read_only=self._read_only)
                await self._giving_up(self._looker.submit(look))

    async def close(self, last: Callable[[sqlite3.Connection], None] | None = None) -> None:
        """Close after the waiting writes. Idempotent.

        `last` runs on the writing connection just before it is closed, unless there is none or writing has already
        failed for good. If the disk does not respond within `close_timeout_s`, the lock is held until the process
        exits.
        """
        reading, self._reading = self._reading, None
        writing, self._writing = self._writing, None
        self._place = {}  # closing ends the write-ahead log
        is_closed = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._close_timeout_s):
                while self._committing is not None:
                    await asyncio.wait([self._committing])
                # The writer goes last: the last connection checkpoints the write-ahead log, which a reader may not.
                if reading is not None:
                    await self._reader.submit(reading.close)
                if writing is not None:
                    await self._writer.submit(partial(_close, writing, None if self._given_up else last))
                is_closed = True
        for thread in (self._writer, self._reader, self._looker):
            thread.end()
        if not is_closed:
            self._fail_all()
        elif self._lock is not None:
            self._lock.release()
        if self._overdue is not None:
            self._overdue.cancel()

    async def write(self, change: Callable[[sqlite3.Connection], T], *, note: Callable[[T], bytes] | None = None) -> T:
        """Run the change in a transaction; return its result once it is durable.

        `note` turns the result into the note that is then written next to the file; it is called on the writer's
        thread.

        Raises LogUnavailable if the disk fails or does not respond (the change may or may not be stored), LogMismatch
        if the file is damaged or not in its place, or the LogError that the change itself raised (it is not stored).
        """
        if self._writing is None:
            raise LogUnavailable(f"the event log {self._path} is not open for writing")
        if self._given_up is not None:
            raise self._given_up
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(change, done, note))
        if self._committing is None:
            self._commit_waiting(self._writing)
        return await done

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run the query on the reader's connection. It must be short, and fetch all its results.

        Raises LogUnavailable and LogDamaged.
        """
        if self._reading is None:
            raise LogUnavailable(f"the event log {self._path} is not open")
        try:
            async with asyncio.timeout(self._call_timeout_s):
                return await self._giving_up(self._reader.submit(partial(_read, self._path, query, self._reading)))
        except TimeoutError as error:
            raise self._unanswered() from error

    async def _giving_up(self, asked: "asyncio.Future[T]") -> T:
        """Return the result of a call; a permanent error also makes every later write fail."""
        try:
            return await asked
        except LogMismatch as error:
            self._given_up = self._given_up or error
            raise

    def _commit_waiting(self, connection: sqlite3.Connection) -> None:
        group, self._waiting = self._waiting, []
        self._in_flight = group
        self._committing = self._writer.submit(partial(_commit, self._path, group, connection, self._lock))
        self._committing.add_done_callback(partial(self._committed, group, connection))
        self._overdue = asyncio.get_running_loop().call_later(self._call_timeout_s, self._fail_overdue)

    def _fail_all(self) -> None:
        """Fail the writes that wait for a disk that does not respond."""
        for write in [*self._in_flight, *self._waiting]:
            write.set_outcome(self._unanswered())
        self._waiting.clear()

    def _fail_overdue(self) -> None:
        """Fail the waiting writes, and later ones after the same timeout."""
        self._fail_all()
        self._overdue = asyncio.get_running_loop().call_later(self._call_timeout_s, self._fail_overdue)

    def _unanswered(self) -> LogUnavailable:
        trouble = self.trouble or f"the disk of {self._path} has not answered for {self._call_timeout_s:.0f} s"
        return LogUnavailable(trouble)

    def _committed(
        self, group: list[_Write[Any]], connection: sqlite3.Connection, committing: "asyncio.Future[None]"
    ) -> None:
        self._committing, self._in_flight = None, []
        if self._overdue is not None:
            self._overdue.cancel()
        failure = committing.exception()
        if isinstance(failure, LogMismatch):
            self._given_up = self._given_up or failure
        for write in group:
            write.set_outcome(failure)
        if self._given_up is not None:
            for write in self._waiting:
                write.set_outcome(self._given_up)
            self._waiting.clear()
        if self._waiting:
            self._commit_waiting(connection)


def _nothing(_: sqlite3.Connection) -> None: ...


def _close(connection: sqlite3.Connection, last: Callable[[sqlite3.Connection], None] | None) -> None:
    with suppress(sqlite3.Error):
        if last is not None:
            last(connection)
    connection.close()


def _commit(path: Path, group: list[_Write[Any]], connection: sqlite3.Connection, lock: FileLock | None) -> None:
    try:
        try:
            connection.execute("BEGIN IMMEDIATE")
            for write in group:
                write.run(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        raise failure_of(error, path, "written") from error
    notes = [write.note(write.result) for write in group if write.note is not None and write.error is None]
    if lock is not None and notes:
        lock.note(notes[-1])


def _read(path: Path, query: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    try:
        return query(connection)
    except sqlite3.Error as error:
        raise failure_of(error, path, "read") from error
