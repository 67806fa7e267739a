"""SQLite's errors, classified by what can be done about them."""

import sqlite3
from pathlib import Path

import pytest

from muster.events.log.base import LogDamaged, LogUnavailable
from muster.events.log.sqlite.failures import failure_of, is_damage, is_full, is_locked

PATH = Path("/var/lib/muster.db")


def error_of(code: int | None) -> sqlite3.Error:
    """As SQLite's library raises it, or, without a code, Python's module."""
    error = sqlite3.OperationalError("as it says")
    if code is not None:
        error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "sorted_as"),
    [
        (sqlite3.SQLITE_CORRUPT, "damage"),
        (sqlite3.SQLITE_CORRUPT_INDEX, "damage"),
        (sqlite3.SQLITE_NOTADB, "damage"),
        (sqlite3.SQLITE_BUSY, "locked"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked"),
        (sqlite3.SQLITE_LOCKED, "locked"),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, "locked"),
        (sqlite3.SQLITE_FULL, "full"),
        (sqlite3.SQLITE_IOERR_FSYNC, "neither"),
        (sqlite3.SQLITE_ERROR, "neither"),
        (None, "neither"),
    ],
)
def test_an_error_is_damage_a_lock_a_full_disk_or_none_of_them(code: int | None, sorted_as: str) -> None:
    """Regardless of extended codes. Damage is permanent; everything else may pass, and is retried."""
    error = error_of(code)
    found = {"damage": is_damage(error), "locked": is_locked(error), "full": is_full(error)}
    assert [name for name, is_so in found.items() if is_so] == ([] if sorted_as == "neither" else [sorted_as])
    failure = failure_of(error, PATH, "read")
    assert isinstance(failure, LogDamaged if sorted_as == "damage" else LogUnavailable)
    assert str(PATH) in str(failure)
    assert ("another program has it locked" in str(failure)) == (sorted_as == "locked")
