"""The contents of an archive: each record once, byte by byte, in files of one partition and day."""

import errno
import fcntl
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from muster.events.log.base import LogDamaged, LogMismatch, LogMissing, LogUnavailable
from muster.events.records import BrokenBatch, RawRecord
from muster.replay.archive import commits
from muster.replay.archive.commits import Change, writing
from muster.replay.archive.files import DISK, ArchiveBusy
from muster.replay.archive.manifest import load, numbers, path_of, read
from muster.replay.archive.segment import SCHEMA, batch_of
from muster.replay.archive.writer import PartitionWriter
from tests.replay.archive.disks import FullDisk
from tests.replay.archive.logs import (
    DAY_MS,
    NOON,
    RawMemoryLog,
    archived,
    digests,
    digests_in,
    filled,
    more,
    named,
    opened,
    raw,
)


async def test_each_record_is_archived_once_byte_for_byte(tmp_path: Path) -> None:
    """Including headers that are null, empty or repeated, tombstones, and foreign records; run after run."""
    log = await filled()
    log.write(0, key=None, value=None, headers=(), producer_id=-1, timestamp_ms=-1)
    log.write(0, value=b"x" * 300_000, headers=(("h", b"\xff"),), transactional=True)
    first = await archived(log, tmp_path / "a")
    assert (first.records, await digests_in(tmp_path / "a")) == (22, await digests(log))
    assert (await archived(log, tmp_path / "a")).records == 0
    more(log, 3)
    assert (await archived(log, tmp_path / "a")).records == 6
    assert await raw(await opened(tmp_path / "a")) == await raw(log)


async def test_a_run_without_anything_new_commits_nothing(tmp_path: Path) -> None:
    """An archiver that runs each minute does not fill the disk with manifests; an empty log has an archive, too."""
    log = RawMemoryLog()
    await log.open()
    await archived(log, tmp_path / "a")
    await archived(log, tmp_path / "a")
    assert [path.name for path in (tmp_path / "a" / "manifests").iterdir()] == ["000000000001.json"]
    assert await digests_in(tmp_path / "a") == await digests(log)


async def test_a_file_has_one_day_and_partition_in_its_name(tmp_path: Path) -> None:
    log = RawMemoryLog()
    await log.open()
    for day in (0, 0, 1):
        log.write(1, at_ms=NOON - 5 * DAY_MS + day * DAY_MS)
    await archived(log, tmp_path / "a")
    first, second = sorted(named(tmp_path / "a"))
    assert first.startswith("day=2024-09-29/partition-00001/00000000000000000000-")
    assert second.startswith("day=2024-09-30/partition-00001/00000000000000000002-")
    table = pq.read_table(tmp_path / "a" / first, partitioning=None)
    assert table.schema.equals(SCHEMA)
    assert table.column("offset").to_pylist() == [0, 1]


async def test_days_never_go_back_and_none_is_after_tomorrow(tmp_path: Path) -> None:
    """Whatever the clocks show: a day is a range of offsets, and a wrong clock cannot prevent days from expiring."""
    log = RawMemoryLog(1)
    await log.open()
    for at_ms in (NOON, NOON - DAY_MS, 2**60, NOON):
        log.write(0, at_ms=at_ms)
    await archived(log, tmp_path / "a")
    log.write(0, at_ms=-(2**60))
    await archived(log, tmp_path / "a")
    state = load(tmp_path / "a")
    assert state is not None
    found = [(s.day, s.start, s.end) for s in state.of_partition(0)]
    assert found == [("2024-10-04", 0, 2), ("2024-10-05", 2, 4), ("2024-10-05", 4, 5)]


async def test_a_segment_ends_when_it_is_large_enough(tmp_path: Path) -> None:
    log = RawMemoryLog(1)
    await log.open()
    for _ in range(20):
        log.write(0, value=b"v" * 1_000)
    done = await archived(log, tmp_path / "a", segment_bytes_max=4_000)
    assert done.segments == 5
    assert await digests_in(tmp_path / "a") == await digests(log)


async def test_records_compacted_before_archiving_are_a_gap_and_not_an_error(tmp_path: Path) -> None:
    """Segments cover all offsets that were read; the end is that of the topic."""
    log = await filled(1)
    log.compact(0, 0, 1, 4, 9)
    await archived(log, tmp_path / "a")
    log.write(0)
    log.compact(0, *range(10))
    await archived(log, tmp_path / "a")
    archive = await opened(tmp_path / "a")
    assert [record.offset for record in await raw(archive)] == [2, 3, 5, 6, 7, 8, 10]
    state = load(tmp_path / "a")
    assert state is not None
    assert [s.start for s in state.of_partition(0)][1:] == [s.end for s in state.of_partition(0)][:-1]


