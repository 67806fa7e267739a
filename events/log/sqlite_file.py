"""One SQLite file, one thread that writes it: what the event log and the offset store of standalone mode share.

What belongs here: threads, connections, transactions. What it must not know: what the tables hold.

*Group commit.* A write is a function that is given the connection. While one transaction is being made durable, the
writes that come in wait, and all of them together become the next transaction, so many partitions, groups and
offset commits share one sync of the disk. Each write stands in a savepoint of its own: one that raises a LogError
is undone alone, and only its caller gets the error. Anything else that a write raises undoes the whole
transaction, and all callers in it get it.

*Reading* has a thread and a read-only connection of its own. The file is in WAL mode, so a reader sees whole
transactions and neither waits for the writer nor holds it up, as long as its own transactions are short: a long
one would keep the write-ahead log from being folded back into the file.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from events.log.base import LogError, LogUnavailable
from events.log.sqlite_open import FileLock, connect_for_reading, connect_for_writing, connected

T = TypeVar("T")


class _Write(Generic[T]):
    """A write that waits: what to do, and who is to be told."""

    def __init__(self, change: Callable[[sqlite3.Connection], T], done: "asyncio.Future[T]") -> None:
        self.change = change
        self.done = done
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

    def tell(self, failure: BaseException | None) -> None:
        """Pass on the outcome; `failure` is that of the whole transaction."""
        error = failure or self.error
        if self.done.done():
            return  # the caller was cancelled
        if error is None:
            self.done.set_result(self.result)
        else:
            self.done.set_exception(error)


class SqliteFile:
    """A SQLite file, opened by at most one writing process at a time, and by any number of reading ones.

    `exclusive` False leaves out the lock between processes; the caller has another way to tell writers apart.
    """

    def __init__(self, path: Path, *, read_only: bool = False, exclusive: bool = True) -> None:
        self._path = path
        self._read_only = read_only
        self._lock = FileLock(path) if exclusive and not read_only else None
        self._writing: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._writer = ThreadPoolExecutor(1, "sqlite-writer")
        self._reader = ThreadPoolExecutor(1, "sqlite-reader")
        self._waiting: list[_Write[Any]] = []
        self._committing: asyncio.Future[None] | None = None

    @property
    def path(self) -> Path:
        return self._path

    async def open(self, prepare: Callable[[sqlite3.Connection], T]) -> T:
        """Open the file, or make it, and run `prepare` on it, outside of any transaction, before anything else.

        Raises LogMismatch when the file cannot be opened or another process has it, and what `prepare` raises.
        """
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(self.close)
            if self._lock is not None:
                self._lock.acquire()
            if self._read_only:
                self._reading, prepared = await loop.run_in_executor(
                    self._reader, connected, self._path, connect_for_reading, prepare
                )
            else:
                self._writing, prepared = await loop.run_in_executor(
                    self._writer, connected, self._path, connect_for_writing, prepare
                )
                self._reading, _ = await loop.run_in_executor(
                    self._reader, connected, self._path, connect_for_reading, _nothing
                )
            on_failure.pop_all()
        return prepared

    async def close(self) -> None:
        """Close when what was to be written is written. Closing twice is no error."""
        reading, self._reading = self._reading, None
        writing, self._writing = self._writing, None
        while self._committing is not None:
            await asyncio.wait([self._committing])
        loop = asyncio.get_running_loop()
        # The writer goes last: the last connection folds the write-ahead log into the file, which no reader may.
        if reading is not None:
            await loop.run_in_executor(self._reader, reading.close)
        if writing is not None:
            await loop.run_in_executor(self._writer, writing.close)
        self._reader.shutdown()
        self._writer.shutdown()
        if self._lock is not None:
            self._lock.release()

    async def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Run the change in a transaction; return what it returned when that is durable.

        Raises LogUnavailable when the disk or the file fails (the change may or may not be there), or what LogError
        the change itself raised (it is not there).
        """
        if self._writing is None:
            raise LogUnavailable(f"the event log {self._path} is not open for writing")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(change, done))
        if self._committing is None:
            self._commit_waiting(self._writing)
        return await done

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run the query on the reader's connection. It is to be short, and to fetch all that it asks for."""
        if self._reading is None:
            raise LogUnavailable(f"the event log {self._path} is not open")
        loop = asyncio.get_running_loop()
        found: T = await loop.run_in_executor(self._reader, _read, self._path, query, self._reading)
        return found

    def _commit_waiting(self, connection: sqlite3.Connection) -> None:
        group, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        self._committing = loop.run_in_executor(self._writer, _commit, self._path, group, connection)
        self._committing.add_done_callback(partial(self._committed, group, connection))

    def _committed(
        self, group: list[_Write[Any]], connection: sqlite3.Connection, committing: "asyncio.Future[None]"
    ) -> None:
        self._committing = None
        failure = committing.exception()
        for write in group:
            write.tell(failure)
        if self._waiting:
            self._commit_waiting(connection)


def _nothing(_: sqlite3.Connection) -> None: ...


def _commit(path: Path, group: list[_Write[Any]], connection: sqlite3.Connection) -> None:
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
        raise LogUnavailable(f"the event log {path} cannot be written: {error}") from error


def _read(path: Path, query: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    try:
        return query(connection)
    except sqlite3.Error as error:
        raise LogUnavailable(f"the event log {path} cannot be read: {error}") from error
