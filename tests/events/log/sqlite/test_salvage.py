"""Reading around damage: everything readable is read, and what is missing is reported."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from muster.events.log.base import LogDamaged
from muster.events.log.sqlite.failures import read_around
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record, StoredRecord

RECORDS = 1_000
PAGE = 4_096
LEAVES = {0x0A, 0x0D}
"""The first byte of a page with rows (sqlite.org/fileformat.html)."""


@pytest.mark.parametrize(
    "damaged",
    [set(), {0}, {0, 1}, {7}, {RECORDS - 1}, {3, 500, 501, 999}, set(range(100, 300))],
    ids=lambda each: f"{len(each)}",
)
async def test_all_records_but_those_that_are_damaged_are_read_in_order(damaged: set[int]) -> None:
    """The first and the last, too."""

    async def read_range(start: int, end: int) -> Sequence[StoredRecord]:
        offsets = range(start, min(end, RECORDS))
        if damaged.intersection(offsets):
            raise LogDamaged("it was")
        return [StoredRecord(0, offset, 0, b"k", None) for offset in offsets]

    read = [record.offset async for chunk in read_around(read_range, 0, RECORDS) for record in chunk]
    assert read == [offset for offset in range(RECORDS) if offset not in damaged]


async def test_a_long_damage_is_passed_in_ever_longer_steps() -> None:
    """After as many single steps as a few pages have records; each readable record starts over."""
    tried: list[int] = []
    damaged = {*range(1_000), *range(1_500, 2_500)}

    async def read_range(start: int, end: int) -> Sequence[StoredRecord]:
        if end == start + 1:
            tried.append(start)
        if damaged.intersection(range(start, end)):
            raise LogDamaged("it was")
        return [StoredRecord(0, offset, 0, b"k", None) for offset in range(start, end)]

    read = [record.offset async for chunk in read_around(read_range, 0, 3_000) for record in chunk]
    passed = [*range(258), 259, 263, 271, 287, 319, 383, 511, 767, 1_279]
    assert [at for at in tried if at < 1_300] == passed
    assert read[:221] == [*range(1_279, 1_500)]
    assert [at for at in tried if 1_500 <= at < 2_800] == [1_500 + at for at in passed]
    assert read[221:] == [*range(2_779, 3_000)]


async def made(path: Path, *, audit_window_ms: int | None = None) -> SqliteEventLog:
    """Return a log with this many records, of two keys, open for writing."""
    log = SqliteEventLog(path, partitions=1, audit_window_ms=audit_window_ms)
    await log.open()
    records = [(Record(b"k%d" % (number % 2), b"v"),) for number in range(RECORDS)]
    await (await log.claim(0)).append(records)
    return log


async def read(path: Path, *, wanted: bool) -> tuple[list[int], list[str]]:
    """The offsets, and the warnings then."""
    log = SqliteEventLog(path, read_only=True)
    await log.open()
    end = await log.end_offset(0)
    chunks = log.read_wanted(0, [b"k"], start=0, end=end) if wanted else log.read(0)
    offsets = [record.offset async for chunk in chunks for record in chunk]
    await log.close()
    return offsets, list(log.warnings)


@pytest.mark.parametrize("wanted", [False, True])
async def test_missing_records_of_a_file_are_reported_and_the_others_are_read(path: Path, wanted: bool) -> None:
    """A page may be gone without a trace: offsets are counted without gaps. An owner uses the file as it is."""
    await (await made(path)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM records WHERE offset BETWEEN 40 AND 49")
    offsets, (warning,) = await read(path, wanted=wanted)
    assert offsets == [*range(40), *range(50, RECORDS)]
    assert warning.startswith(f"the event log {path} lacks 10 of the records between offsets ")
    log = SqliteEventLog(path)
    await log.open()
    assert sum([len(chunk) async for chunk in log.read(0)]) == RECORDS - 10
    assert log.warnings == []
    await log.close()


@pytest.mark.parametrize("wanted", [False, True])
async def test_trimmed_records_are_not_missing(path: Path, wanted: bool) -> None:
    """Offsets are counted from where trimming stopped."""
    log = await made(path, audit_window_ms=0)
    while (await log.trim(2**50)).more:
        pass
    await log.close()
    offsets, warnings = await read(path, wanted=wanted)
    assert len(offsets) < 10
    assert warnings == []


async def test_all_records_from_some_offset_on_are_lacking_where_nothing_is_between(path: Path) -> None:
    """A reader with a given end reads up to it, and finds nothing."""
    await (await made(path)).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM records WHERE offset BETWEEN 500 AND 998")
    log = SqliteEventLog(path, read_only=True)
    await log.open()
    assert [chunk async for chunk in log.read(0, start=600, end=700)] == []
    (warning,) = log.warnings
    assert "lacks 100 of the records between offsets 600 and 700 of partition 0" in warning
    await log.close()


def swap_two_pages(path: Path) -> None:
    content = path.read_bytes()
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    one, other = [number for number, page in enumerate(pages) if page[0] in LEAVES and b"k1" in page][1:3]
    pages[one], pages[other] = pages[other], pages[one]
    path.write_bytes(b"".join(pages))


async def test_pages_in_each_others_place_are_damage(path: Path) -> None:
    """SQLite reads them as they are: records would appear in a wrong order. An owner refuses to start."""
    await (await made(path)).close()
    swap_two_pages(path)
    offsets, (warning,) = await read(path, wanted=False)
    assert offsets == sorted(set(offsets))
    assert "are not in order" in warning
    log = SqliteEventLog(path)
    await log.open()
    with pytest.raises(LogDamaged, match="are not in order"):
        _ = [chunk async for chunk in log.read(0)]
    await log.close()
