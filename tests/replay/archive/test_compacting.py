"""Joining small segments, and expiring days."""

from pathlib import Path

import pytest

from muster.events.log.base import LogDamaged, LogMismatch
from muster.events.records import RawRecord
from muster.replay.archive.commits import LINGER_MS
from muster.replay.archive.compact import CompactedArchive, compact
from muster.replay.archive.expire import expire
from muster.replay.archive.manifest import load, numbers
from muster.replay.archive.verify import verify
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


def compacted(root: Path, *, now_ms: int = NOON) -> CompactedArchive:
    return compact(root, watch=lambda _done, _total: None, now_ms=now_ms)


async def in_small_pieces(root: Path) -> RawMemoryLog:
    """Return a log of two days, archived after each record."""
    log = RawMemoryLog(1)
    await log.open()
    for number in range(8):
        log.write(0, at_ms=NOON - 9 * DAY_MS + (number // 4) * DAY_MS)
        await archived(log, root)
    return log


async def test_small_segments_of_a_day_become_one(tmp_path: Path) -> None:
    """The records stay as they are; a second run has nothing to do."""
    log = await in_small_pieces(tmp_path)
    assert compacted(tmp_path) == CompactedArchive(replaced=8, added=2, removed=0)
    assert await digests_in(tmp_path) == await digests(log)
    assert (await verify(tmp_path, log, watch=lambda _done, _total: None)).damage == ()
    before = numbers(tmp_path)
    assert compacted(tmp_path) == CompactedArchive(replaced=0, added=0, removed=0)
    assert numbers(tmp_path) == before
    more(log, 2)
    await archived(log, tmp_path)
    assert await digests_in(tmp_path) == await digests(log)


async def test_concurrent_readers_are_not_disturbed(tmp_path: Path) -> None:
    """The joined files stay for an hour; then they are removed, and the reader uses the new ones."""
    log = await in_small_pieces(tmp_path)
    early, late = await opened(tmp_path), await opened(tmp_path)
    reading = early.read_raw(0)
    found: list[RawRecord] = [*await anext(reading)]
    compacted(tmp_path)
    assert await raw(late) == log.records[0]
    assert compacted(tmp_path, now_ms=NOON + LINGER_MS).removed == 8
    assert len(named(tmp_path)) == 2
    found += [record async for chunk in reading for record in chunk]
    assert found == log.records[0]


async def test_unused_manifests_are_removed(tmp_path: Path) -> None:
    """The remaining ones still form a chain."""
    log = await in_small_pieces(tmp_path)
    compacted(tmp_path)
    assert numbers(tmp_path) == [10]
    assert (await verify(tmp_path, log, watch=lambda _done, _total: None)).damage == ()


async def test_an_altered_segment_is_not_joined(tmp_path: Path) -> None:
    """It would get a new name, and a correct SHA-256."""
    await in_small_pieces(tmp_path)
    before = named(tmp_path)
    path = tmp_path / min(before)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(LogDamaged, match="was altered"):
        compacted(tmp_path)
    assert named(tmp_path) == before


async def test_holes_stay_named_after_joining(tmp_path: Path) -> None:
    log = await filled(1)
    log.compact(0, 1, 4)
    await archived(log, tmp_path)
    more(log, 1)
    await archived(log, tmp_path)
    compacted(tmp_path)
    assert (await verify(tmp_path, log, watch=lambda _done, _total: None)).partitions[0].missing == 2


async def test_expired_days_are_permanently_gone_and_noted(tmp_path: Path) -> None:
    """Including those that compaction had replaced; the offsets continue, and nothing is archived again."""
    log = await in_small_pieces(tmp_path)
    compacted(tmp_path)
    gone = expire(tmp_path, "2024-09-26", now_ms=NOON)
    assert (gone.segments, gone.records) == (1, 4)
    assert all(path.startswith("day=2024-09-26/") for path in named(tmp_path))
    assert (await archived(log, tmp_path)).records == 0
    archive = await opened(tmp_path)
    assert [record.offset for record in await raw(archive)] == [4, 5, 6, 7]
    assert archive.warnings == ()  # with any, replay would exit with the code for damage
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared, found.partitions[0].expired_to) == ((), 4, 4)


async def test_everything_may_expire(tmp_path: Path) -> None:
    """The archive continues after it; the expired days add up."""
    log = await in_small_pieces(tmp_path)
    expire(tmp_path, "2024-09-26", now_ms=NOON)
    expire(tmp_path, "2024-10-04", now_ms=NOON)
    assert named(tmp_path) == set()
    log.write(0, at_ms=NOON - 9 * DAY_MS)
    await archived(log, tmp_path)
    state = load(tmp_path)
    assert state is not None
    assert state.expired[0].records == 8
    assert [(s.day, s.start) for s in state.of_partition(0)] == [("2024-10-04", 8)]
    assert (await verify(tmp_path, log, watch=lambda _done, _total: None)).damage == ()


async def test_expired_events_of_a_partition_stay_known_when_days_of_another_expire(tmp_path: Path) -> None:
    """Its offsets would otherwise count as missing."""
    log = RawMemoryLog(2)
    await log.open()
    for partition in (0, 1):
        for number in range(8):
            log.write(partition, at_ms=NOON - 9 * DAY_MS + (number // 4 + 2 * partition) * DAY_MS)
    await archived(log, tmp_path)
    for before in ("2024-09-27", "2024-09-28"):
        expire(tmp_path, before, now_ms=NOON)
    state = load(tmp_path)
    assert state is not None
    assert {each.partition: each.records for each in state.expired.values()} == {0: 8, 1: 4}
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert (found.damage, [each.missing for each in found.partitions]) == ((), [0, 0])


@pytest.mark.parametrize(("before", "said"), [("yesterday", "is not a day"), ("2024-10-05", "has not come yet")])
async def test_only_past_days_expire(tmp_path: Path, before: str, said: str) -> None:
    await archived(await filled(), tmp_path)
    with pytest.raises(LogMismatch, match=said):
        expire(tmp_path, before, now_ms=NOON)
