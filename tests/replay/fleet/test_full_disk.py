"""The disk is full while tables or an archive are written: nothing partial is left, and the work continues.

The limit is that of a file's size (RLIMIT_FSIZE), which can be lifted for a running process.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import duckdb
import pytest

from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.memory import MemoryStorage
from muster.events.records import StoredRecord
from muster.replay.archive.manifest import load
from muster.replay.fleet.disk_space import NoMemory, NoRoom, needing_room
from muster.replay.fleet.tables.builds import current, last_build
from tests.replay.archive.logs import NOON, archived
from tests.replay.fleet.fleets import all_tables, built, judged, opened, sqlite_copy, up_to
from tests.waiting import until

UNLIMITED = resource.RLIM_INFINITY
SMALL = 64 * 1024
"""Room for a log that is only read; its index in memory is a file, too."""

RECORDS = 1_000


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit the size of this process's files, in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def limited(size: int, words: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a fleet command with this limit; its output goes through a pipe into a file."""
    limit = f'ulimit -S -f {size // 1024}; exec "$@"'
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            f"exec > >(exec cat > {words}) 2>&1; {limit}",
            "-",
            sys.executable,
            "-m",
            "muster",
            "fleet",
            *command,
        ],
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lift(process: subprocess.Popen[str]) -> None:
    """Remove the limit of a running process."""
    resource.prlimit(
        process.pid, resource.RLIMIT_FSIZE, (UNLIMITED, resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1])
    )


def large() -> MemoryStorage:
    """A log larger than SMALL, however it is compressed."""
    random, storage = Random(1), MemoryStorage(partitions=1)
    key = encode_key(RecordKey("orders", EntityKind.GROUP, ""))
    storage.records[0] += [StoredRecord(0, n, NOON, key, random.randbytes(500)) for n in range(RECORDS)]
    return storage


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("size", [0, 400, 3_000, 6_000, 9_000, 15_000])
async def test_a_build_without_disk_space_leaves_the_tables_unchanged(tmp_path: Path, size: int) -> None:
    """The room may be for copies of the log, for parts, or for the manifest; with room the next one completes them."""
    storage = judged((3, 14, 15, 92))
    await built(up_to(storage, 0.6), tmp_path / "t")
    before, files = all_tables(tmp_path / "t"), files_in(tmp_path / "t")
    with files_of_at_most(size), pytest.raises(NoRoom, match=r"no room at .*; its tables are as the last build left"):
        await built(storage, tmp_path / "t")
    assert files_in(tmp_path / "t") == files
    assert all_tables(tmp_path / "t") == before
    await built(storage, tmp_path / "t")
    await built(storage, tmp_path / "full")
    assert all_tables(tmp_path / "t") == all_tables(tmp_path / "full")


async def test_a_build_without_disk_space_advises_how_to_free_earlier_builds(tmp_path: Path) -> None:
    """Queries may read them for an hour; with --grace 0 only the files of the last two builds stay."""
    storage = judged((3, 14, 15, 92))
    for share in (0.2, 0.4, 0.6, 0.8):
        await built(up_to(storage, share), tmp_path)
    way_out = (
        r"\. 2 earlier builds there have \d+ KB that a query may still read: if none does, --grace 0 removes them$"
    )
    with files_of_at_most(400), pytest.raises(NoRoom, match=way_out):
        await built(storage, tmp_path)
    with files_of_at_most(400), pytest.raises(NoRoom, match=r"its tables are as the last build left them$"):
        await built(storage, tmp_path, grace_ms=0)
    assert {path.name for path in (tmp_path / "_builds").glob("*.json")} == {"000003.json", "000004.json"}


@pytest.mark.parametrize(
    ("words", "is_no_room"),
    [
        ('IO Error: Could not write file "duckdb_temp_storage-0.tmp": No space left on device', True),
        ("Out of Memory Error: failed to offload data block; see the 'max_temp_directory_size' setting", True),
        ("Out of Memory Error: failed to pin block", False),
    ],
)
def test_a_sort_without_disk_space_is_distinguished_from_other_errors(
    tmp_path: Path, words: str, *, is_no_room: bool
) -> None:
    """DuckDB has a message for it, but no code."""
    with pytest.raises(NoRoom if is_no_room else duckdb.Error), needing_room(tmp_path):
        raise duckdb.Error(words)


def test_too_little_memory_is_reported_with_advice(tmp_path: Path) -> None:
    """Whichever step needs it; a traceback would mention DuckDB's settings, which users cannot change."""
    words = "Out of Memory Error: failed to pin block of size 256.0 KiB\n\nPossible solutions:\n* ..."
    text = r"too little memory .*: say --engine spark, .* \(Out of .* 256.0 KiB\)$"
    with pytest.raises(NoMemory, match=text), needing_room(tmp_path):
        raise duckdb.OutOfMemoryException(words)


async def test_with_every_a_build_waits_for_room(tmp_path: Path) -> None:
    """It prints one line, and continues when there is room."""
    storage, words = judged((3, 14)), tmp_path / "words"
    await archived(await opened(storage), tmp_path / "a")
    command = ("build", "--archive", str(tmp_path / "a"), "--to", str(tmp_path / "t"), "--every", "100ms")
    with limited(1024, words, *command) as process:
        await until(lambda: words.exists() and "there is no room" in words.read_text(), within_s=120)
        assert last_build(tmp_path / "t") is None
        lift(process)
        await until(lambda: "new events folded" in words.read_text(), within_s=120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    lines = words.read_text().splitlines()
    assert all(each.endswith("; tried again in 0.1 s") for each in lines if "no room" in each), lines
    assert "Traceback" not in words.read_text()
    await built(storage, tmp_path / "full")
    assert current(tmp_path / "t").number == 1
    assert all_tables(tmp_path / "t") == all_tables(tmp_path / "full")


async def test_with_every_an_archive_waits_for_room(tmp_path: Path) -> None:
    """And then has each record."""
    log, words = await sqlite_copy(large(), tmp_path / "muster.db"), tmp_path / "words"
    root = tmp_path / "a"
    with limited(SMALL, words, "archive", "--log", log, "--to", str(root), "--every", "100ms") as process:
        await until(lambda: words.exists() and "there is no room" in words.read_text(), within_s=120)
        lift(process)
        await until(lambda: "records archived" in words.read_text(), within_s=120)
        process.kill()
    state = load(root)
    assert state is not None
    assert sum(segment.records for segment in state.segments.values()) == RECORDS


async def test_once_ends_with_a_line_and_a_code(tmp_path: Path) -> None:
    """Both for an archive and a build; with room they continue."""
    log, words = await sqlite_copy(large(), tmp_path / "muster.db"), tmp_path / "words"
    archive = ("archive", "--log", log, "--to", str(tmp_path / "a"), "--once")
    build = ("build", "--log", log, "--to", str(tmp_path / "t"))
    for command in (archive, build):
        with limited(SMALL, words, *command) as process:
            assert process.wait(120) == 2
        await until(lambda: words.read_text().endswith("\n"))
        (line,) = words.read_text().splitlines()
        assert line.startswith("muster fleet: there is no room at ")
        words.unlink()
        with limited(SMALL * 1024, words, *command) as process:
            assert process.wait(120) == 0
        words.unlink()
