"""An archive whose files were changed, replaced or forged, or that two writers use at once: it is reported and kept."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.events.log.base import LogDamaged, LogMismatch
from muster.replay.archive import files
from muster.replay.archive.commits import Change, writing
from muster.replay.archive.compact import compact
from muster.replay.archive.files import DISK, ArchiveBusy
from muster.replay.archive.local import archived_log
from muster.replay.archive.manifest import load, path_of
from muster.replay.archive.segment import SCHEMA, batch_of
from muster.replay.archive.verify import verify
from muster.replay.archive.writer import PartitionWriter
from tests.replay.archive.logs import NOON, RawMemoryLog, archived, digests, digests_in, filled, more, opened, raw


async def one_segment(root: Path, *, key: bytes = b"key", records: int = 3) -> RawMemoryLog:
    """Return a log of one partition and its archive, with one file, which manifest 2 lists."""
    log = RawMemoryLog(1)
    await log.open()
    for _ in range(records):
        log.write(0, key=key)
    await archived(log, root)
    return log


def segment_of(root: Path, *, first: bool = False) -> Path:
    """Return the only segment, or the first one."""
    paths = sorted(root.glob("day=*/*/*.parquet"))
    assert first or len(paths) == 1
    return paths[0]


def change(root: Path, number: int, before: bytes, after: bytes) -> None:
    """Change the first occurrence of a text in a manifest; if it is the last manifest, the chain stays valid."""
    text = path_of(root, number).read_bytes()
    assert before in text
    path_of(root, number).write_bytes(text.replace(before, after, 1))


def forge(root: Path, write: Callable[[Path], object]) -> None:
    """Put another file in the segment's place, and let the manifest have its size and SHA-256."""
    path = segment_of(root)
    size, sha256 = path.stat().st_size, files.sha256_of(path)
    write(path)
    change(root, 2, b'"bytes": %d,' % size, b'"bytes": %d,' % path.stat().st_size)
    change(root, 2, sha256.encode(), files.sha256_of(path).encode())


async def damage(root: Path) -> str:
    """Return all findings of verify."""
    return "\n".join((await verify(root, None, watch=lambda _done, _total: None)).damage)


# ---- two writers --------------------------------------------------------------------------------


async def test_files_that_another_writer_removes_as_leftovers_cannot_be_committed(tmp_path: Path) -> None:
    """Two machines have a lock that does not work between them: a manifest would otherwise list files that are gone."""
    log = await filled(1)
    with writing(tmp_path, make=True) as slow:
        slow.begin(archived_log(log))
        with PartitionWriter(tmp_path, 0, start=0, day=None, now_ms=NOON, disk=DISK) as segments:
            added = [*segments.add(batch_of(log.records[0])), *segments.finish()]
        (tmp_path / "_lock").unlink()
        with writing(tmp_path), pytest.raises(ArchiveBusy, match="has committed"):
            slow.commit(Change(action="archive", added=added))
    await archived(log, tmp_path)
    assert (await damage(tmp_path), await digests_in(tmp_path)) == ("", await digests(log))


async def test_a_file_that_another_writer_takes_for_a_leftover_while_it_is_written(tmp_path: Path) -> None:
    """The disk is not broken: with `--every` it waits for the other writer."""
    log = await filled(1)

    def write_slowly() -> None:
        with writing(tmp_path, make=True) as slow:
            slow.begin(archived_log(log))
            with PartitionWriter(tmp_path, 0, start=0, day=None, now_ms=NOON, disk=DISK) as segments:
                list(segments.add(batch_of(log.records[0][:1])))
                (tmp_path / "_lock").unlink()
                with writing(tmp_path):
                    pass
                list(segments.finish())

    with pytest.raises(ArchiveBusy, match="another process writes the archive"):
        write_slowly()
    await archived(log, tmp_path)
    assert await digests_in(tmp_path) == await digests(log)


