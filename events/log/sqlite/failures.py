"""Converts SQLite's errors to the log's: the disk may recover, another program has the file, it is damaged.

A reader of a damaged file reads around the damage (`read_around`). A page of the file has a few dozen records; a
damaged page loses these or, if it is an inner page, all records in the pages below it.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from muster.events.log.base import LogDamaged, LogError, LogUnavailable
from muster.events.records import StoredRecord

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NO_TEXT = "Could not decode to UTF-8"  # the sqlite3 module's own error, without a code
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the file's content is wrong, so that a retry would fail again."""
    return code_of(error) in _DAMAGED or str(error).startswith(_NO_TEXT)


def corruption_error(what: str) -> sqlite3.DatabaseError:
    """Build the error for content that we cannot have written, as of a partly overwritten page."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether another process holds one of SQLite's own locks, so that the disk is fine."""
    return code_of(error) in _LOCKED


def is_full(error: sqlite3.Error) -> bool:
    """Return whether the disk is full, which may change."""
    return code_of(error) == sqlite3.SQLITE_FULL


def code_of(error: sqlite3.Error) -> int:
    """Return the primary code without the extended part. Errors of the sqlite3 module itself have none."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF


def damage_error(error: object, path: Path) -> LogDamaged:
    """Build the error for a damaged file, including how to fix it."""
    return LogDamaged(
        f"the event log {path} is damaged ({error}). Keep a copy of it"
        f" and of {path.name}-wal; then restore a backup, or start with --log sqlite:///recovered.db after"
        f" `sqlite3 {path} .recover | sqlite3 recovered.db`"
    )


def failure_of(error: sqlite3.Error, path: Path, what: str) -> LogError:
    """Convert an error of SQLite. `what` failed: "opened", "read" or "written"."""
    if is_damage(error):
        return damage_error(error, path)
    if is_locked(error):
        return LogUnavailable(
            f"the event log {path} cannot be {what}: another program has it locked, such as a sqlite3 shell or a backup"
            f" that has begun a transaction (lsof {path} names it); Muster continues once that one has ended"
        )
    return LogUnavailable(f"the event log {path} cannot be {what}: {error}")


_LARGEST = 4_096
_SKIPPED_ONE_BY_ONE = 256

ReadRange = Callable[[int, int], Awaitable[Sequence[StoredRecord]]]
"""Reads the first records between two offsets (the second exclusive), perhaps none. Raises LogDamaged."""


async def read_around(read_range: ReadRange, start: int, end: int) -> AsyncIterator[Sequence[StoredRecord]]:
    """Read chunks of the readable records, in order; a range that fails is reduced and retried."""
    size, skipped, step = end, 0, 1
    while start < end:
        until = min(start + size, end)
        try:
            chunk = await read_range(start, until)
        except LogDamaged:
            if size > 1:
                size = min(size // 8, _LARGEST) or 1
                continue
            start += step
            skipped += 1
            step = step * 2 if skipped > _SKIPPED_ONE_BY_ONE else 1
            continue
        size, skipped, step = size * 8, 0, 1
        if chunk:
            yield chunk
            start = chunk[-1].offset + 1
        else:
            start = until