async def test_another_topic_is_refused(tmp_path: Path) -> None:
    """So is one with the same name that was created again, and one with other partitions; nothing is changed."""
    await archived(await filled(), tmp_path / "a")
    before = await digests_in(tmp_path / "a")
    other = RawMemoryLog(identity="topic-2")
    await other.open()
    with pytest.raises(LogMismatch, match=r"is the archive of another log: .*topic-1.*topic-2"):
        await archived(other, tmp_path / "a")
    wider = RawMemoryLog(3)
    await wider.open()
    with pytest.raises(LogMismatch, match="archive of 2 partitions, and memory has 3"):
        await archived(wider, tmp_path / "a")
    assert await digests_in(tmp_path / "a") == before


async def test_a_topic_that_lost_records_is_refused(tmp_path: Path) -> None:
    """Its offsets would be given to other records."""
    log = await filled()
    await archived(log, tmp_path / "a")
    log.ends[1] = 4
    with pytest.raises(LogMismatch, match="partition 1 of memory ends at offset 4, and was archived up to 10"):
        await archived(log, tmp_path / "a")


async def test_two_writers_at_once(tmp_path: Path) -> None:
    """The second one gets the name of the first one in its error."""
    log = await filled()
    await archived(log, tmp_path / "a")
    with writing(tmp_path / "a"), pytest.raises(ArchiveBusy, match=r"is written by another process \(.*:\d+\)"):
        await archived(log, tmp_path / "a")


async def test_two_writers_without_a_lock_cannot_both_commit(tmp_path: Path) -> None:
    """If locks do not work, the manifest's number keeps the second one out; its files are leftovers."""
    log = await filled()
    await archived(log, tmp_path / "a")
    more(log, 1)
    with writing(tmp_path / "a") as slow:
        (tmp_path / "a" / "_lock").unlink()  # so that the next one locks another file
        await archived(log, tmp_path / "a")
        with pytest.raises(ArchiveBusy, match="has committed"):
            slow.commit(Change(action="archive"))
    assert await digests_in(tmp_path / "a") == await digests(log)


@pytest.mark.parametrize("room", [0, 700, 3_000, 8_000, 20_000])
async def test_a_full_disk_leaves_what_was_committed(tmp_path: Path, room: int) -> None:
    """One line reports it; the next run, with room, continues."""
    log = await filled()
    with pytest.raises(LogUnavailable, match=r"there is no room at .*; what was committed stands"):
        await archived(log, tmp_path / "a", disk=FullDisk(room), segment_bytes_max=1)
    await archived(log, tmp_path / "a")
    assert await digests_in(tmp_path / "a") == await digests(log)
    assert list((tmp_path / "a" / "_tmp").iterdir()) == []


async def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(LogMismatch, match="is no archive, and not empty: it has 'photos'"):
        await archived(await filled(), tmp_path)
    with pytest.raises(LogMissing, match="is no archive"):
        await opened(tmp_path)
    assert not (tmp_path / "manifests").exists()