async def test_a_link_that_nfs_requests_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first response was lost, and the second one says that the name is taken: by this very file."""
    real = os.link

    def twice(path: Path, to: Path) -> None:
        real(path, to)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", twice)
    log = await filled(1)
    await archived(log, tmp_path)
    assert await digests_in(tmp_path) == await digests(log)


# ---- what is somebody else's --------------------------------------------------------------------


async def test_files_with_names_of_their_own_stay(tmp_path: Path) -> None:
    """Files beside segments, manifests and unfinished files are ignored."""
    log = await filled(1)
    await archived(log, tmp_path)
    folder = segment_of(tmp_path, first=True).parent
    mine = [folder / "notes.txt", tmp_path / "_tmp" / "notes.txt", tmp_path / "manifests" / "5.json"]
    for path in mine:
        path.write_text("mine")
    (folder / "folder").mkdir()
    more(log, 1)
    await archived(log, tmp_path)
    compact(tmp_path, watch=lambda _done, _total: None, now_ms=NOON)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert (await damage(tmp_path), await digests_in(tmp_path)) == ("", await digests(log))


async def test_a_day_may_be_moved_elsewhere_and_linked(tmp_path: Path) -> None:
    """To a larger disk, for example; the archiver and readers continue."""
    log = await filled(1)
    await archived(log, tmp_path / "a")
    folder = segment_of(tmp_path / "a", first=True).parent
    day = folder.parent
    (folder / f"{0:020d}-000000000000.parquet").write_text("a leftover")
    day.rename(tmp_path / "moved")
    day.symlink_to(tmp_path / "moved")
    more(log, 1)
    await archived(log, tmp_path / "a")
    assert await digests_in(tmp_path / "a") == await digests(log)
    assert not (folder / f"{0:020d}-000000000000.parquet").exists()


async def test_a_lock_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    log = await filled(1)
    await archived(log, tmp_path / "a")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a" / "_lock").unlink()
    (tmp_path / "a" / "_lock").symlink_to(tmp_path / "mine")
    with pytest.raises(LogMismatch, match=r"cannot be used: .* \(.*_lock\)"):
        await archived(log, tmp_path / "a")
    assert (tmp_path / "mine").read_text() == "mine"


# ---- manifests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b'"path": "day=', b'"path": "../day=', r"is no path of a segment"),
        (b'"partition": 0', b'"partition": 7', r"is no path of a segment of partition 7"),
        (b'"first": 0', b'"first": 1', r"is no path of a segment .* begins at 1"),
        (b'"records": 3', b'"records": 4', r"has 4 records .* from 0 to 2"),
        (b'"end": 3', b'"end": 2', r"for the offsets 0 to 2"),
        (b'"partitions": 1', b'"partitions": 1000000000', r"1000000 - at `\$.log.partitions`"),
        (b'"partitions": 1', b'"partitions": 2', r"next_offsets are not those of 2 partitions"),
        (b"}\n", b"", r"is no manifest"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:30],
)
async def test_a_manifest_that_lies_is_named(tmp_path: Path, before: bytes, after: bytes, said: str) -> None:
    """Or that is cut off. No reader uses its contents, and no writer writes."""
    log = await one_segment(tmp_path)
    change(tmp_path, 2, before, after)
    for use in (opened(tmp_path), archived(log, tmp_path), damage(tmp_path)):
        with pytest.raises(LogDamaged, match=rf"000000000002\.json is no manifest: .*{said}|{said}"):
            await use
    assert segment_of(tmp_path).exists()


@pytest.mark.parametrize(("end", "said"), [(5, "segments end at 3, and manifests say 5"), (2, "at 3, .* say 2")])
async def test_an_end_that_no_segment_reaches(tmp_path: Path, end: int, said: str) -> None:
    """An archiver that trusted it would leave out records for ever."""
    log = await one_segment(tmp_path)
    change(tmp_path, 2, b'"0": 3', b'"0": %d' % end)
    with pytest.raises(LogDamaged, match=said):
        await archived(log, tmp_path)
    assert msgspec.json.encode(await damage(tmp_path)).count(b"partition 0") == 1


async def test_a_manifest_that_is_not_a_file(tmp_path: Path) -> None:
    """Any unreadable one is reported in one line."""
    log = await one_segment(tmp_path)
    path_of(tmp_path, 3).mkdir()
    for use in (opened(tmp_path), archived(log, tmp_path), damage(tmp_path)):
        with pytest.raises(LogMismatch, match=r"000000000003\.json cannot be read: Is a directory"):
            await use


async def test_a_manifest_that_leads_nowhere(tmp_path: Path) -> None:
    await one_segment(tmp_path)
    path_of(tmp_path, 3).symlink_to(tmp_path / "nowhere")
    with pytest.raises(LogDamaged, match=r"000000000003\.json leads nowhere"):
        await opened(tmp_path)


# ---- segments -----------------------------------------------------------------------------------


async def test_a_segment_of_another_archive_in_its_place(tmp_path: Path) -> None:
    """Readers notice by its size and its records, verify by its SHA-256; none of it is used or joined."""
    await one_segment(tmp_path / "a")
    await one_segment(tmp_path / "b", key=b"another")
    segment_of(tmp_path / "a").write_bytes(segment_of(tmp_path / "b").read_bytes())
    with pytest.raises(LogDamaged, match=r"parquet is not the file that was archived: it has \d+ bytes, and manifests"):
        await raw(await opened(tmp_path / "a"))
    assert "was altered" in await damage(tmp_path / "a")


def table(rows: int, *, partition: int = 0, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = {
        "partition": [partition] * rows,
        "offset": list(range(rows)),
        "timestamp_ms": [NOON] * rows,
        "key": [b"key"] * rows,
        "headers": [[]] * rows,
        "value": [b"value"] * rows,
        "producer_id": [7] * rows,
        "transactional": [False] * rows,
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


OTHER_COLUMNS = pa.schema([each for each in SCHEMA if each.name != "headers"])


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_bytes(b"x" * 100), r"cannot be read"),
        (lambda path: pq.write_table(table(3, schema=OTHER_COLUMNS), path), r"its columns are partition int32, "),
        (lambda path: pq.write_table(table(4), path), r"it has 4 records, and manifests say 3"),
        (lambda path: pq.write_table(table(3, partition=1), path), r"its partition is 1 to 1, and manifests say 0"),
        (lambda path: pq.write_table(table(3).slice(1), path), r"it has 2 records, and manifests say 3"),
    ],
    ids=["no-parquet", "columns", "records", "partition", "fewer"],
)
async def test_a_forged_segment_is_named(tmp_path: Path, write: Callable[[Path], object], said: str) -> None:
    """Even if a forged manifest lists it."""
    await one_segment(tmp_path)
    forge(tmp_path, write)
    with pytest.raises(LogDamaged, match=rf"{segment_of(tmp_path).name}.*{said}"):
        await raw(await opened(tmp_path))
    assert segment_of(tmp_path).name in await damage(tmp_path)


async def test_a_row_group_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    await one_segment(tmp_path, records=1)
    forge(tmp_path, lambda path: pq.write_table(table(70_000), path, row_group_size=70_000))
    text = path_of(tmp_path, 2).read_bytes()
    for name, wanted in ((b"records", 70_000), (b"last", 69_999), (b"end", 70_000)):
        (before,) = {line.strip() for line in text.splitlines() if line.strip().startswith(b'"%b": ' % name)}
        change(tmp_path, 2, before, b'"%b": %d,' % (name, wanted))
    with pytest.raises(LogDamaged, match="row group 0 is too large for one: 70000 records"):
        await raw(await opened(tmp_path))


async def test_a_row_group_of_large_records_is_small(tmp_path: Path) -> None:
    """However many of them come at once: readers keep a row group in memory."""
    log = RawMemoryLog(1)
    await log.open()
    for _ in range(6):
        log.write(0, value=os.urandom(9_000_000))
    with PartitionWriter(tmp_path, 0, start=0, day=None, now_ms=NOON, disk=DISK) as segments:
        added = [*segments.add(batch_of(log.records[0])), *segments.finish()]
    found = pq.read_metadata(tmp_path / added[0].path)
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [2, 2, 2]
    assert load(tmp_path) is None
