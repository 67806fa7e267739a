"""An archive, folded by both engines and queried: files in any order, losses, repetitions, levels, damage."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from muster.events.avro.codec import decode, encode
from muster.events.keys import EntityKind, decode_key
from muster.events.log.base import LogDamaged, LogUnavailable
from muster.events.log.memory import MemoryStorage
from muster.events.records import FORMAT_LEVEL_WRITTEN_MIN, StoredRecord
from muster.replay.archive.compact import compact
from muster.replay.archive.expire import expire
from muster.replay.archive.log import ArchiveLog
from muster.replay.fleet.asked import Order
from muster.replay.fleet.building.build import Built, make_build
from muster.replay.fleet.building.engine import Engine, Folded, Task, Took
from muster.replay.fleet.building.fold import OutOfOrder
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.building.pieces import Piece
from muster.replay.fleet.questions.queries import AskedRows, incidents
from muster.replay.fleet.session import SparkFailed
from tests.replay.archive.logs import archived, opened
from tests.replay.fleet import fleets
from tests.replay.fleet.fleets import (
    CAUSES,
    INCIDENTS,
    all_tables,
    in_order,
    judged,
    results_of_why,
    rows_of,
    timestamps,
    up_to,
)
from tests.replay.written import broken_value

SEEDS = (3, 14, 15, 92)
GROUP = "group-14"
PARTITION = 1
"""The group's partition."""

END = 1_000_000
VALUE = 6
"""The position of the values among the columns of a segment's file."""

STEPS = (0.2, 0.4, 0.6, 0.8, 1.0)


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the engines."""
    if request.param == "local":
        return LocalEngine()
    spark: Engine = request.getfixturevalue("spark")
    return spark


async def archive_of(storage: MemoryStorage, root: Path) -> ArchiveLog:
    """Archive a log in steps, each with its own files, and open the archive."""
    for share in STEPS:
        await archived(await fleets.opened(up_to(storage, share)), root)
    assert timestamps(root) == {}, "an archive has its times as integers"
    log = ArchiveLog(root)
    await log.open()
    return log


async def tables_of(log: ArchiveLog, to: Path, engine: Engine) -> Built:
    return await make_build(log, to, lambda _bytes: engine)


async def assert_told_as_by_why(log: ArchiveLog, tables: Path) -> None:
    rebalances, reported = await results_of_why(log)
    assert in_order(rows_of(tables, "rebalances"), CAUSES) == rebalances
    assert in_order(rows_of(tables, "incidents"), INCIDENTS) == reported


def changed(change: Callable[[list[StoredRecord]], list[StoredRecord]]) -> MemoryStorage:
    """Return a log with other records in one partition, and consecutive offsets."""
    storage = judged(SEEDS)
    records = change(storage.records[PARTITION])
    storage.records[PARTITION] = [msgspec.structs.replace(each, offset=n) for n, each in enumerate(records)]
    return storage


def is_of_group(record: StoredRecord) -> bool:
    return record.value is not None and decode_key(record.key).kind is not EntityKind.PARTITION


def the_middle_one(records: list[StoredRecord]) -> int:
    """Return the position of an event of the group, half-way."""
    places = [place for place, record in enumerate(records) if is_of_group(record)]
    return places[len(places) // 2]


async def test_records_in_many_files_are_folded_in_the_logs_order(engine: Engine, tmp_path: Path) -> None:
    """A group's records are in several segments, and each engine brings them together in one run."""
    log = await archive_of(judged(SEEDS), tmp_path / "archive")
    assert len(list((tmp_path / "archive").glob("day=*/partition-00001/*.parquet"))) == len(STEPS)
    await tables_of(log, tmp_path / "tables", engine)
    await assert_told_as_by_why(log, tmp_path / "tables")


