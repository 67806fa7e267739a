"""The ends of the partitions, noted beside a SQLite file after each append: by that is told what its end lacks.

A write-ahead log that was cut off between two transactions, or overwritten from some frame on, is a whole and older one
to SQLite; so is a file from which the last rows are gone. Nothing within the file can tell. The note is in the file of
the owner's lock, `NAME.lock`, behind the process id. It is not synced: after a loss of power it may be older than what
is durable, and is never newer. An owner that opens the file takes it for what it is, and its first append notes that.

What cannot be known: what a copy lacks that was made without the lock's file.
"""

import sqlite3
import zlib
from pathlib import Path
from typing import Final

import msgspec

from muster.events.log.sqlite import statements
from muster.events.log.sqlite.failures import is_damage
from muster.events.log.sqlite.open import NOTE_AT, lock_of
from muster.events.log.sqlite.schema import Meta

_NOTE_BYTES_MAX: Final = 1024 * 1024
"""The note of 10,000 partitions, the most that a log may have, has some 270 kB with the largest offsets."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """The offset after the last record of each partition of a log."""

    log_id: str
    offsets: dict[int, int]


def encoded(ends: Ends) -> bytes:
    """Encode a note, with a checksum: it may be read while it is written."""
    text = msgspec.json.encode(ends)
    return b"%08x%s\n" % (zlib.crc32(text), text)


def noted(path: Path) -> Ends | None:
    """Read the note beside a file, before the file itself; None without one that is whole."""
    try:
        with lock_of(path).open("rb") as lock:
            lock.seek(NOTE_AT)
            line = lock.read(_NOTE_BYTES_MAX).partition(b"\n")[0]
        return msgspec.json.decode(line[8:], type=Ends) if line[:8] == b"%08x" % zlib.crc32(line[8:]) else None
    except (OSError, msgspec.MsgspecError):
        return None


def ends_of(connection: sqlite3.Connection, meta: Meta) -> Ends:
    """Read the ends of a file, as far as they can be read."""
    offsets = {}
    for partition in range(meta.partitions):
        try:
            offsets[partition] = statements.end_offset(partition, connection)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
    return Ends(log_id=meta.log_id, offsets=offsets)


def missing(path: Path, note: Ends | None, found: Ends) -> str | None:
    """Say what the file lacks of what its owner had written, for people; None: nothing, as far as is known."""
    if note is None or note.log_id != found.log_id:
        return None
    lacks = {each: note.offsets.get(each, 0) - end for each, end in found.offsets.items()}
    told = [f"{lack:,} of partition {partition}" for partition, lack in lacks.items() if lack > 0]
    if not told:
        return None
    return (
        f"the event log {path} lacks the last records that its owner had written, {', '.join(told)}: {path.name}-wal is"
        f" cut off, or one of the two is older than {path.name}.lock, which tells of them. Put the three files beside"
        " each other as they were"
    )
