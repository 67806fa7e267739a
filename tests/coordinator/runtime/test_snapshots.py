"""Partitions are saved in a folder and used at a start; unusable snapshots only cost time. In virtual time."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.runtime.ownership.followed_topic import CHECK_INTERVAL_S
from muster.coordinator.runtime.ownership.snapshots import SnapshotFolder, Snapshots
from muster.coordinator.runtime.runtime import Runtime
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.loading import Loading
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from tests.coordinator.runtime.test_foreign_records import append
from tests.coordinator.runtime.test_runtime import story
from tests.coordinator.runtime.test_standbys import Peer, ended, last_ready, more
from tests.waiting import until

ALONE = 1
INTERVAL_MS = 60_000
A_DAY_MS = 86_400_000


class Saving(Peer):
    """A process that saves its partitions. Disk operations complete at once: time is virtual."""

    def __init__(self, storage: MemoryStorage, folder: Path, *, stands_by: bool = False) -> None:
        super().__init__(storage)
        self.process.log.deletions_kept_ms = A_DAY_MS
        self.runtime = self.process.runtime = Runtime(
            self.process.runtime._owner,
            give_up=self.process.lost.append,
            deposed=self.deposed.append,
            stands_by=stands_by,
            snapshots=SnapshotFolder(folder=folder, interval_ms=INTERVAL_MS),
        )
        self.snapshots._in_thread = _at_once

    @property
    def snapshots(self) -> Snapshots:
        assert self.runtime._snapshots is not None
        return self.runtime._snapshots

    @property
    def file(self) -> Path:
        return self.snapshots.file_of(0)


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


async def saved(storage: MemoryStorage, folder: Path) -> tuple[Saving, dict[str, Any]]:
    """An owner with a group that has saved its partition a while ago, and was killed; also the members' results."""
    owner = await Saving(storage, folder).start(0)
    for _ in range(5):
        await owner.process.stable_group("a", "b")
    joined = await owner.process.stable_group("a", "b")
    await owner.snapshots.save_all()
    assert owner.file.exists()
    return owner, joined


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def unused(logs: Any) -> list[str]:
    return [line["reason"] for line in logs if "snapshot is not used" in line["event"]]


def groups_of(peer: Peer) -> dict[str, object]:
    return {group.group_id: group for group in peer.runtime._owned[0].partition.groups()}


def kept_in(folder: Path) -> Callable[[Callable[[MemoryStorage, Path], Any]], Callable[[], None]]:
    def made(run: Callable[[MemoryStorage, Path], Any]) -> Callable[[], None]:
        @story
        async def of_this() -> None:
            await run(MemoryStorage(ALONE), folder)

        return of_this

    return made


def test_a_start_reads_what_is_behind_the_snapshot(tmp_path: Path) -> None:
    """All groups are as in the whole log, and the members are known."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        before, joined = await saved(storage, folder)
        await more(before)
        end = storage.end_offset(0)
        with capture_logs() as logs:
            again = await Saving(storage, folder).start(0)
        assert unused(logs) == []
        assert last_ready(storage).events_read < 12 < end / 2
        assert (await again.process.heartbeat(joined["a"])).error is ErrorCode.none
        whole = await Peer(storage, stands_by=False).start(0)
        assert groups_of(again) == groups_of(whole)
        assert last_ready(storage).events_read > end / 2
        await ended(again, whole)

    run()


def test_the_age_of_a_snapshot_counts_from_the_end_of_the_log(tmp_path: Path) -> None:
    """The age counts from when it was last at the log's end, not from when it was loaded: a standby is discarded by its
    age.
    """

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        before, _ = await saved(storage, folder)
        await asyncio.sleep(INTERVAL_MS / 2 / 1000)
        standby = await before.snapshots.load(0)
        assert standby is not None
        age_ms = before.runtime._owner.boot_ms() - standby.at_end_ms
        assert INTERVAL_MS / 2 <= age_ms < INTERVAL_MS
        await ended(before)

    run()


def test_every_partition_is_saved_again_and_again(tmp_path: Path) -> None:
    """Those that are owned, and those that are followed; a start as a standby uses the latter, too."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner = await Peer(storage).start(0)
        await owner.process.stable_group("a", "b")
        standby = await Saving(storage, folder, stands_by=True).start()
        await standby.until_ready()
        assert not standby.file.exists()
        await asyncio.sleep(INTERVAL_MS / 1000)
        first = standby.file.read_bytes()
        await more(owner)
        await asyncio.sleep(2 * INTERVAL_MS / 1000)
        assert standby.file.read_bytes() != first
        assert standby.file.stat().st_mode & 0o777 == 0o600
        assert names_in(folder) == [standby.file.name]
        with capture_logs() as logs:
            again = await Saving(storage, folder, stands_by=True).start()
            await again.until_ready()
        assert unused(logs) == []
        assert all(start > 0 for _, start in again.reads)
        (followed,) = again.standbys._followed.values()
        assert followed.standby is not None
        assert followed.standby.loading.projector.groups == groups_of(owner)
        await again.runtime.assign([0])
        assert groups_of(again) == groups_of(owner)
        await ended(standby, again)

    run()