async def test_a_file_that_is_not_the_archived_one_is_named(engine: Engine, tmp_path: Path) -> None:
    """A segment that was replaced, or has unreadable values, is not folded."""
    log = await archive_of(judged(SEEDS), tmp_path / "archive")
    first, second = sorted(segment.path for segment, _ in log.segments(PARTITION, start=0, end=END))[:2]
    paths = [tmp_path / "archive" / each for each in (first, second)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    with pytest.raises(LogDamaged, match="is not the file that was archived"):
        await tables_of(log, tmp_path / "tables", engine)
    paths[0].write_bytes(contents[0])
    paths[1].write_bytes(contents[1])
    column = pq.read_metadata(paths[1]).row_group(0).column(VALUE)
    end = column.data_page_offset + column.total_compressed_size
    size = column.total_compressed_size // 2
    paths[1].write_bytes(contents[1][: end - size] + b"\xff" * size + contents[1][end:])
    with pytest.raises((LogDamaged, SparkFailed), match=f"{paths[1].name} cannot be read"):
        await tables_of(log, tmp_path / "tables", engine)


async def test_a_loss_is_found_by_seq_and_reported(engine: Engine, tmp_path: Path) -> None:
    """No offset is missing, but a seq of the group is: an incident says that it is not known what happened."""
    log = await archive_of(
        changed(lambda records: [each for n, each in enumerate(records) if n != the_middle_one(records)]),
        tmp_path / "archive",
    )
    await tables_of(log, tmp_path / "tables", engine)
    await assert_told_as_by_why(log, tmp_path / "tables")
    requested = AskedRows(since_ms=None, until_ms=None, groups=GROUP, limit=100)
    assert len(incidents(tmp_path / "tables", requested, None, Order.TIME).rows) > 0
    notes = [note for row in rows_of(tmp_path / "tables", "incidents") for note in row["notes"]]
    assert any("is not in the log" in note for note in notes), notes


async def test_a_repetition_is_found_by_seq_and_refused(engine: Engine, tmp_path: Path) -> None:
    """All later rows would be wrong; nothing is committed."""

    def twice(records: list[StoredRecord]) -> list[StoredRecord]:
        place = the_middle_one(records)
        return [*records[: place + 1], *records[place:]]

    log = await archive_of(changed(twice), tmp_path / "archive")
    with pytest.raises(OutOfOrder, match=rf"group '{GROUP}': .* came after seq (\d+), its own seq is \1"):
        await tables_of(log, tmp_path / "tables", engine)
    assert not list((tmp_path / "tables" / "_builds").glob("*.json"))


async def test_events_of_two_format_levels_are_one_history(engine: Engine, tmp_path: Path) -> None:
    """The log changed to the newer level in the middle; each event is read at its own level."""

    def upgraded(records: list[StoredRecord]) -> list[StoredRecord]:
        middle = the_middle_one(records)
        return [*(at_level(each, FORMAT_LEVEL_WRITTEN_MIN) for each in records[:middle]), *records[middle:]]

    storage = changed(upgraded)
    assert storage.records[PARTITION] != changed(lambda records: records).records[PARTITION]
    log = await archive_of(storage, tmp_path / "archive")
    await tables_of(log, tmp_path / "tables", engine)
    await assert_told_as_by_why(log, tmp_path / "tables")
    assert not rows_of(tmp_path / "tables", "quarantine")


def at_level(record: StoredRecord, level: int) -> StoredRecord:
    """Return the record as it is written at a level; a tombstone does not change."""
    value = None if record.value is None else encode(decode(record.value), level)
    return msgspec.structs.replace(record, value=value)


async def test_a_broken_record_is_quarantined_and_the_rest_continues(engine: Engine, tmp_path: Path) -> None:
    """A table has its topic, partition, offset and reason; other groups have the same rows as without it."""
    places: list[int] = []

    def broken(records: list[StoredRecord]) -> list[StoredRecord]:
        places.append(the_middle_one(records))
        value = broken_value(GROUP).value
        return [msgspec.structs.replace(r, value=value) if n == places[0] else r for n, r in enumerate(records)]

    log = await archive_of(changed(broken), tmp_path / "archive")
    await tables_of(log, tmp_path / "tables", engine)
    (row,) = rows_of(tmp_path / "tables", "quarantine")
    assert (row["topic"], row["log_partition"], row["offset"]) == ("memory", PARTITION, places[0])
    assert (row["group_id"], row["kind"]) == (GROUP, "broken")
    assert row["reason"]
    await assert_told_as_by_why(log, tmp_path / "tables")
    whole = await archive_of(judged(SEEDS), tmp_path / "whole")
    await tables_of(whole, tmp_path / "others", engine)
    assert others(tmp_path / "tables") == others(tmp_path / "others")
    assert len(others(tmp_path / "others")) > len(SEEDS)


def others(tables: Path) -> list[tuple[str, object]]:
    """Return the rows of all groups but this one."""
    return [
        (name, row) for name, rows in all_tables(tables).items() for row in rows if row.get("group_id", GROUP) != GROUP
    ]


class Compacted:
    """An engine before which the archive is compacted, and the joined files are removed, as an hour later."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.name = engine.name
        self._engine, self._root = engine, root

    def fold(self, pieces: Sequence[Piece], states: Sequence[Path], task: Task, watch: Took) -> Folded:
        """Remove the files between listing and folding them."""
        compact(self._root, watch=lambda _done, _total: None)
        for piece in pieces:
            Path(piece.path).unlink()
        return self._engine.fold(pieces, states, task, watch)


async def test_a_file_removed_while_it_is_folded_is_not_an_engine_error(engine: Engine, tmp_path: Path) -> None:
    """Both report that the log was unavailable, so that `--every` continues; the next build finds the new files."""
    root, tables = tmp_path / "archive", tmp_path / "tables"
    log = await archive_of(judged(SEEDS), root)
    with pytest.raises(LogUnavailable, match="a file has gone while it was read"):
        await tables_of(log, tables, Compacted(engine, root))
    assert [*tables.rglob("*.parquet")] == []
    await tables_of(await opened(root), tables, LocalEngine())
    await tables_of(await opened(root), tmp_path / "new", LocalEngine())
    assert all_tables(tables) == all_tables(tmp_path / "new")


async def test_days_that_expire_before_they_are_built_are_named(tmp_path: Path) -> None:
    """Once; tables that had them already are complete, and so are those that begin with the remaining days."""
    storage, root = judged(SEEDS), tmp_path / "archive"
    for share in (0.5, 1.0):
        await archived(await fleets.opened(up_to(storage, share)), root)
        log = await opened(root)
        if share < 1.0:
            await tables_of(log, tmp_path / "late", LocalEngine())
        await tables_of(log, tmp_path / "early", LocalEngine())
    expire(root, "2024-01-01")
    log = await opened(root)
    assert (await tables_of(log, tmp_path / "early", LocalEngine())).damage == ()
    assert (await tables_of(log, tmp_path / "new", LocalEngine())).damage == ()
    late = await tables_of(log, tmp_path / "late", LocalEngine())
    assert len(late.damage) == len(SEEDS)
    assert f"partition 0 up to offset {len(storage.records[0])} was expired before it was built" in late.damage[0]
    assert (await tables_of(log, tmp_path / "late", LocalEngine())).damage == ()
