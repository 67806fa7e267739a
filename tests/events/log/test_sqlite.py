from pathlib import Path

import sqlite3

import pytest

from events.log.base import EventLog
from events.log.sqlite import SqliteEventLog
from tests.events.log.contract import BATCH_BYTES_MAX, EventLogContract


class LosingConnection:
    """A connection whose next commit succeeds, and says that it failed; as when a disk reports an error late."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loses = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, *parameters)
        if statement == "COMMIT" and self._loses:
            self._loses = False
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


class SqliteFaults:
    def lose_next_acknowledgement(self, log: EventLog) -> None:
        assert isinstance(log, SqliteEventLog)
        log.file._writing = LosingConnection(log.file._writing)  # type: ignore[assignment, arg-type]


class SqliteLogStorage:
    """Without the lock between processes, which would let no second log in to depose the first."""

    def __init__(self, path: Path) -> None:
        self.faults = SqliteFaults()
        self._path = path

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> SqliteEventLog:
        return SqliteEventLog(self._path, read_only=read_only, exclusive=False, batch_bytes_max=batch_bytes_max)


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> SqliteLogStorage:
        return SqliteLogStorage(tmp_path / "muster.db")
