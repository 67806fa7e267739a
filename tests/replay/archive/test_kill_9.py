"""The archive after `kill -9` of its archiver, at any point, again and again."""

import contextlib
import random
import subprocess
import sys
from pathlib import Path

from muster.events.log.sqlite.log import SqliteEventLog
from muster.replay.archive.manifest import load
from muster.replay.archive.verify import verify
from tests.replay.archive.logs import archived, digests, digests_in, named, opened, raw

ROUNDS = 8
ROOT = Path(__file__).parents[3]


def archive_until_killed(path: Path, root: Path, runs: int, *, after_s: float) -> None:
    """Start an archiver, and kill it as soon as it has reported this many runs, or that much later."""
    command = [sys.executable, "-m", "tests.replay.archive.kill_9_archiver", str(path), str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as archiver:
        assert archiver.stdout is not None
        try:
            output = [archiver.stdout.readline() for _ in range(runs)]
            assert all(output), "the archiver ended by itself"
            with contextlib.suppress(subprocess.TimeoutExpired):
                archiver.wait(after_s)
        finally:
            archiver.kill()


async def test_each_record_is_archived_once_and_in_order(tmp_path: Path) -> None:
    """In many rounds, a reader finds an intact beginning of each partition, and the next archiver continues after it.

    At the end the digests of log and archive are the same.
    """
    path, root = tmp_path / "muster.db", tmp_path / "archive"
    for _ in range(ROUNDS):
        archive_until_killed(path, root, random.randint(1, 12), after_s=random.random() / 30)
        log = SqliteEventLog(path, read_only=True)
        await log.open()
        archive = await opened(root)
        for partition in range(log.partitions):
            found, expected = await raw(archive, partition), await raw(log, partition)
            assert found == expected[: len(found)]
        assert (await verify(root, log, watch=lambda _done, _total: None)).damage == ()
        await log.close()
    log = SqliteEventLog(path, read_only=True)
    await log.open()
    await archived(log, root, now_ms=None)
    assert await digests_in(root) == await digests(log)
    state = load(root)
    assert state is not None
    assert named(root) == set(state.segments)
    await log.close()
