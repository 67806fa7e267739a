"""The event log in a SQLite file: the contract, and how waiting writes become one transaction."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from muster.events.keys import EntityKind, RecordKey, encode_key, prefix_of
from muster.events.log import limits
from muster.events.log.base import EventLog, LogDamaged, LogError, LogUnavailable, SignOfLife
from muster.events.log.sqlite import schema
from muster.events.log.sqlite.file import SqliteFile
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord
from tests.events.log.contract import EventLogContract
from tests.events.log.repeating import repeated
from tests.events.log.storage import BATCH_BYTES_MAX
from tests.events.log.transitions import read_all

MIB = 1024 * 1024


class LosingConnection:
    """A connection whose next commit succeeds and reports failure, as when a disk reports an error late."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._loses = True

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, parameters: tuple[int, ...] = ()) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, parameters)
        if statement == "COMMIT" and self._loses:
            self._loses = False
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


class SqliteFaults:
    def lose_next_acknowledgement(self, log: EventLog) -> None:
        assert isinstance(log, SqliteEventLog)
        log.file._writing = LosingConnection(log.file._writing)  # type: ignore[assignment, arg-type]


class SqliteLogStorage:
    """Without the lock between processes, which would let no second log in to depose the first."""

    def __init__(self, path: Path) -> None:
        self.faults = SqliteFaults()
        self._path = path

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> SqliteEventLog:
        return SqliteEventLog(self._path, read_only=read_only, exclusive=False, batch_bytes_max=batch_bytes_max)


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> SqliteLogStorage:
        return SqliteLogStorage(tmp_path / "muster.db")


