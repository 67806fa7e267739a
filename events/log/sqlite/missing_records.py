"""Finds out what is missing from a SQLite file that SQLite itself accepts as complete, but that is in an older state.

*The write-ahead log is missing, or cut off within a frame.* SQLite checkpoints it (`NAME-wal`) into the file from time
to time, and deletes it when the file is closed. So the owner notes in the table `meta` that the file is in use,
checkpoints that note, and deletes it when it closes the file. A file that has the note but no write-ahead log lacks its
last transactions. The note is the number of schema changes (`schema_version`): a copy made by SQLite itself, such as by
`.backup`, is complete, has the note too, but counts its own changes, so the note is ignored there.

*The write-ahead log was cut off between two transactions or overwritten, or the last rows are gone.* After each append
the owner writes the ends of the partitions into its lock file, `NAME.lock`, after the process id. It does not sync
that: after a power failure the note may be older than what is durable, but never newer. An owner that opens the file
accepts it as it is, and its first append writes new ends.

*All records of a partition are gone.* An owner's first record follows its claim, so a partition that was claimed and
has no record was emptied, unless its only owner ended in between.

Limits: nothing can be detected in a copy that was made without these files, and there is a false alarm if another
program has checkpointed the write-ahead log after the owner was killed.
"""

import sqlite3
import time
import zlib
from pathlib import Path
from typing import Final

import msgspec

from muster.events.log.sqlite import statements
from muster.events.log.sqlite.failures import is_damage
from muster.events.log.sqlite.open import NOTE_AT, lock_of
from muster.events.log.sqlite.schema import Meta

_NOTE = (
    "INSERT OR REPLACE INTO meta VALUES ('in_use', (SELECT schema_version FROM pragma_schema_version))",
    "PRAGMA wal_checkpoint(PASSIVE)",
)
_TAKE_BACK = "DELETE FROM meta WHERE name = 'in_use'"
_HAS_NOTE = "SELECT 1 FROM meta, pragma_schema_version WHERE name = 'in_use' AND value = schema_version"

_OWNED = "SELECT partition FROM owners WHERE epoch > 0 ORDER BY partition"

_WAL_MODE: Final = 2
_MODE_AT: Final = 18
"""The byte of the file's header that says how it is written (sqlite.org/fileformat.html)."""

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_WRITE_TIMEOUT_S: Final = 0.1
"""A frame that is being written is complete, or has grown, after this time."""


def note_in_use(connection: sqlite3.Connection) -> None:
    """Note that the file is in use, outside of any transaction."""
    for statement in _NOTE:
        connection.execute(statement).fetchall()


def note_closed(connection: sqlite3.Connection) -> None:
    """Remove the note, as the last step before the connection is closed."""
    connection.execute(_TAKE_BACK)


def describe_missing(connection: sqlite3.Connection, meta: Meta, path: Path) -> str | None:
    """Describe what may be missing from the file, for a message; None: nothing, as far as is known."""
    note = read_note(path)  # first, as an owner may be appending
    ends = read_ends(connection, meta)
    return (
        describe_missing_wal(connection, path)
        or describe_missing_records(path, note, ends)
        or describe_emptied(connection, path, ends)
    )


def describe_missing_wal(connection: sqlite3.Connection, path: Path) -> str | None:
    """Describe for a message what may be missing from the file; None if nothing is known to be missing.

    The connection prevents an owner that exits in the meantime from deleting its write-ahead log.
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
        f"the event log {path} was not closed cleanly, and {wal.name}, which has the latest writes, is"
        f" {wrong}: this may be an older state. Put the two files back together as they were (to copy the log of a"
        f" running muster serve: sqlite3 {path} '.backup copy.db')"
    )


def _is_in_wal_mode(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has a write-ahead log; a connection to only the file reports none.

    Closing the file releases all of this process's SQLite locks on it (sqlite.org/howtocorrupt.html, 2.2), and another
    program that closes it would delete the write-ahead log. So it is only opened if the connection has no locks.
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
    """Return whether the write-ahead log ends within a frame, and still does after a short time."""
    frame = _FRAME_HEADER_BYTES + connection.execute("PRAGMA page_size").fetchone()[0]

    def ends_within(size: int) -> bool:
        return size < _HEADER_BYTES or (size - _HEADER_BYTES) % frame not in (0, _FRAME_HEADER_BYTES)

    before = _size_of(wal)
    if not ends_within(before):
        return False
    time.sleep(_WRITE_TIMEOUT_S)
    return _size_of(wal) == before


# ---- the ends of the partitions -------------------------------------------------------------------------

_NOTE_BYTES_MAX: Final = 1024 * 1024
"""A log has at most 10,000 partitions; with the largest possible offsets their note takes about 270 kB."""


class PartitionEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The offset after the last record of each partition of a log."""

    log_id: str
    offsets: dict[int, int]


def encode_note(ends: PartitionEnds) -> bytes:
    """Encode a note with a checksum, since it may be read while it is written."""
    text = msgspec.json.encode(ends)
    return b"%08x%s\n" % (zlib.crc32(text), text)


def read_note(path: Path) -> PartitionEnds | None:
    """Read the note that belongs to a file; None if there is no complete one. Must be read before the file itself."""
    try:
        with lock_of(path).open("rb") as lock:
            lock.seek(NOTE_AT)
            line = lock.read(_NOTE_BYTES_MAX).partition(b"\n")[0]
        return msgspec.json.decode(line[8:], type=PartitionEnds) if line[:8] == b"%08x" % zlib.crc32(line[8:]) else None
    except (OSError, msgspec.MsgspecError):
        return None


def read_ends(connection: sqlite3.Connection, meta: Meta) -> PartitionEnds:
    """Read the end offset of each partition of a file; partitions whose end is unreadable are left out."""
    offsets = {}
    for partition in range(meta.partitions):
        try:
            offsets[partition] = statements.end_offset(partition, connection)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
    return PartitionEnds(log_id=meta.log_id, offsets=offsets)


def describe_missing_records(path: Path, note: PartitionEnds | None, found: PartitionEnds) -> str | None:
    """Describe for a message which of its owner's records the file lacks; None if none are known to be missing."""
    if note is None or note.log_id != found.log_id:
        return None
    lacks = {each: note.offsets.get(each, 0) - end for each, end in found.offsets.items()}
    lacking = [f"{lack:,} of partition {partition}" for partition, lack in lacks.items() if lack > 0]
    if not lacking:
        return None
    return (
        f"the event log {path} lacks the last records that its owner had written, {', '.join(lacking)}: {path.name}-wal"
        f" is cut off, or one of the two is older than {path.name}.lock, which records them. Put the three"
        " files back together as they were"
    )


def describe_emptied(connection: sqlite3.Connection, path: Path, ends: PartitionEnds) -> str | None:
    """Describe for a message which partitions had an owner but have no record; None if there are none."""
    owned = [partition for (partition,) in connection.execute(_OWNED)]
    emptied = [str(partition) for partition in owned if ends.offsets.get(partition) == 0]
    if not emptied:
        return None
    named = ", ".join(emptied[:5]) + (f" and {len(emptied) - 5} more" if len(emptied) > 5 else "")
    return (
        f"the event log {path} has no record of partition {named}, which had an owner: its records were deleted, unless"
        " its only owner ended before it wrote the first one"
    )