async def test_an_archive_without_its_manifests_is_not_restarted(tmp_path: Path) -> None:
    """Its segments would be leftovers, and would be removed."""
    log = await filled()
    await archived(log, tmp_path / "a")
    before = named(tmp_path / "a")
    for path in (tmp_path / "a" / "manifests").iterdir():
        path.unlink()
    with pytest.raises(LogDamaged, match="Restore it"):
        await archived(log, tmp_path / "a")
    assert named(tmp_path / "a") == before


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    log = await filled()
    await archived(log, tmp_path / "a")
    manifest = path_of(tmp_path / "a", 1)
    manifest.write_bytes(manifest.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(LogMismatch, match="has format 2, and this version knows 1: use a newer Muster"):
        await opened(tmp_path / "a")


async def test_reading_needs_few_manifests_however_many_there_are(tmp_path: Path) -> None:
    """Now and then a manifest lists everything; compact removes those before it."""
    log = RawMemoryLog(1)
    await log.open()
    for _ in range(150):
        log.write(0)
        await archived(log, tmp_path / "a")
    state = load(tmp_path / "a")
    assert state is not None
    assert state.number == 151
    assert state.full > 60
    path_of(tmp_path / "a", state.full - 1).unlink()  # no longer needed by any reader
    assert len(await raw(await opened(tmp_path / "a"))) == 150


async def test_the_size_of_manifests_grows_with_the_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is one commit, no matter how many partitions have new segments; few of many manifests list everything."""
    log = RawMemoryLog(20)
    await log.open()
    for run in range(1, 41):
        for partition in range(log.partitions):
            log.write(partition)
        await archived(log, tmp_path / "a")
        assert numbers(tmp_path / "a")[-1] == run + 1
    whole = [number for number in numbers(tmp_path / "a") if read(tmp_path / "a", number)[0].live is not None]
    assert whole == [1, 5, 9, 17, 33]
    monkeypatch.setattr(commits, "_FULL_AFTER_COMMITS", 10)
    log.write(0)
    await archived(log, tmp_path / "a")
    await archived(log, tmp_path / "a")
    assert read(tmp_path / "a", 42)[0].live is None
    log.write(0)
    await archived(log, tmp_path / "a")
    assert read(tmp_path / "a", 43)[0].live is not None


async def test_records_out_of_order_are_refused(tmp_path: Path) -> None:
    """A partition's records must be in order of offset, whatever the source."""
    log = await filled(1, 4)
    first, second, *_ = log.records[0]
    elsewhere = msgspec.structs.replace(second, partition=3)
    for wrong in ([second, first], [first, first], [first, elsewhere]):
        writer = PartitionWriter(tmp_path, 0, start=0, day=None, now_ms=NOON, disk=DISK)
        with pytest.raises(LogDamaged, match="out of order"), writer:
            list(writer.add(batch_of(wrong)))
    assert named(tmp_path) == set()


async def test_a_log_that_may_lack_its_end_is_archived_and_reported(tmp_path: Path) -> None:
    """A file without its write-ahead log is reported when it is opened: its records are right nevertheless."""
    log = await filled(3, 10)
    log.found = ("the end may be missing",)
    done = await archived(log, tmp_path)
    assert done.damage == ("the end may be missing",)
    assert await digests_in(tmp_path) == await digests(log)


@pytest.mark.parametrize("how", ["passed over", "raised"])
async def test_an_unreadable_record_ends_its_partition_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A reader would skip the record; an archive would have a hole for ever. Earlier records are available at once."""
    log = await filled(3, 10)
    read_raw = log.read_raw

    async def damaged(partition: int, *, start: int, end: int) -> AsyncIterator[Sequence[RawRecord]]:
        async for chunk in read_raw(partition, start=start, end=end):
            if partition == 2 or chunk[0].offset != 6:
                yield chunk
            elif how == "raised":
                raise BrokenBatch("its checksum is wrong", partition=partition, offset=6)
            else:
                log.found = (*log.found, f"a page of {partition} is damaged")

    monkeypatch.setattr(log, "read_raw", damaged)
    done = await archived(log, tmp_path / "a")
    assert done.next_offsets == {0: 6, 1: 6, 2: 10}
    words = "memory, partition {}, offset 6: its checksum is wrong" if how == "raised" else "a page of {} is damaged"
    reported = [f"{words.format(partition)}; nothing behind it in its partition was archived" for partition in (0, 1)]
    assert list(done.damage) == reported
    monkeypatch.setattr(log, "read_raw", read_raw)
    log.found = ()
    assert (await archived(log, tmp_path / "a")).damage == ()
    assert await digests_in(tmp_path / "a") == await digests(log)


async def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two archivers could overwrite each other's manifests there."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(LogMismatch, match="has no hard links"):
        await archived(await filled(), tmp_path / "a")


async def test_a_file_system_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests' numbers are enough."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    log = await filled()
    await archived(log, tmp_path / "a")
    assert await digests_in(tmp_path / "a") == await digests(log)


async def test_a_reader_follows_an_archive_that_is_being_written(tmp_path: Path) -> None:
    """As with a topic."""
    log = await filled(1, 3)
    await archived(log, tmp_path / "a")
    archive = await opened(tmp_path / "a")
    assert await archive.end_offset(0) == 3
    more(log, 2)
    await archived(log, tmp_path / "a")
    assert await archive.end_offset(0) == 5
    assert [record.offset for record in await raw(archive)] == [0, 1, 2, 3, 4]
