"""A log in a file whose disk does not respond, that is damaged, or whose path names another file."""

import asyncio
import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.serve import _with_replay
from muster.events.keys import prefix_of
from muster.events.log.base import UNKNOWN_END, LogDamaged, LogMismatch, LogUnavailable, SignOfLife
from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record
from tests.events.log.transitions import read_all
from tests.waiting import until

PAGE_BYTES = 4096
ROOT = Path(__file__).parents[4]


class HangingDisk:
    """Calls that do not return before the disk is mended, as a hung fsync does not."""

    def __init__(self) -> None:
        self._mended = threading.Event()
        self.mend: Callable[[], None] = self._mended.set

    def wait(self) -> None:
        self._mended.wait()

    def hang(self, connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (0)")
        self._mended.wait()


class Timers:
    """The timers of this test's loop, except those that end an `asyncio.timeout`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[asyncio.TimerHandle] = []
        self._loop = asyncio.get_running_loop()
        self._call_later = self._loop.call_later
        monkeypatch.setattr(self._loop, "call_later", self._noted)

    def _noted(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        self.made.append(self._call_later(*args, **kwargs))
        return self.made[-1]

    def left(self) -> list[asyncio.TimerHandle]:
        """Those that will call."""
        now_s = self._loop.time()
        return [timer for timer in self.made if not timer.cancelled() and timer.when() > now_s]


def trouble_of(file: SqliteFile) -> str | None:
    return file.trouble


def insert(number: int, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO numbers VALUES (?)", (number,))


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


@pytest.mark.slow
async def test_a_file_that_another_program_has_locked_is_waited_for(path: Path) -> None:
    """The disk is fine, and not blamed. It continues when the lock is gone, also while opening."""
    log = SqliteEventLog(path)
    await log.open()
    writer = await log.claim(0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LogUnavailable, match="cannot be written: another program has it locked"):
            await writer.append([(Record(b"a", b"1"),)])
        assert log.trouble is None
        other.execute("ROLLBACK")
        await writer.append([(Record(b"a", b"1"),)])
        await log.close()
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        again = SqliteEventLog(path)
        with pytest.raises(LogUnavailable, match="cannot be opened: another program has it locked"):
            await again.open()
    await again.open()
    assert [one.key for one in await read_all(again)] == [b"a"]
    await again.close()


async def test_a_disk_that_is_full_at_the_start_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock file is named, no lock is left, and it continues when there is room."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = SqliteEventLog(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(LogUnavailable, match=rf"{path} cannot be opened: {path}\.lock: No space left on device"):
            await log.open()
    await log.open()
    await log.close()


async def test_a_lock_that_fails_for_another_reason_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting would not help: an operator has to check the disk."""

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(LogMismatch, match=rf"{path} cannot be opened: {path}\.lock: Input/output error"):
        await SqliteEventLog(path).open()


async def test_a_database_that_has_no_room_to_be_made_is_waited_for(path: Path) -> None:
    """The error has SQLite's message for a full disk and the file."""

    def full(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 1")
        connection.execute("CREATE TABLE numbers (number INTEGER)")

    with pytest.raises(LogUnavailable, match=rf"{path} cannot be opened: database or disk is full"):
        await SqliteFile(path).open(full)


class TestADiskThatDoesNotAnswer:
    @pytest.fixture
    def disk(self) -> HangingDisk:
        return HangingDisk()

    @pytest.fixture
    async def timers(self, monkeypatch: pytest.MonkeyPatch) -> Timers:
        return Timers(monkeypatch)

    @pytest.fixture
    async def file(self, path: Path, disk: HangingDisk) -> AsyncIterator[SqliteFile]:
        file = SqliteFile(path, call_timeout_s=0.3, slow_after_s=0.1, close_timeout_s=0.2)
        await file.open(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        yield file
        disk.mend()
        await file.close()

    async def test_waiters_are_notified_and_stored_records_are_kept(self, file: SqliteFile, disk: HangingDisk) -> None:
        """Also waiters that start during the hang. When the disk responds again, the pending write is stored, and the
        next one too.
        """
        hung = [asyncio.create_task(file.write(disk.hang)), asyncio.create_task(file.write(partial(insert, 1)))]
        async with asyncio.timeout(60):
            for write in hung:
                with pytest.raises(LogUnavailable, match=f"the disk of {file.path} has not answered for "):
                    await write
            with pytest.raises(LogUnavailable, match="has not answered"):
                await file.write(partial(insert, 2))

        late = asyncio.create_task(file.write(partial(insert, 3)))
        await asyncio.sleep(0)
        disk.mend()

        await late
        assert await file.read(numbers) == [0, 3]

    async def test_a_write_that_is_done_leaves_no_timer(self, file: SqliteFile, timers: Timers) -> None:
        """It would fail a later one before its time."""
        for number in range(2):
            await file.write(partial(insert, number))
        assert len(timers.made) > 1
        assert not timers.left()

    async def test_a_read_is_not_waited_for_for_ever_either(self, file: SqliteFile, disk: HangingDisk) -> None:
        """Reading has its own thread, which may hang alone."""
        mended = threading.Event()
        with pytest.raises(LogUnavailable, match=f"the disk of {file.path} has not answered for "):
            await file.read(lambda _connection: mended.wait())
        mended.set()
        assert await file.read(numbers) == []

    async def test_waiting_for_a_sign_of_life_has_the_requested_limit(self, path: Path, disk: HangingDisk) -> None:
        """The same holds for reading the last one, when the reader hangs."""
        log = SqliteEventLog(path)
        await log.open()
        await log.file.write(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        writing = asyncio.create_task(log.file.write(disk.hang))
        reading = asyncio.create_task(log.file.read(lambda _: disk.wait()))
        await asyncio.sleep(0)
        for requested in (
            log.leave_sign_of_life(SignOfLife(owner="o", wall_ms=1), timeout_ms=50),
            log.last_signs_of_life(timeout_ms=50),
        ):
            with pytest.raises(LogUnavailable, match=f"^the disk of {path} has not answered for 50 ms$"):
                await requested
        disk.mend()
        await asyncio.gather(writing, reading)
        await log.close()

    async def test_the_duration_is_logged(self, file: SqliteFile, disk: HangingDisk) -> None:
        """In words for the operator; and that it is over."""
        assert trouble_of(file) is None
        write = asyncio.create_task(file.write(disk.hang))
        await until(lambda: trouble_of(file) is not None)
        assert (trouble_of(file) or "").startswith(f"the disk of {file.path} has not answered for ")
        await asyncio.wait([write])
        disk.mend()
        await until(lambda: trouble_of(file) is None)

    async def test_closing_waits_no_longer_than_a_while(
        self, file: SqliteFile, disk: HangingDisk, timers: Timers
    ) -> None:
        """Waiting calls fail; the lock stays until the process ends: the disk may yet write."""
        writes = [asyncio.create_task(file.write(disk.hang)), asyncio.create_task(file.write(partial(insert, 1)))]
        await asyncio.sleep(0)

        await file.close()

        for write in writes:
            with pytest.raises(LogUnavailable):
                await write
        assert timers.made
        assert not timers.left()
        with pytest.raises(LogMismatch, match="is in use by process"):
            await SqliteFile(file.path).open(numbers)

    def test_the_process_ends_all_the_same(self, path: Path) -> None:
        """No thread that hangs is waited for when the interpreter ends."""
        script = f"""
import asyncio, threading
from pathlib import Path
from muster.events.log.base import LogUnavailable
from muster.events.log.sqlite.file import SqliteFile

async def main():
    file = SqliteFile(Path({str(path)!r}), close_timeout_s=0.1)
    await file.open(lambda connection: None)
    write = asyncio.create_task(file.write(lambda connection: threading.Event().wait()))
    await asyncio.sleep(0)
    await file.close()
    try:
        await write
    except LogUnavailable as error:
        print(error)

asyncio.run(main())
"""
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "has not answered" in ended.stdout


async def made(path: Path) -> None:
    """A log with 2,000 records in its first partition and 200 in its second, closed again."""
    log = SqliteEventLog(path, partitions=2)
    await log.open()
    for partition, records in ((0, 2_000), (1, 200)):
        writer = await log.claim(partition)
        await writer.append([(Record(b"k%d" % number, b"v" * 100),) for number in range(records)])
    await log.close()


def damage(path: Path, partition: int) -> None:
    """Overwrite one page of the partition's records, of some thirty."""
    with closing(sqlite3.connect(path)) as connection:
        low, high = connection.execute(
            "SELECT min(offset), max(offset) FROM records WHERE partition = ?", (partition,)
        ).fetchone()
    needle = b"k%d" % ((low + high) // 2) + b"v" * 100
    content = bytearray(path.read_bytes())
    page = content.index(needle) // PAGE_BYTES
    content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = os.urandom(PAGE_BYTES)
    path.write_bytes(content)


def damage_all_but_the_first_pages(path: Path) -> None:
    """The schema and the settings stay."""
    content = path.read_bytes()
    path.write_bytes(content[: 4 * PAGE_BYTES] + os.urandom(len(content) - 4 * PAGE_BYTES))


def cut_off(path: Path) -> None:
    """Leave the first half, in whole pages."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 // PAGE_BYTES * PAGE_BYTES])


class TestADamagedFile:
    async def test_an_owner_goes_no_further(self, path: Path) -> None:
        """The damage and the remedy are reported once; nothing is written after that."""
        await made(path)
        damage(path, 0)
        log = SqliteEventLog(path)
        await log.open()
        writer = await log.claim(0)

        with pytest.raises(LogDamaged) as damaged:
            await read_all(log, 0)

        message = str(damaged.value)
        assert f"the event log {path} is damaged (database disk image is malformed)" in message
        assert f"sqlite3 {path} .recover" in message
        assert "restore a backup" in message
        assert "muster replay" not in message  # it reports this itself; `serve` names it
        assert _with_replay(damaged.value) == f"{message}; `muster replay` shows what can still be read"
        assert "\n" not in message
        with pytest.raises(LogDamaged):
            await writer.append([(Record(b"key", b"value"),)])
        await log.close()

    async def test_a_write_that_hits_the_damage_reports_the_same(self, path: Path) -> None:
        """Writes that wait behind it get the same error."""
        await made(path)
        damage_all_but_the_first_pages(path)
        log = SqliteEventLog(path)
        await log.open()

        outcomes = await asyncio.gather(*(log.file.write(break_on) for _ in range(3)), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [LogDamaged] * 3
        await log.close()

    async def test_after_a_write_that_met_damage_nothing_is_written(self, path: Path) -> None:
        """Neither waiting writes nor later ones, though their own pages may be intact."""

        def meet_damage(_: sqlite3.Connection) -> None:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

        file = SqliteFile(path)
        await file.open(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        writes = [asyncio.create_task(file.write(partial(insert, 0)))]
        await asyncio.sleep(0)  # it is in progress; the next two wait
        writes += [asyncio.create_task(file.write(each)) for each in (meet_damage, partial(insert, 1))]
        _, *damaged = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(outcome) for outcome in damaged] == [LogDamaged] * 2
        for _ in range(2):
            with pytest.raises(LogDamaged, match="is damaged"):
                await file.write(partial(insert, 2))
        assert await file.read(numbers) == [0]
        await file.close()

    async def test_a_reader_gets_what_can_be_read(self, path: Path) -> None:
        """Everything except the damaged page, and the other partition whole; and the damage is reported."""
        await made(path)
        damage(path, 0)
        log = SqliteEventLog(path, read_only=True)
        await log.open()
        assert not log.warnings

        offsets = [record.offset for record in await read_all(log, 0)]

        assert 1_900 < len(offsets) < 2_000
        assert offsets == sorted(set(offsets))
        assert {0, 1_999} <= set(offsets)
        assert len(await read_all(log, 1)) == 200
        (warning,) = log.warnings
        assert warning.startswith(f"the event log {path} is damaged")
        assert warning.endswith("The unreadable records of partition 0 were left out")
        await log.close()

    async def test_a_search_for_keys_returns_all_that_can_be_read(self, path: Path) -> None:
        """The damage is reported, as by any reader. An owner stops here, too."""
        await made(path)
        damage(path, 0)
        wanted = [prefix_of("orders")]
        log = SqliteEventLog(path, read_only=True)
        await log.open()
        found = [record async for chunk in log.read_wanted(0, wanted, start=0, end=2_000) for record in chunk]
        assert [record.offset for record in found] == [record.offset for record in await read_all(log, 0)]
        assert len(log.warnings) == 1
        await log.close()
        owner = SqliteEventLog(path)
        await owner.open()
        with pytest.raises(LogDamaged):
            _ = [chunk async for chunk in owner.read_wanted(0, wanted, start=0, end=2_000)]
        await owner.close()

    async def test_of_a_file_that_was_cut_off_the_beginning_can_be_read(self, path: Path) -> None:
        """Its end is not even known."""
        await made(path)
        cut_off(path)
        log = SqliteEventLog(path, read_only=True)
        await log.open()

        found = [len(await read_all(log, partition)) for partition in (0, 1)]

        assert sum(found) > 500
        assert log.warnings
        await log.close()

    async def test_an_end_that_cannot_be_read_is_reported_as_damage(self, path: Path) -> None:
        """Though nothing else is read of it."""
        await made(path)
        cut_off(path)
        log = SqliteEventLog(path, read_only=True)
        await log.open()
        ends = [await log.end_offset(partition) for partition in (0, 1)]
        assert UNKNOWN_END in ends
        assert log.warnings
        await log.close()


def break_on(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM records").fetchone()


def remove(path: Path) -> None:
    path.unlink()


def move(path: Path, to: Path) -> None:
    path.rename(to)


def lead(link: Path, to: Path) -> None:
    """Have the symbolic link lead there, where there is a file."""
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    to.touch()
    link.symlink_to(to)


class TestAPathThatNamesAnotherFile:
    """Appends to a file without a name would never be found."""

    @pytest.fixture
    async def log(self, path: Path) -> AsyncIterator[SqliteEventLog]:
        log = SqliteEventLog(path)
        await log.open()
        await log.file.check_in_place()
        yield log
        await log.close()

    async def assert_given_up(self, log: SqliteEventLog, path: Path, what: str) -> None:
        writer = await log.claim(0)
        with pytest.raises(LogMismatch) as mismatch:
            await log.file.check_in_place()
        assert str(mismatch.value) == (
            f"{path} {what} while the event log {log.location} was in use: nothing more is appended to it."
            " Put back the original files, muster.db and muster.db-wal together, or restore a backup, and restart"
        )
        with pytest.raises(LogMismatch, match="nothing more is appended"):
            await writer.append([(Record(b"key", b"value"),)])

    async def test_a_file_that_was_deleted(self, log: SqliteEventLog, path: Path) -> None:
        remove(path)
        await self.assert_given_up(log, path, "no longer exists")

    async def test_a_file_that_was_moved(self, log: SqliteEventLog, path: Path) -> None:
        move(path, path.with_name("old.db"))
        await self.assert_given_up(log, path, "no longer exists")

    async def test_a_file_that_was_replaced(self, log: SqliteEventLog, path: Path, tmp_path: Path) -> None:
        """For example a backup that is restored under a running process."""
        shutil.copy(path, tmp_path / "backup.db")
        move(tmp_path / "backup.db", path)
        await self.assert_given_up(log, path, "was replaced by another file")

    async def test_a_link_that_leads_elsewhere(self, tmp_path: Path) -> None:
        """The next process would open the file that the path names now."""
        link = tmp_path / "link" / "muster.db"
        lead(link, tmp_path / "muster.db")
        log = SqliteEventLog(link)
        await log.open()
        await log.file.check_in_place()
        lead(link, tmp_path / "other.db")
        await self.assert_given_up(log, link, "was replaced by another file")
        await log.close()

    async def test_a_write_ahead_log_that_was_deleted(self, log: SqliteEventLog, path: Path) -> None:
        """Only it has the newest appends."""
        wal = path.with_name("muster.db-wal")
        remove(wal)
        await self.assert_given_up(log, wal, "no longer exists")

    async def test_closing_cleanly_is_not_a_loss(self, path: Path) -> None:
        """It ends the write-ahead log, which must not be taken for an error."""
        log = SqliteEventLog(path)
        await log.open()
        await log.close()
        await log.file.check_in_place()
