"""Opening a log in a SQLite file: the file at its path, the writer's lock, readers."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.events.log.base import LogDamaged, LogMismatch, LogUnavailable
from muster.events.log.sqlite import open as opening
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.sqlite.schema import TABLES_VERSION
from muster.events.records import FORMAT_LEVEL, LogTooNew, Record
from tests.events.log.transitions import read_all, records_of, transition


@pytest.fixture
async def log(path: Path) -> AsyncIterator[SqliteEventLog]:
    log = SqliteEventLog(path)
    await log.open()
    yield log
    await log.close()


async def make(path: Path, *, partitions: int | None = None) -> None:
    """A log with one transition in it, closed again."""
    log = SqliteEventLog(path, partitions=partitions)
    await log.open()
    await (await log.claim(0)).append([transition("a")])
    await log.close()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def content(path: Path) -> bytes:
    return path.read_bytes()


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


async def mismatch_of(log: SqliteEventLog) -> str:
    with pytest.raises(LogMismatch) as mismatch:
        await log.open()
    message = str(mismatch.value)
    assert "\n" not in message
    return message


class TestOpening:
    """The file at the path decides; the messages are one line for the operator."""

    async def test_each_commit_is_on_the_disk_when_it_returns(self, log: SqliteEventLog) -> None:
        """FULL, with a write-ahead log: acknowledged data survives a power failure."""
        assert await log.file.write(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)
        assert await log.file.write(lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)

    async def test_a_new_file_is_identified_by_its_id(self, path: Path) -> None:
        """A log keeps its id; another file has another one."""
        ids = []
        for file in (path, path, path.with_name("other.db")):
            log = SqliteEventLog(file)
            await log.open()
            ids.append(log.meta.log_id)
            await log.close()

        assert ids[0] == ids[1] != ids[2]

    async def test_a_new_file_names_its_program_and_tables(self, path: Path) -> None:
        """In SQLite's own header: any tool shows it, and a later Muster knows by it what it finds."""
        await make(path)
        header = content(path)[:100]
        assert header[68:72] == b"MUST"
        assert int.from_bytes(header[60:64], "big") == TABLES_VERSION == 1, "earlier versions refuse any other"

    async def test_a_cleanly_closed_log_is_one_file(self, path: Path) -> None:
        """So it can be copied; the lock file does not matter."""
        await make(path)

        assert {file.name for file in path.parent.iterdir()} == {"muster.db", "muster.db.lock"}

    async def test_reading_makes_no_file(self, path: Path) -> None:
        """A mistyped path is reported, and leaves nothing behind."""
        assert await mismatch_of(SqliteEventLog(path, read_only=True)) == (
            f"no event log at {path}: name it with --log, or MUSTER_LOG (a sidecar's is, unless it was given another,"
            " kafka://HOST:PORT/__muster_events)"
        )
        assert list(path.parent.iterdir()) == []

    async def test_a_path_that_cannot_be_a_file_is_reported(self, path: Path) -> None:
        """A folder, and a file in a folder that is not there."""
        for read_only in (False, True):
            assert "is a folder" in await mismatch_of(SqliteEventLog(path.parent, read_only=read_only))
        assert not path.parent.with_name(path.parent.name + ".lock").exists()
        missing = path.parent / "missing"
        assert await mismatch_of(SqliteEventLog(missing / "muster.db")) == (
            f"the event log {missing / 'muster.db'} cannot be created: the folder {missing} does not exist"
        )

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_a_file_that_is_not_a_database_is_left_unchanged(self, path: Path, read_only: bool) -> None:
        """A text file is not a log, however short (SQLite considers one byte an empty file); nothing is created beside
        it.
        """
        text = b"not a database, but long enough to look like one to a hurried reader\n" * 100
        for length in (2, 100, len(text)):
            put(path, text[:length])

            message = await mismatch_of(SqliteEventLog(path, read_only=read_only))

            assert message == f"{path} is not an event log: file is not a database"
            assert content(path) == text[:length]
            assert list(path.parent.iterdir()) == [path]

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_a_foreign_database_is_left_unchanged(self, path: Path, read_only: bool) -> None:
        """Not even its journal mode is changed, and no file is created beside it, in any journal mode."""
        change(path, "CREATE TABLE customers (name)")
        for mode in ("delete", "wal"):
            change(path, f"PRAGMA journal_mode = {mode}")
            before = content(path)

            message = await mismatch_of(SqliteEventLog(path, read_only=read_only))

            assert message == (
                f"{path} is a SQLite file of another program, not an event log of Muster. It was left as it is; give"
                " --log another name (muster serve creates what does not exist yet)"
            )
            assert content(path) == before
            assert list(path.parent.iterdir()) == [path]

    async def test_an_empty_file_becomes_a_log_only_when_it_may_be_written(self, path: Path) -> None:
        """As created by `mktemp`."""
        put(path, b"")
        assert "is empty" in await mismatch_of(SqliteEventLog(path, read_only=True))

        await make(path)

        reader = SqliteEventLog(path, read_only=True)
        await reader.open()
        assert len(await read_all(reader)) == 2
        await reader.close()

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_the_number_of_partitions_is_fixed_when_the_log_is_made(self, path: Path, read_only: bool) -> None:
        """Another number is refused, naming both; without a number the log is taken as it is."""
        await make(path, partitions=3)

        message = await mismatch_of(SqliteEventLog(path, partitions=5, read_only=read_only))
        assert "has 3 partitions" in message
        assert "the settings say 5" in message

        for asked_for in (None, 3):
            log = SqliteEventLog(path, partitions=asked_for, read_only=read_only)
            await log.open()
            assert log.partitions == 3
            await log.close()

    async def test_an_audit_window_that_is_given_is_kept(self, path: Path) -> None:
        """The next opening without one finds it."""
        windows = []
        for given in (None, 60_000, None):
            log = SqliteEventLog(path, audit_window_ms=given)
            await log.open()
            windows.append(log.meta.audit_window_ms)
            await log.close()

        assert windows == [7 * 24 * 3600 * 1000, 60_000, 60_000]

    async def test_the_header_of_a_file_identifies_an_event_log(self, path: Path) -> None:
        """It has the application's id, and the version of the tables, as each version has written them."""
        log = SqliteEventLog(path)
        await log.open()
        assert log.partitions == 8
        await log.close()
        with closing(sqlite3.connect(path)) as connection:
            header = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        assert header == [(int.from_bytes(b"MUST", "big"),), (1,)]

    async def test_a_refused_process_changes_no_setting(self, path: Path) -> None:
        """With another number of partitions, an audit window is not set either."""
        await make(path, partitions=3)
        await mismatch_of(SqliteEventLog(path, partitions=5, audit_window_ms=60_000))

        log = SqliteEventLog(path)
        await log.open()
        assert log.meta.audit_window_ms == 7 * 24 * 3600 * 1000
        await log.close()

    @pytest.mark.parametrize("read_only", [False, True])
    async def test_a_log_of_a_newer_version_is_refused(self, path: Path, read_only: bool) -> None:
        """Both levels are named, that of the events and that of the tables."""
        known = FORMAT_LEVEL
        await make(path)
        change(path, f"UPDATE meta SET value = {known + 1} WHERE name = 'format_level'")
        with pytest.raises(LogTooNew, match=f"format level {known + 1}, this version of Muster knows {known}"):
            await SqliteEventLog(path, read_only=read_only).open()

        change(path, f"PRAGMA user_version = {TABLES_VERSION + 1}")
        with pytest.raises(LogTooNew, match=f"version {TABLES_VERSION + 1}, .* knows {TABLES_VERSION}"):
            await SqliteEventLog(path, read_only=read_only).open()

    async def test_a_file_that_cannot_be_opened_is_not_kept_locked(self, path: Path) -> None:
        """The operator puts it right, and tries again."""
        put(path, b"not a database" * 100)
        await mismatch_of(SqliteEventLog(path))
        put(path, b"")

        await make(path)

    async def test_a_log_opened_for_reading_claims_nothing(self, path: Path) -> None:
        """It has no connection that could write."""
        await make(path)
        reader = SqliteEventLog(path, read_only=True)
        await reader.open()

        with pytest.raises(LogUnavailable, match="not open for writing"):
            await reader.claim(0)
        await reader.close()

    async def test_a_log_that_is_not_open_is_unavailable(self, path: Path) -> None:
        """Neither before opening nor after closing."""
        log = SqliteEventLog(path)
        with pytest.raises(LogUnavailable):
            await log.claim(0)
        await log.open()
        writer = await log.claim(0)
        await log.close()
        with pytest.raises(LogUnavailable):
            await writer.append([transition("a")])
        with pytest.raises(LogUnavailable):
            await read_all(log)

    async def test_a_missing_partition_is_a_bug_of_the_caller(self, log: SqliteEventLog) -> None:
        """It is not made by the way."""
        for partition in (-1, log.partitions):
            with pytest.raises(ValueError, match="has no partition"):
                await log.claim(partition)
            with pytest.raises(ValueError, match="has no partition"):
                await log.end_offset(partition)


