"""Trimming: compacting records older than the audit window, as Kafka compacts a topic.

Records older than the window form the front of a partition. Trimming goes through it only once, continuing where it
last stopped, and notes the last record of each key in the table `kept`:

* a record replaces the kept one of its key, which is deleted;
* so does a tombstone, which is then deleted itself.

So a record is deleted only if a later one of its key, or a tombstone, is also older than the window. That deliberately
keeps up to one record per key more than compaction requires: the rest of the front is the whole state at the beginning
of the window, so that the state can be shown for every time inside the window. And an append needs no index by key,
which would make it a third more expensive: trimming finds what it needs in the front itself.

A record from the future says nothing about its age: the clock was ahead when it was appended. It counts as older than
the window if a record after it is; trimming looks for one among the next `CALL_RECORDS`.

The last record of a partition always stays, since offsets continue from it. The file does not shrink: the next appends
reuse the free pages.
"""

import sqlite3
from collections.abc import Iterator
from functools import partial
from itertools import takewhile

import msgspec

from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.schema import Meta

CHUNK_RECORDS = 200
"""How many records one transaction handles. An append may have to wait for it: 5 to 15 ms, measured."""

CALL_RECORDS = 10_000
"""How many records one call of `trim` handles."""

_POSITION = "SELECT position FROM trimmed WHERE partition = ?"
_FRONT = (
    "SELECT offset, timestamp_ms, key, value IS NULL FROM records"
    " WHERE partition = ?1 AND offset >= ?2"
    " AND offset < (SELECT max(offset) FROM records WHERE partition = ?1)"
    " ORDER BY offset LIMIT ?3"
)
_PASSED = (
    "WITH ahead AS (SELECT offset, timestamp_ms FROM records WHERE partition = ?1 AND offset >= ?2"
    " AND offset < (SELECT max(offset) FROM records WHERE partition = ?1) ORDER BY offset LIMIT ?3),"
    " inside AS (SELECT min(offset) AS offset FROM ahead WHERE timestamp_ms BETWEEN ?4 AND ?5)"
    " SELECT max(ahead.offset) FROM ahead, inside"
    " WHERE timestamp_ms < ?4 AND (inside.offset IS NULL OR ahead.offset < inside.offset)"
)
_KEPT = "SELECT offset FROM kept WHERE partition = ? AND key = ?"
_KEEP = "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT (partition, key) DO UPDATE SET offset = excluded.offset"
_FORGET = "DELETE FROM kept WHERE partition = ? AND key = ?"
_DELETE = "DELETE FROM records WHERE partition = ? AND offset = ?"
_MOVE = "INSERT INTO trimmed VALUES (?, ?) ON CONFLICT (partition) DO UPDATE SET position = excluded.position"


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call. `more`: it stopped at its limit, before the end."""

    looked_at: int
    deleted: int
    more: bool


async def trim(file: SqliteFile, meta: Meta, now_ms: int) -> Trimmed:
    """Continue trimming each partition, in transactions of `CHUNK_RECORDS`, up to `CALL_RECORDS`."""
    before_ms = now_ms - meta.audit_window_ms
    looked_at = deleted = 0
    for partition in range(meta.partitions):
        more = True
        while more:
            if looked_at >= CALL_RECORDS:
                return Trimmed(looked_at=looked_at, deleted=deleted, more=True)
            step = await file.write(partial(_trim_chunk, partition, before_ms, now_ms))
            looked_at += step.looked_at
            deleted += step.deleted
            more = step.more
    return Trimmed(looked_at=looked_at, deleted=deleted, more=False)


def _trim_chunk(partition: int, before_ms: int, now_ms: int, connection: sqlite3.Connection) -> Trimmed:
    row = connection.execute(_POSITION, (partition,)).fetchone()
    position = 0 if row is None else row[0]
    front = connection.execute(_FRONT, (partition, position, CHUNK_RECORDS)).fetchall()
    if any(timestamp_ms > now_ms for _, timestamp_ms, _, _ in front):
        found = connection.execute(_PASSED, (partition, position, CALL_RECORDS, before_ms, now_ms)).fetchone()[0]
        passed = [record for record in front if found is not None and record[0] <= found]
    else:
        passed = list(takewhile(lambda record: record[1] < before_ms, front))
    if not passed:
        return Trimmed(looked_at=0, deleted=0, more=False)
    dead: list[int] = []
    latest: dict[bytes, tuple[int, bool]] = {}
    for offset, _, key, is_tombstone in passed:
        if key in latest:
            dead.append(latest[key][0])
        latest[key] = (offset, bool(is_tombstone))
    dead += _replace_kept(partition, latest, connection)
    connection.executemany(_DELETE, [(partition, offset) for offset in dead])
    connection.execute(_MOVE, (partition, passed[-1][0] + 1))
    return Trimmed(looked_at=len(passed), deleted=len(dead), more=len(passed) == CHUNK_RECORDS)


def _replace_kept(
    partition: int, latest: dict[bytes, tuple[int, bool]], connection: sqlite3.Connection
) -> Iterator[int]:
    """Note these records as kept (key: offset, whether a tombstone); yield the offsets to delete."""
    for key, (offset, is_tombstone) in latest.items():
        kept = connection.execute(_KEPT, (partition, key)).fetchone()
        if kept is not None:
            yield kept[0]
        if not is_tombstone:
            connection.execute(_KEEP, (partition, key, offset))
            continue
        yield offset
        if kept is not None:
            connection.execute(_FORGET, (partition, key))
