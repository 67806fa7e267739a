"""Trimming a SQLite log to its audit window."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.events.log.base import LogUnavailable
from muster.events.log.sqlite import trim as sqlite_trim
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.sqlite.trim import Trimmed
from muster.events.records import Record, StoredRecord
from tests.events.log.transitions import read_all, record, transition

WINDOW_MS = 1_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def log(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteEventLog]:
    log = SqliteEventLog(tmp_path / "muster.db", partitions=2, audit_window_ms=WINDOW_MS, wall_ms=clock)
    await log.open()
    yield log
    await log.close()


async def shown(log: SqliteEventLog, partition: int = 0) -> list[tuple[int, str, str | None]]:
    return [
        (one.offset, one.key.decode(), None if one.value is None else one.value.decode())
        for one in await read_all(log, partition)
    ]


async def test_inside_the_window_the_whole_history_stays(log: SqliteEventLog, clock: Clock) -> None:
    """A record that is as old as the window is inside it."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("a", "2"), record("a", None), record("b"))])

    assert await log.trim(clock.now_ms + WINDOW_MS) == Trimmed(looked_at=0, deleted=0, more=False)

    assert len(await shown(log)) == 4


async def test_behind_the_window_the_last_value_of_each_key_stays(log: SqliteEventLog, clock: Clock) -> None:
    """Offsets stay the same, and the next append continues after them."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("b", "1"), record("a", "2"), record("c", "1"), record("z"))])

    trimmed = await log.trim(clock.now_ms + WINDOW_MS + 1)

    assert trimmed == Trimmed(looked_at=4, deleted=1, more=False)
    assert await shown(log) == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1"), (4, "z", "value")]
    await writer.append([(record("a", "3"),)])
    assert (await shown(log))[-1] == (5, "a", "3")


async def test_a_tombstone_goes_with_what_it_removed(log: SqliteEventLog, clock: Clock) -> None:
    """Nothing remains of a key whose deletion is older than the window; a key that was deleted and created again
    remains.
    """
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("b", "1"), record("a", None), record("b", None))])
    await writer.append([(record("b", "2"), record("never", None), record("z"))])

    await log.trim(clock.now_ms + WINDOW_MS + 1)

    assert await shown(log) == [(4, "b", "2"), (6, "z", "value")]


async def test_the_first_state_of_the_window_stays(log: SqliteEventLog, clock: Clock) -> None:
    """A value that was replaced inside the window is the state before that, and can still be shown."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("a", "2"), record("b", "1"))])
    clock.now_ms += 500
    await writer.append([(record("a", "3"), record("b", None))])

    await log.trim(clock.now_ms + WINDOW_MS)
    assert await shown(log) == [(1, "a", "2"), (2, "b", "1"), (3, "a", "3"), (4, "b", None)]

    clock.now_ms += WINDOW_MS + 1
    await writer.append([(record("z"),)])
    await log.trim(clock.now_ms)
    assert await shown(log) == [(3, "a", "3"), (5, "z", "value")]


@pytest.mark.parametrize("ahead", [1, 2 * sqlite_trim.CHUNK_RECORDS])
async def test_records_that_were_appended_while_the_clock_was_ahead_stop_no_trimming(
    log: SqliteEventLog, clock: Clock, ahead: int
) -> None:
    """They leave the window with the first record after them, and not before."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"),)])
    clock.now_ms += 1_000 * WINDOW_MS
    await writer.append([tuple(record("a", "2") for _ in range(ahead))])
    clock.now_ms -= 999 * WINDOW_MS
    await writer.append([(record("a", "3"), record("z"))])

    await log.trim(clock.now_ms + WINDOW_MS)
    assert len(await shown(log)) == 1 + ahead + 2

    await log.trim(clock.now_ms + WINDOW_MS + 1)
    assert await shown(log) == [(1 + ahead, "a", "3"), (2 + ahead, "z", "value")]


async def test_a_record_inside_the_window_keeps_what_is_behind_it(log: SqliteEventLog, clock: Clock) -> None:
    """Also a record that was appended when the clock had been put back, and so looks older than the window."""
    writer = await log.claim(0)
    for ago_windows, value in ((-1_000, "1"), (0, "2"), (10, "3"), (0, "4")):
        clock.now_ms -= ago_windows * WINDOW_MS
        await writer.append([(record("a", value),)])
        clock.now_ms += ago_windows * WINDOW_MS

    await log.trim(clock.now_ms)
    assert [value for _, _, value in await shown(log)] == ["1", "2", "3", "4"]


async def test_a_clock_that_was_briefly_ahead_stops_no_trimming(log: SqliteEventLog, clock: Clock) -> None:
    """Its record is from the future by less than the audit window."""
    writer = await log.claim(0)
    for ahead_ms in (0, 2 * WINDOW_MS, 0, 0):
        clock.now_ms += ahead_ms
        await writer.append([(record("a"),)])
        clock.now_ms -= ahead_ms

    await log.trim(clock.now_ms + WINDOW_MS + 1)
    assert [offset for offset, _, _ in await shown(log)] == [2, 3]


async def test_a_clock_that_is_put_back_trims_nothing(log: SqliteEventLog, clock: Clock) -> None:
    """All records are from the future then, and none of them is known to be old."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("a", "2"), record("z"))])

    await log.trim(clock.now_ms - 10 * WINDOW_MS)

    assert len(await shown(log)) == 3