class TestTheLock:
    """One process writes a file; any number read it."""

    async def test_a_second_writing_process_learns_which_one_has_the_file(
        self, log: SqliteEventLog, path: Path
    ) -> None:
        """It fails before it has changed anything, and the first continues."""
        writer = await log.claim(0)

        message = await mismatch_of(SqliteEventLog(path))

        assert str(path) in message
        assert f"process {os.getpid()}" in message
        assert list(await writer.append([transition("a")])) == [None]

    async def test_readers_come_in_all_the_same(self, log: SqliteEventLog, path: Path) -> None:
        """`muster replay` looks at the live log."""
        await (await log.claim(0)).append([transition("a")])
        reader = SqliteEventLog(path, read_only=True)
        await reader.open()

        assert records_of(await read_all(reader)) == list(transition("a"))
        await reader.close()

    async def test_a_file_with_a_second_name_is_refused_by_either(self, log: SqliteEventLog, path: Path) -> None:
        """A hard link would have its own lock and write-ahead log."""
        other = path.with_name("other.db")
        os.link(path, other)
        with pytest.raises(LogMismatch, match="has another name, a hard link"):
            await SqliteEventLog(other).open()
        await log.close()
        with pytest.raises(LogMismatch, match=r"find / -xdev -inum \d+ shows it"):
            await SqliteEventLog(path).open()
        other.unlink()
        await make(path)

    async def test_the_next_process_comes_in_after_the_first_has_closed(self, path: Path) -> None:
        """Also when the file of the lock is still there."""
        for _ in range(2):
            await make(path)


