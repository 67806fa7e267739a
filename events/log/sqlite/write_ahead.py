"""Whether the write-ahead log beside a SQLite file is all there: what is missing from it, SQLite passes over.

SQLite folds the write-ahead log (`NAME-wal`) into the file now and then, and deletes it when the file is closed. The
file alone is an older state, and well: SQLite cannot tell it from the whole. So the owner notes in the table `meta`
that the file is in use, folds that note in, and takes it back when it closes the file. Of a file that has the note,
and nothing beside it, the last transactions are missing.

The note is the number of changes to the schema (`schema_version`). A copy that SQLite itself has made, as by `.backup`,
is whole, has the note too, and counts its own changes: there the note says nothing.

What the write-ahead log itself does not show, that it was cut off between two transactions, or that one in its middle
was overwritten, the note beside the file does (ends.py). What cannot be known: that nothing is missing, where another
program has folded it in after the owner was killed.
"""

import sqlite3
import time
from pathlib import Path
from typing import Final

_NOTE = (
    "INSERT OR REPLACE INTO meta VALUES ('in_use', (SELECT schema_version FROM pragma_schema_version))",
    "PRAGMA wal_checkpoint(PASSIVE)",
)
_RENEW = (
    "UPDATE meta SET value = (SELECT schema_version FROM pragma_schema_version)"
    " WHERE name = 'in_use' AND value <> (SELECT schema_version FROM pragma_schema_version)"
)
_TAKE_BACK = "DELETE FROM meta WHERE name = 'in_use'"
_HAS_NOTE = "SELECT 1 FROM meta, pragma_schema_version WHERE name = 'in_use' AND value = schema_version"

_WAL_MODE: Final = 2
_MODE_AT: Final = 18
"""The byte of the file's header that says how it is written (sqlite.org/fileformat.html)."""

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_WRITE_TIMEOUT_S: Final = 0.1
"""A frame that is being written is whole, or has grown, after this time."""


def note_in_use(connection: sqlite3.Connection) -> None:
    """Note that the file is in use, outside of any transaction."""
    for statement in _NOTE:
        connection.execute(statement).fetchall()


def renew_note(connection: sqlite3.Connection) -> None:
    """Follow the schema, to which the offsets' table may have been added."""
    connection.execute(_RENEW)


def note_closed(connection: sqlite3.Connection) -> None:
    """Take the note back, as the last thing before the connection is closed."""
    connection.execute(_TAKE_BACK)


def missing(connection: sqlite3.Connection, path: Path) -> str | None:
    """Say what may be missing from the file, for people; None: nothing is known to be.

    The connection keeps an owner that ends meanwhile from deleting its write-ahead log.
    """
    if connection.execute(_HAS_NOTE).fetchone() is None or not _is_in_wal_mode(connection, path):
        return None
    real = path.resolve()
    wal = real.with_name(real.name + "-wal")
    if _size_of(wal) == 0:
        wrong = "missing"
    elif _is_cut_off(wal, connection):
        wrong = "cut off"
    else:
        return None
    return (
        f"the event log {path} was not closed in good order, and {wal.name}, which has what was written last, is"
        f" {wrong}: this may be an older state. Put the two files beside each other as they were (to copy the log of a"
        f" running muster serve: sqlite3 {path} '.backup copy.db')"
    )


def _is_in_wal_mode(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has a write-ahead log; a connection to the file alone is told of none.

    Closing the file takes SQLite's locks on it from this whole process (sqlite.org/howtocorrupt.html, 2.2), and another
    program that closes it would delete the write-ahead log. So it is opened only where the connection has no locks.
    """
    if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        return True
    with path.open("rb") as file:
        file.seek(_MODE_AT)
        return file.read(1) == bytes([_WAL_MODE])


def _size_of(wal: Path) -> int:
    try:
        return wal.stat().st_size
    except FileNotFoundError:
        return 0


def _is_cut_off(wal: Path, connection: sqlite3.Connection) -> bool:
    """Whether it ends within a frame, and goes on doing so."""
    frame = _FRAME_HEADER_BYTES + connection.execute("PRAGMA page_size").fetchone()[0]

    def ends_within(size: int) -> bool:
        return size < _HEADER_BYTES or (size - _HEADER_BYTES) % frame not in (0, _FRAME_HEADER_BYTES)

    before = _size_of(wal)
    if not ends_within(before):
        return False
    time.sleep(_WRITE_TIMEOUT_S)
    return _size_of(wal) == before
