"""The SQLite log after `kill -9` of its writer, at whatever point of a write."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record
from tests.events.log.sqlite.kill_9_writer import numbered
from tests.events.log.transitions import assert_whole, flat, read_all, records_of

ROUNDS = 6
ROOT = Path(__file__).parents[4]


def append_until_killed(path: Path, name: str, appends: int) -> int:
    """Run a writer, and kill it once it has reported this many appends; return the number reported."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.events.log.sqlite.kill_9_writer", str(path), name],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None
    with writer:
        try:
            output = [writer.stdout.readline() for _ in range(appends)]
        finally:
            writer.kill()
        # What it had reported before it died may still be in the pipe; an incomplete line does not count.
        output += [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
    assert output[-1], "the writer ended by itself"
    return int(output[-1]) + 1


async def records_in(path: Path, *, read_only: bool) -> list[Record]:
    """The records of the file, with offsets checked, and each transition found to be whole."""
    log = SqliteEventLog(path, read_only=read_only)
    await log.open()
    stored = await read_all(log)
    assert [one.offset for one in stored] == list(range(len(stored)))
    assert await log.end_offset(0) == len(stored)
    assert_whole(stored)
    await log.close()
    return records_of(stored)


@pytest.mark.slow
async def test_acknowledged_appends_survive_kill_9_and_none_is_partial(tmp_path: Path) -> None:
    """Repeatedly on one file: a reader, then the next writer, find everything that was reported and at most one more
    append, complete; and no lock is left behind.
    """
    path = tmp_path / "muster.db"
    before: list[Record] = []
    for number in range(ROUNDS):
        name = f"round-{number}"
        acknowledged = append_until_killed(path, name, random.randint(1, 150))

        found = await records_in(path, read_only=True)

        expected = before + flat(each for n in range(acknowledged) for each in numbered(name, n))
        under_way = flat(numbered(name, acknowledged))
        assert found in (expected, expected + under_way)
        assert await records_in(path, read_only=False) == found
        before = found