async def test_the_last_record_of_a_partition_stays(log: SqliteEventLog, clock: Clock) -> None:
    """Even a tombstone: the next offset is counted on from it, and no offset is used twice."""
    writer = await log.claim(0)
    await writer.append([(record("a", "1"), record("a", None))])

    await log.trim(clock.now_ms + WINDOW_MS + 1)
    assert await log.end_offset(0) == 2
    await writer.append([(record("z"),)])
    await log.trim(clock.now_ms + WINDOW_MS + 1)

    assert await shown(log) == [(2, "z", "value")]


async def test_partitions_are_trimmed_each_for_itself(log: SqliteEventLog, clock: Clock) -> None:
    """The same key in two partitions is two keys."""
    for partition in (0, 1):
        await (await log.claim(partition)).append([(record("a", "1"), record("a", "2"), record("z"))])

    assert (await log.trim(clock.now_ms + WINDOW_MS + 1)).deleted == 2

    for partition in (0, 1):
        assert await shown(log, partition) == [(1, "a", "2"), (2, "z", "value")]


async def test_a_call_does_a_bounded_part_and_the_next_continues(
    log: SqliteEventLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were passed are not read again, also after reopening."""
    monkeypatch.setattr(sqlite_trim, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(sqlite_trim, "CALL_RECORDS", 6)
    writer = await log.claim(0)
    await writer.append([tuple(record("a", str(number)) for number in range(14))])
    now_ms = clock.now_ms + WINDOW_MS + 1

    trimmed = [await log.trim(now_ms) for _ in range(4)]

    assert [one.looked_at for one in trimmed] == [6, 6, 1, 0]
    assert [one.more for one in trimmed] == [True, True, False, False]
    assert await shown(log) == [(12, "a", "12"), (13, "a", "13")]


async def test_appends_come_in_between_while_a_log_is_trimmed(log: SqliteEventLog, clock: Clock) -> None:
    """An append waits for one transaction of the trimming at most, not for all of it."""
    writer = await log.claim(0)
    await writer.append([tuple(record(f"key-{number}") for number in range(10_000))])
    statements: list[str] = []
    await log.file.write(lambda connection: connection.set_trace_callback(statements.append))

    async with asyncio.TaskGroup() as tasks:
        trimming = tasks.create_task(log.trim(clock.now_ms + WINDOW_MS + 1))
        await asyncio.sleep(0)
        await writer.append([transition("between")])
        assert not trimming.done()

    moves = [n for n, text in enumerate(statements) if text.startswith("INSERT INTO trimmed")]
    inserted = next(n for n, text in enumerate(statements) if text.startswith("INSERT INTO records"))
    assert sum(move < inserted for move in moves) <= 1
    assert len(moves) == 50


async def test_a_log_opened_for_reading_is_not_trimmed(log: SqliteEventLog, clock: Clock) -> None:
    """`muster replay` changes nothing."""
    reader = SqliteEventLog(log.file.path, read_only=True)
    await reader.open()
    with pytest.raises(LogUnavailable):
        await reader.trim(clock.now_ms)
    await reader.close()


appends = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=700),
        st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(appends=appends, trim_after=st.sets(st.integers(min_value=0, max_value=11)))
async def test_any_history_is_compacted_legally(
    appends: list[tuple[int, list[tuple[str, bool]]]], trim_after: set[int]
) -> None:
    """Whenever it is trimmed: a removed record has a later record of its key or is a tombstone, and is older than the
    window; the result equals that of one trim at the end.
    """
    clock = Clock()
    full: list[StoredRecord] = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_trim, "CHUNK_RECORDS", 3)
        log = SqliteEventLog(Path(folder) / "muster.db", partitions=1, audit_window_ms=WINDOW_MS, wall_ms=clock)
        await log.open()
        writer = await log.claim(0)
        for number, (pause_ms, records) in enumerate(appends):
            clock.now_ms += pause_ms
            await writer.append([tuple(Record(key.encode(), b"value" if alive else None) for key, alive in records)])
            full += await read_all(log, start=len(full))
            if number in trim_after:
                await log.trim(clock.now_ms)
        await log.trim(clock.now_ms)
        left = await read_all(log)
        kept = await log.file.read(lambda connection: connection.execute("SELECT offset FROM kept").fetchall())
        await log.close()

    front = [one for one in full[:-1] if one.timestamp_ms < clock.now_ms - WINDOW_MS]
    front_left = compacted(front)
    assert left == front_left + full[len(front) :]
    assert sorted(offset for (offset,) in kept) == [one.offset for one in front_left]


def compacted(front: list[StoredRecord]) -> list[StoredRecord]:
    """The expected rest, by the definition: the last record of each key that is no tombstone."""
    last_of_key = {one.key: one for one in front}
    kept = [one for one in last_of_key.values() if one.value is not None]
    return sorted(kept, key=lambda one: one.offset)
