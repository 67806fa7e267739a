"""A SQLite log whose write-ahead log is missing or truncated: an older state, which SQLite considers complete."""

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
from muster.events.log.sqlite.missing_records import PartitionEnds, describe_missing_records, encode_note, read_note
from muster.events.log.sqlite.open import NOTE_AT
from muster.events.records import Record

RECORDS = 100


@asynccontextmanager
async def being_written(path: Path) -> AsyncIterator[SqliteEventLog]:
    """A new log with its records in the write-ahead log alone, as standalone mode has it."""
    log = SqliteEventLog(path, partitions=1)
    await log.open()
    await SqliteOffsetStore(log.file).open()  # adds a table
    writer = await log.claim(0)
    for number in range(RECORDS):
        await writer.append([(Record(b"k%d" % number, b"v" * 100),)])
    await log.leave_sign_of_life(SignOfLife(owner="host:1", wall_ms=1), timeout_ms=10_000)
    yield log
    await log.close()


def beside(path: Path, suffix: str = "-wal") -> Path:
    return path.with_name(path.name + suffix)


async def read(path: Path, *, read_only: bool = True) -> tuple[int, list[str]]:
    """The number of records, and the warnings."""
    log = SqliteEventLog(path, read_only=read_only)
    await log.open()
    found = await log.end_offset(0), list(log.warnings)
    await log.close()
    return found


@pytest.fixture
async def copied(path: Path) -> Path:
    """Return a copy of a log that was being written, with the files beside it."""
    async with being_written(path):
        copy = path.with_name("copy.db")
        shutil.copy(path, copy)
        for suffix in ("-wal", ".lock"):
            shutil.copy(beside(path, suffix), beside(copy, suffix))
    return copy


async def test_a_copy_with_its_write_ahead_log_is_whole(copied: Path) -> None:
    """As after `kill -9`: the owner did not close it, and nothing is missing."""
    assert await read(copied) == (RECORDS, [])
    assert await read(copied, read_only=False) == (RECORDS, [])


async def test_other_programs_leave_the_write_ahead_log_of_an_owner_that_was_killed_before(copied: Path) -> None:
    """The last process to close the file deletes it: the owner's locks show that it is not the last."""
    log = SqliteEventLog(copied)
    await log.open()
    count = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM meta'); c.close()"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", count, str(copied)], check=True, timeout=60)
    assert beside(copied).exists()
    await log.file.check_in_place()
    await log.close()


@pytest.mark.parametrize("size", [None, 0])
async def test_a_missing_write_ahead_log_is_reported(copied: Path, size: int | None) -> None:
    """Every opener gets the report, until an owner has accepted the file and appended to it."""
    beside(copied).unlink() if size is None else os.truncate(beside(copied), size)
    for _ in range(2):
        assert await _is_told(copied, "missing")
    assert await _is_told(copied, "missing", read_only=False)
    assert await read(copied) == (0, [missing_end_message(copied, f"{RECORDS} of partition 0")])
    log = SqliteEventLog(copied)
    await log.open()
    await (await log.claim(0)).append([(Record(b"k", b"v"),)])
    await log.close()
    assert await read(copied) == (1, [])


@pytest.mark.parametrize("size", [20, 20_000])
async def test_a_truncated_write_ahead_log_is_reported(copied: Path, size: int) -> None:
    """Within its header, or within a frame."""
    os.truncate(beside(copied), size)
    assert await _is_told(copied, "cut off")


async def test_a_write_ahead_log_truncated_between_two_transactions_is_reported(copied: Path) -> None:
    """SQLite considers it complete: the owner's note beside the file shows what is missing."""
    whole = beside(copied).read_bytes()
    lacks = set()
    for size in range(32, len(whole), 24 + 4096):
        for change in (whole[:size], whole[:size] + bytes(100) + whole[size + 100 :]):
            beside(copied).write_bytes(change)
            beside(copied, "-shm").unlink(missing_ok=True)
            records, warnings = await read(copied)
            assert warnings == (
                [] if records == RECORDS else [missing_end_message(copied, f"{RECORDS - records} of partition 0")]
            )
            lacks.add(RECORDS - records)
    assert lacks == {*range(RECORDS + 1)}