class TestReadingWithoutPermissionToWrite:
    """A postmortem often uses a copy, or runs as a user who may only read."""

    READ = """
import asyncio, ctypes, os, sys
from pathlib import Path
from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog

async def main() -> None:
    log = SqliteEventLog(Path(sys.argv[1]), read_only=True)
    try:
        await log.open()
    except LogMismatch as error:
        print(error)
        return
    print(sum([len(chunk) async for chunk in log.read(0)]))
    await log.close()

if os.geteuid() == 0 and len(sys.argv) == 2:
    # What root may do in spite of a file's mode (CAP_DAC_OVERRIDE) is taken from the next program (PR_CAPBSET_DROP).
    assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0
    os.execv(sys.executable, [*sys.orig_argv, "again"])
asyncio.run(main())
"""

    async def read_as_another_user(self, path: Path) -> str:
        """Read as a process that may write neither the file nor its folder; return the number of records, or
        the error.
        """
        modes = {file: file.stat().st_mode for file in (path.parent, *path.parent.iterdir())}
        for file in modes:
            file.chmod(0o555 if file.is_dir() else 0o444)
        reading = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", self.READ, str(path)],
            capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[4],
        )  # fmt: skip
        for file, mode in modes.items():
            file.chmod(mode)
        assert reading.returncode == 0, reading.stderr
        return reading.stdout.strip()

    async def test_a_live_log_can_be_read(self, path: Path) -> None:
        """The writer's files beside the log are used unchanged."""
        log = SqliteEventLog(path)
        await log.open()
        await (await log.claim(0)).append([transition("a", records=7)])

        assert await self.read_as_another_user(path) == "7"
        await log.close()

    @pytest.mark.parametrize(
        ("code", "files_are_missing"),
        [
            (sqlite3.SQLITE_CANTOPEN, True),
            (sqlite3.SQLITE_CANTOPEN_FULLPATH, True),
            (sqlite3.SQLITE_READONLY, True),
            (sqlite3.SQLITE_READONLY_CANTINIT, True),
            (sqlite3.SQLITE_NOTADB, False),
            (sqlite3.SQLITE_CORRUPT, False),
            (sqlite3.SQLITE_BUSY_RECOVERY, False),
        ],
    )
    async def test_a_log_that_cannot_be_written_is_read_without_the_files_beside_it(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, code: int, files_are_missing: bool
    ) -> None:
        """If SQLite reports, in any way, that they cannot be created. Any other error is reported by the next read."""
        await make(path)
        options: list[str] = []

        class Failing(sqlite3.Connection):
            def execute(self, *_: object) -> sqlite3.Cursor:
                error = sqlite3.OperationalError("as it says")
                error.sqlite_errorcode = code
                raise error

        def connect(_path: Path, option: str) -> sqlite3.Connection:
            options.append(option)
            return sqlite3.connect(path, factory=Failing)

        monkeypatch.setattr(opening, "_connect", connect)
        opening.connect_for_reading(path).close()
        assert options == (["mode=ro", "mode=ro&immutable=1"] if files_are_missing else ["mode=ro"])

    async def test_a_cleanly_closed_log_can_be_read(self, path: Path) -> None:
        """It is complete without its write-ahead log."""
        await make(path)

        assert await self.read_as_another_user(path) == "2"

    async def test_a_log_with_a_killed_writer_is_reported_with_advice(self, path: Path, tmp_path: Path) -> None:
        """Its end is only in the write-ahead log; without it the history would be wrong."""
        log = SqliteEventLog(path)
        await log.open()
        await (await log.claim(0)).append([(Record(b"key", b"value"),)])
        copy = tmp_path / "copy" / "muster.db"
        copy.parent.mkdir()
        for name in ("muster.db", "muster.db-wal"):
            shutil.copy(path.with_name(name), copy.with_name(name))
        await log.close()

        answer = await self.read_as_another_user(copy)

        assert "was not closed cleanly" in answer
        assert "muster.db-wal" in answer


async def test_invalid_text_is_damage(path: Path) -> None:
    """Python's module finds it, not SQLite, and its error has no code."""
    await make(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = CAST(x'ff' AS TEXT)")
    log = SqliteEventLog(path, read_only=True)
    with pytest.raises(LogDamaged, match="Could not decode to UTF-8"):
        await log.open()
