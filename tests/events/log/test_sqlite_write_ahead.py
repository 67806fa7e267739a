"""A SQLite log whose write-ahead log is missing or cut off: an older state, which SQLite takes for the whole."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from muster.coordinator.offsets.sqlite import SqliteOffsetStore
from muster.events.log.base import SignOfLife
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record

RECORDS = 100


@asynccontextmanager
async def being_written(path: Path) -> AsyncIterator[SqliteEventLog]:
    """A new log with its records in the write-ahead log alone, as standalone mode has it."""
    log = SqliteEventLog(path, partitions=1)
    await log.open()
    await SqliteOffsetStore(log.file).open()  # adds a table
    writer = await log.claim(0)
    await writer.append([(Record(b"k%d" % number, b"v" * 100),) for number in range(RECORDS)])
    await log.leave_sign_of_life(SignOfLife(owner="host:1", wall_ms=1), timeout_ms=10_000)
    yield log
    await log.close()


def beside(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def read(path: Path, *, read_only: bool = True) -> tuple[int, list[str]]:
    """The number of records, and the warnings."""
    log = SqliteEventLog(path, read_only=read_only)
    await log.open()
    found = await log.end_offset(0), list(log.warnings)
    await log.close()
    return found


@pytest.fixture
async def copied(path: Path) -> Path:
    """A copy of a log that was being written, and of what stands beside it."""
    async with being_written(path):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        shutil.copy(beside(path), beside(copy))
    return copy


async def test_a_copy_with_its_write_ahead_log_is_whole(copied: Path) -> None:
    """As after `kill -9`: the owner did not close it, and nothing is missing."""
    assert await read(copied) == (RECORDS, [])
    assert await read(copied, read_only=False) == (RECORDS, [])


async def test_other_programs_leave_the_write_ahead_log_of_an_owner_that_was_killed_before(copied: Path) -> None:
    """Whoever closes the file last deletes it: the owner's locks say that it is not the last."""
    log = SqliteEventLog(copied)
    await log.open()
    count = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM meta'); c.close()"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", count, str(copied)], check=True, timeout=60)
    assert beside(copied).exists()
    await log.file.check_in_place()
    await log.close()


@pytest.mark.parametrize("size", [None, 0])
async def test_a_missing_write_ahead_log_is_told(copied: Path, size: int | None) -> None:
    """Whoever opens the file is told, each time, until an owner has taken it for what it is and closed it."""
    beside(copied).unlink() if size is None else os.truncate(beside(copied), size)
    for _ in range(2):
        assert await _is_told(copied, "missing")
    assert await _is_told(copied, "missing", read_only=False)
    assert await read(copied) == (0, [])


@pytest.mark.parametrize("size", [20, 20_000])
async def test_a_write_ahead_log_that_is_cut_off_is_told(copied: Path, size: int) -> None:
    """Within its header, or within a frame."""
    os.truncate(beside(copied), size)
    assert await _is_told(copied, "cut off")


async def test_a_folder_that_cannot_be_written_makes_no_difference(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There SQLite is asked for the file alone."""
    beside(copied).unlink()
    monkeypatch.setattr("muster.events.log.sqlite.open._is_readable", lambda _: False)
    assert await _is_told(copied, "missing")


async def test_a_live_log_and_one_that_was_closed_are_whole(path: Path) -> None:
    """The write-ahead log is there in the one, and not needed in the other."""
    async with being_written(path):
        assert await read(path) == (RECORDS, [])
    assert not beside(path).exists()
    assert await read(path) == (RECORDS, [])


async def test_a_reader_that_stays_longer_than_the_owner_changes_nothing(path: Path) -> None:
    """The owner's last word is in the write-ahead log then, and the file alone is an older state."""
    async with being_written(path):
        reader = SqliteEventLog(path, read_only=True)
        await reader.open()
    await reader.close()
    assert await read(path) == (RECORDS, [])
    beside(path).unlink()
    assert await _is_told(path, "missing")


async def test_backups_that_sqlite_makes_of_a_live_log_are_whole(path: Path) -> None:
    """Made again into the same file, too."""
    backup, vacuumed = path.with_name("backup.db"), path.with_name("vacuumed.db")
    async with being_written(path):
        for _ in range(2):
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
                source.backup(target)
        with closing(sqlite3.connect(path)) as source:
            source.execute("VACUUM INTO ?", (str(vacuumed),))
    assert await read(backup) == (RECORDS, [])
    assert await read(vacuumed) == (RECORDS, [])


async def _is_told(path: Path, what: str, *, read_only: bool = True) -> bool:
    records, warnings = await read(path, read_only=read_only)
    assert records < RECORDS
    (warning,) = warnings
    begin = (
        f"the event log {path} was not closed in good order, and {beside(path).name}, which has what was written last"
    )
    return warning.startswith(f"{begin}, is {what}: this may be an older state. ")