async def _lost(peer: Saving, storage: MemoryStorage) -> None:
    peer.file.unlink()


async def _damaged(peer: Saving, storage: MemoryStorage) -> None:
    peer.file.write_bytes(peer.file.read_bytes()[:-20])


async def _of_another_log(peer: Saving, storage: MemoryStorage) -> None:
    storage.identity = "another"


async def _too_old(peer: Saving, storage: MemoryStorage) -> None:
    peer.process.log.deletions_kept_ms = 0


async def _of_the_future(peer: Saving, storage: MemoryStorage) -> None:
    clock = peer.process.clock
    clock.wall_ms = lambda: 5  # type: ignore[method-assign]


async def _ahead_of_the_log(peer: Saving, storage: MemoryStorage) -> None:
    del storage.records[0][-3:]


async def _of_a_log_cut_and_gone_on(peer: Saving, storage: MemoryStorage) -> None:
    last = storage.records[0].pop()
    storage.records[0].append(msgspec.structs.replace(last, timestamp_ms=last.timestamp_ms + 1))
    storage.records[0].append(msgspec.structs.replace(last, offset=last.offset + 1, timestamp_ms=last.timestamp_ms + 1))


async def _a_folder(peer: Saving, storage: MemoryStorage) -> None:
    peer.file.unlink()
    peer.file.mkdir()


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_lost, None),
        (_damaged, "it is damaged"),
        (_of_another_log, "it is of another log"),
        (_too_old, "the log keeps deletions for 0 s"),
        (_of_the_future, "by the clock of this machine it was written in"),
        (_ahead_of_the_log, "before what was read"),
        (_of_a_log_cut_and_gone_on, "another record stands at offset"),
        (_a_folder, "it cannot be read: Is a directory"),
    ],
)
def test_an_unusable_snapshot_costs_only_time(tmp_path: Path, happens: Any, reason: str | None) -> None:
    """One line has the reason, and the whole log is read."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        await saved(storage, folder)
        again = Saving(storage, folder)
        await happens(again, storage)
        with capture_logs() as logs:
            await again.start(0)
        logged = [line["reason"] for line in logs if "reason" in line]
        assert len(logged) == (0 if reason is None else 1)
        assert all(reason and reason in text for text in logged), logged
        assert (0, 0) in again.reads
        whole = Loading()
        whole.read(storage.records[0])
        for _ in whole.fold():
            pass
        assert groups_of(again) == whole.projector.groups
        assert not again.process.lost

    run()


def test_a_snapshot_older_than_the_logs_own_clock_allows_is_not_used(tmp_path: Path) -> None:
    """It is recent by the machine's clock, which was set back."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        await saved(storage, folder)
        again = Saving(storage, folder)
        again.process.log._wall_ms = lambda: storage.records[0][-1].timestamp_ms + A_DAY_MS
        with capture_logs() as logs:
            await again.start(0)
        (logged,) = [line["reason"] for line in logs if "reason" in line]
        assert "longer than the log keeps deletions" in logged
        assert (0, 0) in again.reads

    run()


