"""The findings of `verify`."""

import re
from pathlib import Path

import pytest

from muster.events.log.base import LogDamaged, LogMismatch
from muster.events.records import RawRecord
from muster.replay.archive.compact import compact
from muster.replay.archive.expire import expire
from muster.replay.archive.files import ArchiveBusy
from muster.replay.archive.manifest import load, path_of
from muster.replay.archive.verify import VerifiedArchive, verify
from tests.replay.archive.logs import DAY_MS, MARK, NOON, RawMemoryLog, archived, filled, more, opened
from tests.replay.stories import a_night


async def verified(root: Path, log: RawMemoryLog | None = None) -> VerifiedArchive:
    return await verify(root, log, watch=lambda _done, _total: None)


def first_segment(root: Path) -> Path:
    return min(root.glob("day=*/partition-00000/*"))


async def test_a_whole_archive_is_well(tmp_path: Path) -> None:
    """Also against its topic, with each record compared."""
    log = await filled()
    await archived(log, tmp_path)
    found = await verified(tmp_path, log)
    assert (found.damage, found.compared, found.records) == ((), 20, 20)
    assert [(part.records, part.missing) for part in found.partitions] == [(10, 0), (10, 0)]


async def test_events_compacted_before_archiving_are_named(tmp_path: Path) -> None:
    log = await filled()
    log.compact(0, 0, 1, 5)
    await archived(log, tmp_path)
    found = await verified(tmp_path, log)
    assert found.damage == ()
    assert (found.partitions[0].holes, found.partitions[0].missing) == (((0, 2), (5, 6)), 3)


async def test_events_deleted_before_archiving_are_damage_and_not_compaction(tmp_path: Path) -> None:
    """Also of a partition of which nothing is left; the run that finds it says it, and later ones do not."""
    log = await filled()
    log.compact(0, 5)
    log.delete(0, 3)
    log.delete(1, 10)
    text = (
        "records of .* were deleted before they were archived .partition 0 offsets 0 to 2, partition 1 offsets 0 to 9."
    )
    (damage,) = (await archived(log, tmp_path)).damage
    assert re.match(text, damage)
    assert (await archived(log, tmp_path)).damage == ()
    found = await verified(tmp_path, log)
    assert [re.match(text, each) is not None for each in found.damage] == [True]
    assert [(part.deleted, part.holes) for part in found.partitions] == [(3, ((5, 6),)), (10, ())]
    assert [re.match(text, each) is not None for each in (await opened(tmp_path)).warnings] == [True]


async def test_events_deleted_after_archiving_are_not_missing(tmp_path: Path) -> None:
    """The archive has it, so no run and no reader says that history is lost."""
    log = await filled()
    await archived(log, tmp_path)
    more(log, 4)
    log.delete(0, 8)
    assert (await archived(log, tmp_path)).damage == ()
    assert ((await verified(tmp_path, log)).damage, (await opened(tmp_path)).warnings) == ((), ())


