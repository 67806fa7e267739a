"""Offsets in a table of the event log's own SQLite file: one file, one writing thread, one sync for both."""

import sqlite3
from collections.abc import Iterable, Sequence

from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.base import BetweenWrites, StoredOffset
from muster.coordinator.offsets.memory import OffsetCache, stored
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused
from muster.events.log.sqlite.file import SqliteFile

_TABLE = (
    "CREATE TABLE IF NOT EXISTS offsets ("
    " group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,"
    ' "offset" INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL,'
    " commit_ms INTEGER NOT NULL, expire_ms INTEGER,"
    " PRIMARY KEY (group_id, topic, partition)) WITHOUT ROWID"
)
_ALL = 'SELECT group_id, topic, partition, "offset", leader_epoch, metadata, commit_ms, expire_ms FROM offsets'
_PUT = "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?"
_DELETE_ALL = "DELETE FROM offsets WHERE group_id = ?"


class SqliteOffsetStore(OffsetCache):
    """The event log opens and closes `file`."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__()
        self._file = file

    async def open(self) -> None:
        """Create the table if it is missing, and read it."""
        await self._file.write(lambda connection: connection.execute(_TABLE))
        for row in await self._file.read(lambda connection: connection.execute(_ALL).fetchall()):
            group_id, topic, partition, offset, leader_epoch, metadata, commit_ms, expire_ms = row
            kept = StoredOffset(
                offset=offset,
                leader_epoch=leader_epoch,
                metadata=metadata,
                commit_ms=commit_ms,
                expire_ms=expire_ms,
            )
            self.put(GroupId(group_id), (topic, partition), kept)

    async def close(self) -> None:
        """Do nothing: the event log closes the file."""

    async def claim(self, _partition: int) -> Iterable[GroupId]:
        """Return the groups with offsets. The file is claimed with the event log, and failed writes are rolled back."""
        return self.group_ids()

    async def renew(self, _partition: int, _between_writes: BetweenWrites) -> None:
        """Do nothing: the claim of a file never expires."""

    async def write(self, changes: Sequence[OffsetsChange]) -> Sequence[AppendRefused | None]:
        await self._file.write(lambda connection: _write(connection, changes))
        verdicts = [None] * len(changes)
        await self.apply_each(changes, verdicts)
        return verdicts


def _write(connection: sqlite3.Connection, changes: Sequence[OffsetsChange]) -> None:
    for change in changes:
        if change.all_deleted:
            connection.execute(_DELETE_ALL, (change.group_id,))
        connection.executemany(_DELETE, ((change.group_id, *partition) for partition in change.deleted))
        for commit in change.committed:
            kept = stored(commit)
            connection.execute(
                _PUT,
                (
                    change.group_id,
                    commit.topic,
                    commit.partition,
                    kept.offset,
                    kept.leader_epoch,
                    kept.metadata,
                    kept.commit_ms,
                    kept.expire_ms,
                ),
            )