def test_a_partition_is_saved_only_after_overwritten_records_are_rewritten(tmp_path: Path) -> None:
    """A start from it would not know of the foreign record, and compaction would remove the entity."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner, _ = await saved(storage, folder)
        partition, watch = owner.runtime._owned[0].partition, owner.runtime._owned[0]._foreign_records
        owner.file.unlink()
        append(storage, encode_key(RecordKey(owner.process.group_id, EntityKind.STATIC_MEMBER, "a")), partition=0)
        usual, is_held = owner.process.log.read, asyncio.Event()

        async def held(number: int, *, start: int = 0, end: int | None = None) -> AsyncIterator[Sequence[StoredRecord]]:
            await is_held.wait()
            async for chunk in usual(number, start=start, end=end):
                yield chunk

        owner.process.log.read = held  # type: ignore[method-assign, assignment]
        await more(owner)
        assert not watch.is_up_to_date
        await owner.snapshots.save_all()
        release = owner.process.log.hold_acknowledgements()
        is_held.set()
        await until(lambda: watch.is_up_to_date)
        assert not partition.is_in_memory_state_complete
        assert not owner.file.exists()
        release.set()
        await until(lambda: partition.is_in_memory_state_complete)
        await owner.snapshots.save_all()
        assert owner.file.exists()
        await owner.runtime.stop()

    run()


def test_a_partition_released_meanwhile_is_not_saved(tmp_path: Path) -> None:
    """A closed partition has no groups in memory, unlike the log."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner, _ = await saved(storage, folder)
        ownership = owner.runtime._owned[0]
        owner.file.unlink()
        ownership.partition.close(ErrorCode.not_coordinator)
        await owner.snapshots.save_all()
        assert not owner.file.exists()

    run()


def test_a_partition_with_a_quarantined_group_is_not_saved(tmp_path: Path) -> None:
    """Owned or followed, it is read completely at the next start, which reports the group again."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        key = encode_key(RecordKey("orders", EntityKind.GROUP, ""))
        storage.records[0].append(StoredRecord(0, 0, 0, key, b"\xc3\x01 of the future"))
        standby = await Saving(storage, folder, stands_by=True).start()
        await standby.until_ready()
        await standby.snapshots.save_all()
        await standby.runtime.assign([0])
        await standby.snapshots.save_all()
        assert not standby.file.exists()
        await ended(standby)

    run()


def test_a_standby_that_is_taken_while_it_is_saved_is_not_saved(tmp_path: Path) -> None:
    """The takeover reads on, so the snapshot would be useless."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner = await Peer(storage).start(0)
        await owner.process.stable_group("a", "b")
        standby = await Saving(storage, folder, stands_by=True).start()
        await standby.until_ready()
        async with standby.standbys.resting(0) as resting:
            assert resting is not None
            stood_at = resting.loading.next_offset
            await more(owner)
            await asyncio.sleep(3 * CHECK_INTERVAL_S)
            assert resting.loading.next_offset == stood_at
            assert standby.standbys.is_still(0, resting)
            await standby.runtime.assign([0])
            assert not standby.standbys.is_still(0, resting)
        await ended(standby)

    run()


def test_a_full_disk_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups are served all the same, and the previous snapshot stays intact."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner, _ = await saved(storage, folder)
        before = owner.file.read_bytes()

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with capture_logs() as logs:
            for _ in range(3):
                await owner.snapshots.save_all()
        (logged,) = [line for line in logs if "could not write a snapshot" in line["event"]]
        assert logged["error"] == "No space left on device"
        assert owner.file.read_bytes() == before
        assert names_in(folder) == [owner.file.name]
        await ended(owner)

    run()


def test_a_folder_is_made_and_tried(tmp_path: Path) -> None:
    """Before anything is served; if it is not writable the start fails with an error."""
    folder = tmp_path / "some" / "where"
    SnapshotFolder(folder=folder, interval_ms=1_000).prepare()
    assert list(folder.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"exists|directory"):
        SnapshotFolder(folder=tmp_path / "file", interval_ms=1_000).prepare()


def test_a_dropped_standby_does_not_reload_its_snapshot(tmp_path: Path) -> None:
    """It would be discarded again for the same reason."""

    @kept_in(tmp_path)
    async def run(storage: MemoryStorage, folder: Path) -> None:
        owner = await Peer(storage).start(0)
        await owner.process.stable_group("a", "b")
        standby = await Saving(storage, folder, stands_by=True).start()
        await standby.until_ready()
        await standby.snapshots.save_all()
        with capture_logs() as logs:
            del storage.records[0][-2:]
            await asyncio.sleep(INTERVAL_MS / 2000)
        (logged,) = [line["reason"] for line in logs if "starts again from the beginning" in line["event"]]
        assert "before what was read" in logged
        assert standby.figures.ready == 1
        assert standby.reads.count((0, 0)) == 2
        await ended(standby)

    run()
