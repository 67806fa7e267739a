"""Trimming: what is older than the audit window is compacted, so that the file stays as small as Kafka keeps a topic.

What has passed out of the window is the front of a partition. Trimming goes through it once, from where it stopped
the last time, and remembers in the table `kept` where the last record of each key stands in it:

* a record takes the place of the kept one of its key, which is deleted;
* a tombstone does so, too, and is deleted itself.

So a record is deleted only where a later one of its key, or a tombstone, has passed out of the window as well. That
keeps one record more per key than compaction must, on purpose: what is left of the front is the whole state at the
beginning of the window, so that state can be shown for every moment inside the window. And an append needs no index by key,
which would cost it a third more: all that trimming needs to know it finds in the front itself.

The last record of a partition stays whatever it is, since offsets are counted on from it. The file does not shrink:
the pages that become free are used by the next appends.
"""

import sqlite3
from functools import partial

import msgspec

from events.log.sqlite_file import SqliteFile
from events.log.sqlite_schema import Meta

CHUNK_RECORDS = 500
"""Looked at in one transaction: a few ms, for which an append may have to wait."""

CALL_RECORDS = 10_000
"""Looked at in one call of `trim`."""

_POSITION = "SELECT position FROM trimmed WHERE partition = ?"
_FRONT = (
    "SELECT offset, timestamp_ms, key, value IS NULL FROM records"
    " WHERE partition = ?1 AND offset >= ?2"
    " AND offset < (SELECT max(offset) FROM records WHERE partition = ?1)"
    " ORDER BY offset LIMIT ?3"
)
_KEPT = "SELECT offset FROM kept WHERE partition = ? AND key = ?"
_KEEP = "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT (partition, key) DO UPDATE SET offset = excluded.offset"
_FORGET = "DELETE FROM kept WHERE partition = ? AND key = ?"
_DELETE = "DELETE FROM records WHERE partition = ? AND offset = ?"
_MOVE = "INSERT INTO trimmed VALUES (?, ?) ON CONFLICT (partition) DO UPDATE SET position = excluded.position"


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """What one call has done. `more`: it stopped because it had done enough, not because it had come to the end."""

    looked_at: int
    deleted: int
    more: bool


async def trim(file: SqliteFile, meta: Meta, now_ms: int) -> Trimmed:
    """Go on trimming each partition, in transactions of `CHUNK_RECORDS`, until `CALL_RECORDS` were looked at."""
    before_ms = now_ms - meta.audit_window_ms
    looked_at = deleted = 0
    for partition in range(meta.partitions):
        more = True
        while more:
            if looked_at >= CALL_RECORDS:
                return Trimmed(looked_at=looked_at, deleted=deleted, more=True)
            step = await file.write(partial(_trim_chunk, partition, before_ms))
            looked_at += step.looked_at
            deleted += step.deleted
            more = step.more
    return Trimmed(looked_at=looked_at, deleted=deleted, more=False)


def _trim_chunk(partition: int, before_ms: int, connection: sqlite3.Connection) -> Trimmed:
    row = connection.execute(_POSITION, (partition,)).fetchone()
    position = 0 if row is None else row[0]
    front = connection.execute(_FRONT, (partition, position, CHUNK_RECORDS)).fetchall()
    looked_at = deleted = 0
    for offset, timestamp_ms, key, is_tombstone in front:
        if timestamp_ms >= before_ms:
            break
        deleted += _pass_out(connection, partition, offset, key, is_tombstone=bool(is_tombstone))
        looked_at += 1
        position = offset + 1
    if looked_at:
        connection.execute(_MOVE, (partition, position))
    return Trimmed(looked_at=looked_at, deleted=deleted, more=looked_at == CHUNK_RECORDS)


def _pass_out(
    connection: sqlite3.Connection, partition: int, offset: int, key: bytes, *, is_tombstone: bool
) -> int:
    """One record has passed out of the window; the number of records deleted for it."""
    deleted = 0
    kept = connection.execute(_KEPT, (partition, key)).fetchone()
    if kept is not None:
        deleted += connection.execute(_DELETE, (partition, kept[0])).rowcount
    if is_tombstone:
        deleted += connection.execute(_DELETE, (partition, offset)).rowcount
        connection.execute(_FORGET, (partition, key))
    else:
        connection.execute(_KEEP, (partition, key, offset))
    return deleted