async def test_a_deletion_between_two_runs_is_reported_with_its_events(tmp_path: Path) -> None:
    """It is listed where it is, through all that is done with the archive, until those days expire."""
    log = await group_log()
    end = log.ends[0]
    log.ends[0] = end // 3
    kept, log.records[0] = log.records[0], log.records[0][: end // 3]
    await archived(log, tmp_path)
    log.records[0], log.ends[0] = kept, end
    log.delete(0, end // 2)
    await archived(log, tmp_path)
    compact(tmp_path, watch=lambda _done, _total: None, now_ms=NOON)
    (part,) = (await verified(tmp_path)).partitions
    assert (part.deleted, part.missing, part.events_deleted > 0) == (end // 2 - end // 3, 0, True)
    expire(tmp_path, "2024-10-05", now_ms=NOON + DAY_MS)
    assert ((await verified(tmp_path)).damage, (await opened(tmp_path)).warnings) == ((), ())


async def test_a_beginning_that_is_deleted_again_and_again_is_one_range(tmp_path: Path) -> None:
    """Nothing of it is ever archived, and the list does not grow."""
    log = await filled(1)
    for before in (3, 6, 10):
        log.delete(0, before)
        log.records[0].clear()
        await archived(log, tmp_path)
    state = load(tmp_path)
    assert state is not None
    assert [(each.start, each.end) for each in state.deleted] == [(0, 10)]


async def test_compaction_after_archiving_changes_nothing(tmp_path: Path) -> None:
    log = await filled()
    await archived(log, tmp_path)
    log.compact(0, *range(8))
    found = await verified(tmp_path, log)
    assert (found.damage, found.compared) == ((), 12)
    assert found.partitions[0].missing == 0


async def test_an_altered_segment_is_found(tmp_path: Path) -> None:
    """A single bit; the other segments are checked nevertheless."""
    await archived(await filled(), tmp_path)
    path = first_segment(tmp_path)
    altered = bytearray(path.read_bytes())
    altered[len(altered) // 2] ^= 1
    path.write_bytes(altered)
    (damage,) = (await verified(tmp_path)).damage
    assert damage.startswith(f"{path} was altered: its SHA-256 is ")


async def test_a_missing_segment_is_found(tmp_path: Path) -> None:
    await archived(await filled(), tmp_path)
    first_segment(tmp_path).unlink()
    (damage,) = (await verified(tmp_path)).damage
    assert "is missing: the offsets 0 to" in damage


async def test_an_archive_that_changes_during_verification_is_not_reported_as_damaged(tmp_path: Path) -> None:
    """Files that `expire` has removed meanwhile are missing, which is no damage."""
    log = await filled()
    await archived(log, tmp_path)
    more(log, 10)
    await archived(log, tmp_path)

    def change(_done: int, _total: int) -> None:
        expire(tmp_path, "2024-10-04", now_ms=NOON)

    with pytest.raises(ArchiveBusy, match="verify it again"):
        await verify(tmp_path, None, watch=change)
    assert (await verified(tmp_path)).damage == ()


async def test_a_manifest_of_the_past_that_leads_nowhere(tmp_path: Path) -> None:
    """Readers do not need it; verify checks all manifests."""
    await archived(await filled(), tmp_path)
    path_of(tmp_path, 0).symlink_to(tmp_path / "nowhere")
    with pytest.raises(LogDamaged, match=r"000000000000\.json leads nowhere"):
        await verified(tmp_path)


async def test_an_altered_manifest_breaks_the_chain(tmp_path: Path) -> None:
    """The archive's past cannot be changed without rewriting everything after it."""
    log = await filled()
    await archived(log, tmp_path)
    more(log, 1)
    await archived(log, tmp_path)
    manifest = path_of(tmp_path, 2)
    manifest.write_bytes(manifest.read_bytes().replace(b'"at_ms": ', b'"at_ms": 1'))
    with pytest.raises(LogDamaged, match=r"000000000003\.json does not follow 000000000002\.json"):
        await verified(tmp_path)


@pytest.mark.parametrize(
    ("is_there", "finding"),
    [(True, r"000000000003\.json does not follow 000000000002\.json"), (False, r"000000000002\.json is missing")],
    ids=["altered", "missing"],
)
async def test_the_chain_is_checked_from_its_beginning(tmp_path: Path, *, is_there: bool, finding: str) -> None:
    """Readers begin at the last manifest that lists everything; a change to one before it is found nevertheless."""
    log = await filled()
    for _ in range(2):
        await archived(log, tmp_path)
        more(log, 1)
    await archived(log, tmp_path)
    expire(tmp_path, "2024-10-01", now_ms=NOON)
    manifest = path_of(tmp_path, 2)
    altered = manifest.read_bytes().replace(b'"at_ms": ', b'"at_ms": 1')
    manifest.unlink()
    if is_there:
        manifest.write_bytes(altered)
    (damage,) = (await verified(tmp_path)).damage
    assert re.search(finding, damage)


async def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    log = await filled()
    await archived(log, tmp_path)
    more(log, 1)
    await archived(log, tmp_path)
    path_of(tmp_path, 2).unlink()
    with pytest.raises(LogDamaged, match=r"000000000002\.json is missing"):
        await verified(tmp_path)


async def test_records_that_the_topic_has_and_the_archive_has_not(tmp_path: Path) -> None:
    """And another record at the same offset."""
    log = await filled()
    kept = list(log.records[0])
    log.compact(0, 3)
    await archived(log, tmp_path)
    log.records[0] = [RawRecord(0, 4, NOON, b"other", b"") if each.offset == 4 else each for each in kept]
    assert (await verified(tmp_path, log)).damage == (
        "partition 0: offset 3 is in the topic, and not here",
        "partition 0: offset 4 is another record in the topic",
    )


async def test_comparing_with_another_log_is_refused(tmp_path: Path) -> None:
    await archived(await filled(), tmp_path)
    other = RawMemoryLog(identity="topic-2")
    await other.open()
    with pytest.raises(LogMismatch, match="is the archive of another log"):
        await verified(tmp_path, other)


async def group_log() -> RawMemoryLog:
    """Return a partition with the events of a group, as owners write them."""
    reported = a_night()
    log = RawMemoryLog(1)
    await log.open()
    for record in reported.stored_records():
        log.write(0, key=record.key, value=record.value, headers=(MARK,))
    return log


async def test_a_groups_gap_where_no_offset_is_missing_is_a_loss(tmp_path: Path) -> None:
    """The topic's offsets are consecutive, and the group's seqs are not."""
    log = await group_log()
    kept = [each for each in log.records[0] if each.offset != 3]
    log.records[0] = [RawRecord(0, n, r.timestamp_ms, r.key, r.value, r.headers, 7) for n, r in enumerate(kept)]
    log.ends[0] = len(kept)
    await archived(log, tmp_path)
    found = await verified(tmp_path)
    assert any("group 'orders': its events" in each and "are missing" in each for each in found.damage)
    assert any("1 events are missing, 0 came again" in each for each in found.damage)


async def test_a_groups_gap_with_its_offset_is_compactions(tmp_path: Path) -> None:
    log = await group_log()
    log.compact(0, 3)
    await archived(log, tmp_path)
    found = await verified(tmp_path)
    assert found.damage == ()
    assert found.partitions[0].events_compacted == 1


async def test_a_duplicate_group_event_is_found(tmp_path: Path) -> None:
    log = await group_log()
    assert (await archived(log, tmp_path)).records
    assert (await verified(tmp_path)).damage == ()
    again = log.records[0][2]
    log.write(0, key=again.key, value=again.value)
    await archived(log, tmp_path)
    found = await verified(tmp_path)
    assert any("comes again" in each for each in found.damage)
    assert any("0 events are missing, 1 came again" in each for each in found.damage)


async def test_a_foreign_copy_of_an_event_is_ignored(tmp_path: Path) -> None:
    """All readers skip it."""
    log = await group_log()
    again = log.records[0][2]
    log.write(0, key=again.key, value=again.value, headers=())
    log.write(0, key=again.key, value=again.value, producer_id=9)
    await archived(log, tmp_path)
    assert load(tmp_path) is not None
    assert (await verified(tmp_path)).damage == ()
