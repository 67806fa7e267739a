"""The SQL statements on the tables of an event log in a SQLite file (schema.py): one function for each call of
`log.py`.

They also check that rows have the types that we wrote. They know nothing of threads and transactions.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from operator import lt

import msgspec

from muster.events.keys import KEY_HEADER
from muster.events.log.base import Deposed, SignOfLife
from muster.events.log.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from muster.events.log.sqlite.failures import corruption_error
from muster.events.records import StoredRecord, Transition

_BATCH_RECORDS = 200
"""How many records are fetched at once; a chunk exceeds its limit by fewer records than this."""

_CLAIM = "INSERT INTO owners VALUES (?, 1) ON CONFLICT (partition) DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
_EPOCH = "SELECT epoch FROM owners WHERE partition = ?"
_LAST_OFFSET = "SELECT offset FROM records WHERE partition = ? ORDER BY offset DESC LIMIT 1"
_LEAVE_SIGN = "INSERT OR REPLACE INTO meta VALUES ('sign_of_life', ?)"
_LAST_SIGN = "SELECT value FROM meta WHERE name = 'sign_of_life'"
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?)"
_READ = "SELECT offset, timestamp_ms, key, value FROM records WHERE partition = ? AND offset >= ? AND offset < ?"
_LACKING = (
    "WITH kept (start) AS (SELECT max(?2, coalesce((SELECT position FROM trimmed WHERE partition = ?1), 0)))"
    " SELECT max(0, ?3 - start)"
    " - (SELECT count(*) FROM records WHERE partition = ?1 AND offset >= start AND offset < ?3) FROM kept"
)
_RENEW_NOTE = (
    "UPDATE meta SET value = (SELECT schema_version FROM pragma_schema_version)"
    " WHERE name = 'in_use' AND value <> (SELECT schema_version FROM pragma_schema_version)"
)
_IN_ORDER = " ORDER BY offset LIMIT ?"
_COLUMN_TYPES = (frozenset({int}), frozenset({int}), frozenset({bytes}), frozenset({bytes, type(None)}))
"""The column types of `_READ`. SQLite returns others if a page was partly overwritten."""


def claim(partition: int, connection: sqlite3.Connection) -> int:
    """Raise the epoch of the partition's writer, and return it."""
    epoch: int = connection.execute(_CLAIM, (partition,)).fetchone()[0]
    renew_note(connection)
    return epoch


def renew_note(connection: sqlite3.Connection) -> None:
    """Update the note that the file is in use (missing_records.py), after a table for offsets was added."""
    connection.execute(_RENEW_NOTE)


def append(
    partition: int,
    epoch: int,
    timestamp_ms: int,
    transitions: Iterable[Transition],
    connection: sqlite3.Connection,
) -> int:
    """Append the transitions; return the offset after the last record."""
    owner = connection.execute(_EPOCH, (partition,)).fetchone()
    if owner is None or owner[0] != epoch:
        raise Deposed(partition, epoch)
    offset = end_offset(partition, connection)
    records = [record for transition in transitions for record in transition]
    connection.executemany(
        _INSERT,
        ((partition, offset, timestamp_ms, record.key, record.value) for offset, record in enumerate(records, offset)),
    )
    return offset + len(records)


def restore(records: Iterable[StoredRecord], connection: sqlite3.Connection) -> None:
    """Store records at their existing offsets."""
    connection.executemany(_INSERT, ((r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records))


def leave_sign(sign: SignOfLife, connection: sqlite3.Connection) -> None:
    """Replace the last sign of life."""
    connection.execute(_LEAVE_SIGN, (msgspec.json.encode(sign).decode(),))
    renew_note(connection)


def last_sign(connection: sqlite3.Connection) -> dict[str, int]:
    """Read the last sign of life: its owner, and when (wall time in ms)."""
    row = connection.execute(_LAST_SIGN).fetchone()
    try:
        sign = None if row is None else msgspec.json.decode(row[0], type=SignOfLife)
    except msgspec.MsgspecError:  # it was edited by hand
        return {}
    return {} if sign is None else {sign.owner: sign.wall_ms}


def end_offset(partition: int, connection: sqlite3.Connection) -> int:
    """Read the offset after the partition's last record."""
    last = connection.execute(_LAST_OFFSET, (partition,)).fetchone()
    if last is None:
        return 0
    if not isinstance(last[0], int):
        raise corruption_error(f"the last record of partition {partition} has no offset")
    return last[0] + 1


def lacking(partition: int, start: int, end: int, connection: sqlite3.Connection) -> int:
    """Count the records missing between two offsets, except those that trimming may have deleted."""
    lacking: int = connection.execute(_LACKING, (partition, start, end)).fetchone()[0]
    if lacking < 0:
        raise corruption_error(f"partition {partition} has duplicate records between offsets {start} and {end}")
    return lacking


def read_chunk(
    partition: int, wanted: Sequence[bytes], start: int, end: int, connection: sqlite3.Connection
) -> list[StoredRecord]:
    """Read some records from `start` on; if `wanted` is not empty, only those with one of these key prefixes."""
    query, values = _READ, list[int | bytes]((partition, start, end))
    if wanted:  # by the key alone, so that other values are not read
        query += f" AND (substr(key, 1, ?) <> ?{' OR substr(key, 1, ?) = ?' * len(wanted)})"
        values.extend(each for prefix in (KEY_HEADER, *wanted) for each in (len(prefix), prefix))
    rows = connection.execute(query + _IN_ORDER, (*values, CHUNK_RECORDS_MAX))
    chunk: list[StoredRecord] = []
    size_bytes = 0
    # In batches, since counting the bytes row by row costs a fifth of the reading.
    while size_bytes < CHUNK_BYTES_MAX and (batch := rows.fetchmany(_BATCH_RECORDS)):
        columns = list(zip(*batch, strict=True))
        for types, column in zip(_COLUMN_TYPES, columns, strict=True):
            if not types.issuperset(map(type, column)):
                raise corruption_error(
                    f"a record of partition {partition} after offset {start} has no key, time or value"
                )
        offsets = (chunk[-1].offset if chunk else start - 1, *columns[0])
        if not all(map(lt, offsets, columns[0])):  # swapped pages: SQLite reads them as they are
            raise corruption_error(f"the records of partition {partition} after offset {start} are not in order")
        chunk += [
            StoredRecord(partition, offset, timestamp_ms, key, value) for offset, timestamp_ms, key, value in batch
        ]
        size_bytes += sum([len(value or b"") for _, _, _, value in batch])
    rows.close()  # ends the read transaction
    return chunk