class TestGroupCommit:
    """Writes that wait become one transaction."""

    @pytest.fixture
    async def file(self, path: Path) -> AsyncIterator[SqliteFile]:
        file = SqliteFile(path)
        await file.open(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        yield file
        await file.close()

    @staticmethod
    def insert(number: int, connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    @staticmethod
    async def numbers(file: SqliteFile) -> list[int]:
        rows = await file.read(lambda c: c.execute("SELECT number FROM numbers ORDER BY number").fetchall())
        return [number for (number,) in rows]

    async def test_writes_that_wait_share_a_transaction(self, file: SqliteFile) -> None:
        """The first is written alone; the nine that arrive meanwhile together."""
        statements: list[str] = []
        await file.write(lambda connection: connection.set_trace_callback(statements.append))
        statements.clear()

        written = await asyncio.gather(*(file.write(partial(self.insert, number)) for number in range(10)))

        assert written == list(range(10))
        assert statements.count("COMMIT") == 2
        assert await self.numbers(file) == list(range(10))

    async def test_a_write_that_is_refused_is_undone_alone(self, file: SqliteFile) -> None:
        """The others in the same transaction are stored, and only its caller gets the error."""

        def refuse(connection: sqlite3.Connection) -> None:
            self.insert(99, connection)
            raise LogError("refused")

        outcomes = await asyncio.gather(
            file.write(partial(self.insert, 0)),
            file.write(partial(self.insert, 1)),
            file.write(refuse),
            file.write(partial(self.insert, 2)),
            return_exceptions=True,
        )

        assert [outcomes[0], outcomes[1], outcomes[3]] == [0, 1, 2]
        assert isinstance(outcomes[2], LogError)
        assert await self.numbers(file) == [0, 1, 2]

    async def test_a_write_with_a_bug_undoes_its_whole_transaction(self, file: SqliteFile) -> None:
        """All callers in it get the error; the file works afterwards."""

        def broken(connection: sqlite3.Connection) -> None:
            self.insert(99, connection)
            raise ZeroDivisionError

        outcomes = await asyncio.gather(
            file.write(partial(self.insert, 0)),
            file.write(partial(self.insert, 1)),
            file.write(broken),
            return_exceptions=True,
        )

        assert outcomes[0] == 0
        assert all(isinstance(outcome, ZeroDivisionError) for outcome in outcomes[1:])
        await file.write(partial(self.insert, 3))
        assert await self.numbers(file) == [0, 3]

    async def test_a_failing_statement_is_reported_as_unavailable(self, file: SqliteFile) -> None:
        """SQLite's own message is included."""
        with pytest.raises(LogUnavailable, match="no such table: letters"):
            await file.write(lambda connection: connection.execute("INSERT INTO letters VALUES (1)"))
        with pytest.raises(LogUnavailable, match="no such table: letters"):
            await file.read(lambda connection: connection.execute("SELECT * FROM letters"))

    async def test_a_write_whose_caller_was_cancelled_affects_no_others(self, file: SqliteFile) -> None:
        """It is made; the others get their answers."""
        first = asyncio.create_task(file.write(partial(self.insert, 0)))
        gone = asyncio.create_task(file.write(partial(self.insert, 1)))
        await asyncio.sleep(0)
        gone.cancel()

        assert await first == 0
        assert await file.write(partial(self.insert, 2)) == 2
        assert await self.numbers(file) == [0, 1, 2]

    async def test_closing_waits_for_what_is_to_be_written(self, path: Path) -> None:
        """A clean stop loses nothing."""
        file = SqliteFile(path)
        await file.open(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        writes = [asyncio.create_task(file.write(partial(self.insert, number))) for number in range(10)]
        await asyncio.sleep(0)

        await file.close()

        assert await asyncio.gather(*writes) == list(range(10))


async def test_records_are_found_by_their_keys(tmp_path: Path) -> None:
    """Those of one group, those that are of no group, and of a damaged file all; in order, over any distance."""
    log = SqliteEventLog(tmp_path / "muster.db", partitions=2)
    await log.open()
    writer = await log.claim(1)
    keys = {name: encode_key(RecordKey(name, EntityKind.GROUP, "")) for name in ("orders", "orders-2", "order")}
    written = [Record(key, b"x") for key in (*keys.values(), b"not a key", keys["orders"])]
    await writer.append([(record,) for record in written])
    found = [
        (record.offset, record.key)
        async for chunk in log.read_wanted(1, [prefix_of("orders")], start=0, end=5)
        for record in chunk
    ]
    assert found == [(0, keys["orders"]), (3, b"not a key"), (4, keys["orders"])]
    assert [each async for each in log.read_wanted(1, [prefix_of("orders")], start=1, end=3)] == []
    assert [each async for each in log.read_wanted(0, [prefix_of("orders")], start=0, end=5)] == []
    await log.close()


async def test_large_records_are_read_a_few_megabytes_at_a_time(tmp_path: Path) -> None:
    """A reader has one chunk in memory, of whatever size the partition is; and small ones would take long."""
    log = SqliteEventLog(tmp_path / "muster.db")
    await log.open()
    records = 1_200
    await (await log.claim(0)).append([(Record(b"key", bytes(8 * 1024)),) for _ in range(records)])
    chunks = [sum(len(each.value or b"") for each in chunk) async for chunk in log.read(0)]
    assert sum(chunks) == records * 8 * 1024
    assert 2 * MIB < max(chunks) < 8 * MIB
    await log.close()


async def test_a_large_transition_leaves_no_large_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log has grown with it, and shrinks with one of the next writes, to no more than may be needed
    again.
    """
    assert schema.WAL_BYTES_KEPT <= limits.BATCH_BYTES_MAX
    monkeypatch.setattr(schema, "WAL_BYTES_KEPT", MIB)
    log = SqliteEventLog(tmp_path / "muster.db")
    await log.open()
    writer, wal = await log.claim(0), tmp_path / "muster.db-wal"
    await writer.append([(Record(b"key", bytes(8 * MIB)),)])
    assert wal.stat().st_size > 8 * MIB
    for _ in range(2):
        await writer.append([(Record(b"key", b"small"),)])
    assert wal.stat().st_size <= MIB
    await log.close()


class TestWhatAFileTellsOfItself:
    async def test_an_owner_of_a_file_needs_no_proof(self, path: Path) -> None:
        """It is locked while it is open, and epochs are kept in it."""
        log = SqliteEventLog(path, partitions=2)
        await log.open()
        writer = await log.claim(1)
        await writer.append([(Record(b"a", b"1"),)])
        assert await repeated(log, writer) == {1: False}
        assert (writer.partition, writer.epoch, (await log.claim(1)).epoch) == (1, 1, 2)
        assert (log.supports_takeover, log.claim_renewal_ms, log.trouble) == (False, None, None)
        assert (log.identity, log.stored_by(0)) == (log.meta.log_id, f"the disk of {path}")
        assert [await log.has_owners_record(partition) for partition in (0, 1)] == [False, True]
        await log.close()

    async def test_a_level_that_is_raised_stays(self, path: Path) -> None:
        """An older file's level is raised to at least the third, which all readers of the first two can read."""
        await _made(path)
        _change(path, "UPDATE meta SET value = 1 WHERE name = 'format_level'")
        for expected in (3, FORMAT_LEVEL):
            log = SqliteEventLog(path)
            await log.open()
            assert log.format_level == expected
            await log.raise_format_level()
            assert log.format_level == FORMAT_LEVEL
            await log.close()

    async def test_records_are_restored_where_they_stood(self, path: Path) -> None:
        """With their times; later appends follow them."""
        log = SqliteEventLog(path, partitions=2, wall_ms=lambda: 99)
        await log.open()
        records = [
            StoredRecord(0, 7, 17, b"a", b"1"),
            StoredRecord(0, 9, 18, b"b", None),
            StoredRecord(1, 3, 19, b"c", b""),
        ]
        await log.restore(records)
        assert [*await read_all(log, 0), *await read_all(log, 1)] == records
        writer = await log.claim(0)
        await writer.append([(Record(b"d", b"2"),)])
        assert (await read_all(log, 0))[-1] == StoredRecord(0, 10, 99, b"d", b"2")
        assert writer.next_offset == 11
        await log.close()

    async def test_a_modified_sign_of_life_is_ignored(self, path: Path) -> None:
        log = SqliteEventLog(path)
        await log.open()
        await log.leave_sign_of_life(SignOfLife(owner="one:1", wall_ms=17), timeout_ms=10_000)
        assert await log.last_signs_of_life(timeout_ms=10_000) == {"one:1": 17}
        await log.file.write(
            lambda connection: connection.execute("UPDATE meta SET value = 'x' WHERE name = 'sign_of_life'")
        )
        assert await log.last_signs_of_life(timeout_ms=10_000) == {}
        await log.close()

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("UPDATE records SET key = 'text' WHERE offset = 1", "a record of partition 0 after offset 0 has no key"),
            (
                "UPDATE records SET value = 7 WHERE offset = 1",
                "a record of partition 0 after offset 0 has no key, time",
            ),
            (
                "UPDATE records SET timestamp_ms = 'x' WHERE offset = 1",
                "a record of partition 0 after offset 0 has no",
            ),
            ("UPDATE records SET offset = 'x' WHERE offset = 1", "the last record of partition 0 has no offset"),
        ],
    )
    async def test_foreign_values_are_damage(self, path: Path, change: str, told: str) -> None:
        """SQLite takes any value in any column, as where a page was overwritten in part."""
        await _made(path)
        _change(path, change)
        log = SqliteEventLog(path)
        with pytest.raises(LogDamaged, match=told):  # noqa: PT012 -- one of them tells
            await log.open()
            assert await log.end_offset(0) == 2
            await read_all(log, 0)
        await log.close()

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("DROP TABLE meta", "it has no table `meta`"),
            (
                "DELETE FROM meta WHERE name = 'partitions'",
                "its table `meta`: Object missing required field `partitions`",
            ),
            ("UPDATE meta SET value = 'x' WHERE name = 'partitions'", "its table `meta`: Expected `int`, got `str`"),
        ],
    )
    async def test_a_file_without_its_settings_is_damaged(self, path: Path, change: str, told: str) -> None:
        await _made(path)
        _change(path, change)
        with pytest.raises(LogDamaged, match=re.escape(told)):
            await SqliteEventLog(path).open()


async def _made(path: Path) -> None:
    """A log with two records in its only partition."""
    log = SqliteEventLog(path, partitions=1)
    await log.open()
    await (await log.claim(0)).append([(Record(b"a", b"1"), Record(b"b", None))])
    await log.close()


def _change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
