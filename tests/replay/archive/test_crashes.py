"""An archiver that is killed at any time, again and again: each record is archived once, in order."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from muster.replay.archive.compact import compact
from muster.replay.archive.expire import expire
from muster.replay.archive.manifest import load
from muster.replay.archive.verify import verify
from tests.replay.archive.disks import CrashingDisk, Killed
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

LATER = NOON + DAY_MS

Work = Callable[[Path, CrashingDisk], object]


async def assert_well(root: Path, log: RawMemoryLog) -> None:
    """Check that a reader finds an intact beginning of each partition, and that `verify` finds no damage."""
    if load(root) is None:
        return
    archive = await opened(root)
    for partition in range(log.partitions):
        found, expected = await raw(archive, partition), await raw(log, partition)
        assert found == expected[: len(found)]
    assert (await verify(root, log, watch=lambda _done, _total: None)).damage == ()


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power-lost"])
async def test_an_archiver_that_dies_at_any_step_resumes(tmp_path: Path, *, loses_power: bool) -> None:
    """At each step of one run, with a new archive each time; the next run completes it, and leaves nothing behind."""
    log = await filled(records=3)
    for step in count():
        root, disk = tmp_path / str(step), CrashingDisk(step, loses_power=loses_power)
        try:
            await archived(log, root, disk=disk)
        except Killed:
            await assert_well(root, log)
            await archived(log, root)
        else:
            break
        assert await digests_in(root) == await digests(log)
        state = load(root)
        assert state is not None
        assert named(root) == set(state.segments)
        assert not list((root / "_tmp").iterdir())
    assert step > 40


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power-lost"])
async def test_one_archive_survives_deaths_at_ever_later_steps(tmp_path: Path, *, loses_power: bool) -> None:
    """The log grows meanwhile; each run gets three steps further than the previous one."""
    log = await filled(records=2)
    for step in range(0, 240, 3):
        try:
            await archived(log, tmp_path / "a", disk=CrashingDisk(step, loses_power=loses_power))
        except Killed:
            pass
        else:
            more(log, 1)
        await assert_well(tmp_path / "a", log)
    await archived(log, tmp_path / "a")
    assert await digests_in(tmp_path / "a") == await digests(log)
    assert log.ends[0] > 2


def compacting(root: Path, disk: CrashingDisk) -> object:
    return compact(root, watch=lambda _done, _total: None, disk=disk, now_ms=LATER)


def expiring(root: Path, disk: CrashingDisk) -> object:
    return expire(root, "2024-09-29", disk=disk, now_ms=LATER)


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power-lost"])
@pytest.mark.parametrize("work", [compacting, expiring])
async def test_compacting_and_expiring_may_die_at_any_step(tmp_path: Path, work: Work, *, loses_power: bool) -> None:
    """Before the commit all is as it was, after it as it should be; the next run of any kind cleans up."""
    log = RawMemoryLog()
    await log.open()
    wanted: list[list[str]] = []
    before: list[str] = []
    for step in count():
        root = tmp_path / str(step)
        log.records, log.ends = [[], []], [0, 0]
        for _ in range(3):
            more(log, 2)
            await archived(log, root)
        before = await digests(log)
        try:
            work(root, CrashingDisk(step, loses_power=loses_power))
        except Killed:
            assert (await verify(root, log, watch=lambda _done, _total: None)).damage == ()
            at_death = await digests_in(root)
        else:
            break
        work(root, CrashingDisk())
        wanted.append(await digests_in(root))
        assert at_death in (before, wanted[-1])
        assert (await verify(root, log, watch=lambda _done, _total: None)).damage == ()
        state = load(root)
        assert state is not None
        assert named(root) == state.files
    assert step > 10
    assert all(each == wanted[0] for each in wanted)
    assert (wanted[0] == before) == (work is compacting)