async def test_records_appended_since_an_owner_accepted_the_log_count(copied: Path) -> None:
    """The owner gets the report, too; from its first append on the older end is forgotten."""
    os.truncate(beside(copied), beside(copied).stat().st_size - 20 * (24 + 4096))
    left, warnings = await read(copied)
    assert warnings == [missing_end_message(copied, f"{RECORDS - left} of partition 0")]
    log = SqliteEventLog(copied)
    await log.open()
    assert log.warnings == warnings
    await (await log.claim(0)).append([(Record(b"k", b"v"),)])
    await log.close()
    assert await read(copied) == (left + 1, [])


async def test_a_closed_file_that_lacks_its_end_is_reported(path: Path) -> None:
    """The note stays when the owner closes the file."""
    async with being_written(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM records WHERE offset >= 97")
    assert await read(path) == (97, [missing_end_message(path, "3 of partition 0")])


async def test_an_emptied_partition_is_reported(path: Path) -> None:
    """A copy without the lock's file has no note of its ends; that a partition was claimed is in the file itself."""
    async with being_written(path):
        pass
    beside(path, ".lock").unlink()
    assert await read(path) == (RECORDS, [])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM records")
    left, (warning,) = await read(path)
    assert left == 0
    assert warning.startswith(f"the event log {path} has no record of partition 0, which had an owner")


@pytest.mark.parametrize("note", [b"", b"00000000{}", b'{"log_id":"', b"\xff" * 100])
async def test_an_incomplete_note_is_ignored(copied: Path, note: bytes) -> None:
    """It was read while it was written, or an older version has made the lock."""
    os.truncate(beside(copied), beside(copied).stat().st_size - (24 + 4096))
    lock = beside(copied, ".lock")
    lock.write_bytes(lock.read_bytes()[:32] + note)
    assert (await read(copied))[1] == []


def test_the_note_of_as_many_partitions_as_can_be_is_read_whole(path: Path) -> None:
    note = PartitionEnds(log_id="a" * 32, offsets=dict.fromkeys(range(10_000), 2**63 - 1))
    beside(path, ".lock").write_bytes(bytes(NOTE_AT) + encode_note(note))
    assert read_note(path) == note


@pytest.mark.parametrize(
    ("offsets", "found", "lacks"),
    [
        pytest.param({0: 7, 1: 3}, {0: 7, 1: 3}, None, id="nothing is missing"),
        pytest.param({0: 7, 1: 3}, {0: 8, 1: 3}, None, id="a note that is older than the file"),
        pytest.param({0: 7}, {0: 7, 1: 0}, None, id="a partition that nobody had appended to"),
        pytest.param({0: 7, 1: 3}, {0: 7}, None, id="a partition whose end cannot be read"),
        pytest.param({0: 7, 1: 3}, {0: 6, 1: 3}, "1 of partition 0", id="one record"),
        pytest.param({0: 2_000, 1: 3}, {0: 1, 1: 0}, "1,999 of partition 0, 3 of partition 1", id="of two partitions"),
    ],
)
def test_the_records_that_a_file_lacks_are_counted_by_partition(
    path: Path, offsets: dict[int, int], found: dict[int, int], lacks: str | None
) -> None:
    """The note of this log shows it; another log's note says nothing about it."""
    reported = describe_missing_records(
        path, PartitionEnds(log_id="a", offsets=offsets), PartitionEnds(log_id="a", offsets=found)
    )
    assert reported == (None if lacks is None else missing_end_message(path, lacks))
    assert (
        describe_missing_records(
            path, PartitionEnds(log_id="b", offsets=offsets), PartitionEnds(log_id="a", offsets=found)
        )
        is None
    )


async def test_the_note_of_another_log_is_ignored(copied: Path) -> None:
    """A new file was made where one was removed."""
    for suffix in ("", "-wal"):
        beside(copied, suffix).rename(beside(copied, f"{suffix}.old"))
    async with being_written(copied) as log:
        assert log.warnings == []


async def test_a_folder_that_cannot_be_written_makes_no_difference(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then SQLite opens only the file."""
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


def missing_end_message(path: Path, lacks: str) -> str:
    return (
        f"the event log {path} lacks the last records that its owner had written, {lacks}: "
        f"{path.name}-wal is cut off, or one of the two is older than {path.name}.lock, which records them. "
        "Put the three files back together as they were"
    )


async def _is_told(path: Path, what: str, *, read_only: bool = True) -> bool:
    records, warnings = await read(path, read_only=read_only)
    assert records < RECORDS
    (warning,) = warnings
    begin = f"the event log {path} was not closed cleanly, and {beside(path).name}, which has the latest writes"
    return warning.startswith(f"{begin}, is {what}: this may be an older state. ")
