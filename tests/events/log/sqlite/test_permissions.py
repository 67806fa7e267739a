"""A SQLite log that this process may not use is refused with the reason; tested as another user."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.sqlite.permissions import refuse_unusable
from tests.events.log.transitions import transition

NOBODY = 65_534
TRY = """
import asyncio, os, sys
from pathlib import Path
from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog

async def main() -> None:
    log = SqliteEventLog(Path(sys.argv[1]), read_only=sys.argv[2] == "reads")
    try:
        await log.open()
    except LogMismatch as error:
        print(error)
        return
    await log.close()
    print("opened")

if os.geteuid() == 0:  # not before: the interpreter may be where nobody else can reach it
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
asyncio.run(main())
"""


@pytest.fixture
async def path() -> AsyncIterator[Path]:
    """The path of a log in a folder that others may enter, with the other files of a writer that was killed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "log"
        folder.mkdir()
        for each in (Path(name), folder):
            set_mode(each, 0o755)
        path = folder / "muster.db"
        log = SqliteEventLog(path)
        await log.open()
        await (await log.claim(0)).append([transition("a")])
        yield path
        for each in (Path(name), folder):
            set_mode(each, 0o755)
        await log.close()


def set_mode(file: Path, mode: int) -> None:
    file.chmod(mode)


async def tried(path: Path, how: str = "writes") -> str:
    """Return the messages that another user gets; without root, the current user, to whom the modes apply, too."""
    trying = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", TRY, str(path), how, str(NOBODY)],
        capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert trying.returncode == 0, trying.stderr
    return trying.stdout.strip()


def read_only_folders() -> list[Path]:
    """The read-only file systems that are mounted where any user may look."""
    mounts = (Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
    return [
        each
        for each in mounts
        if all(above.is_dir() and above.stat().st_mode & 0o001 for above in (each, *each.parents))
        and os.statvfs(each).f_flag & os.ST_RDONLY
    ]


def whose(file: Path, mode: str) -> str:
    return f"{file} is user {os.geteuid()}'s, with mode {mode}"


def refused(path: Path, done: str, culprits: str) -> str:
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    change = "; change that, or give another --log"
    suffix = {"written": change, "reached": change, "read": ""}[done]
    return f"the event log {path} cannot be {done} by user {user}: {culprits}{suffix}"


async def test_an_unwritable_file_is_refused_with_its_owner(path: Path) -> None:
    """With each file beside it that has the same problem; a reader does not need write permission."""
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", ".lock")]
    for file in (path, *beside):
        set_mode(file, 0o444)
    culprits = " and ".join(whose(file, "-r--r--r--") for file in (path, *beside)).replace(f"{path} is", "it is", 1)
    assert await tried(path) == refused(path, "written", culprits)
    assert await tried(path, "reads") == "opened"


@pytest.mark.parametrize("suffix", ["-wal", "-shm", ".lock"])
async def test_a_file_beside_it_that_cannot_be_written_is_refused_by_its_name(path: Path, suffix: str) -> None:
    """For example one left by a killed process of another user."""
    for each in path.parent.iterdir():
        set_mode(each, 0o666)
    beside = path.with_name(path.name + suffix)
    set_mode(beside, 0o444)
    assert await tried(path) == refused(path, "written", whose(beside, "-r--r--r--"))


async def test_a_folder_that_cannot_be_written_is_refused_where_a_file_has_to_be_made(path: Path) -> None:
    set_mode(path.parent, 0o555)
    new = path.with_name("new.db")
    assert await tried(new) == refused(new, "written", whose(path.parent, "dr-xr-xr-x"))


async def test_a_folder_that_cannot_be_entered_is_named(path: Path) -> None:
    """The file's own folder, or one above."""
    set_mode(path.parent.parent, 0o600)
    for how in ("writes", "reads"):
        assert await tried(path, how) == refused(path, "reached", whose(path.parent.parent, "drw-------"))


async def test_an_unreadable_file_is_refused_with_its_owner(path: Path) -> None:
    """SQLite would report that it cannot open it, and not why."""
    set_mode(path, 0o200)
    culprit = whose(path, "--w-------").replace(f"{path} is", "it is")
    assert await tried(path, "reads") == refused(path, "read", culprit)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
async def test_a_file_beside_it_that_cannot_be_read_is_refused_by_its_name(path: Path, suffix: str) -> None:
    """It used to be reported as not closed cleanly, even while it was open."""
    set_mode(path, 0o444)
    beside = path.with_name(path.name + suffix)
    set_mode(beside, 0o600 if os.geteuid() == 0 else 0o200)
    assert await tried(path, "reads") == refused(
        path, "read", whose(beside, "-rw-------" if os.geteuid() == 0 else "--w-------")
    )


def test_each_file_that_is_to_blame_has_its_words(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself is "it", and others have their names; tested on a machine that refuses everything but the
    folders.
    """
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]
    for file in (path, *beside):
        set_mode(file, 0o644)
    monkeypatch.setattr(os, "access", lambda each, _: Path(each).is_dir())
    culprits = " and ".join(whose(file, "-rw-r--r--") for file in (path, *beside)).replace(f"{path} is", "it is", 1)
    with pytest.raises(LogMismatch) as unusable:
        refuse_unusable(path, writes=True, locks=False)
    assert str(unusable.value) == (
        f"the event log {path} cannot be written by user {os.geteuid()}: {culprits}; change that, or give another --log"
    )


async def test_unneeded_files_beside_it_may_have_any_owner(path: Path) -> None:
    """An empty write-ahead log, as the last of its writers leaves it where it may not be removed."""
    copy = path.with_name("copy.db")
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()
    set_mode(copy, 0o444)
    for suffix in ("-wal", "-shm"):
        beside = copy.with_name(copy.name + suffix)
        beside.touch()
        set_mode(beside, 0o200)
    assert await tried(copy, "reads") == "opened"


async def test_a_folder_is_reported_as_such_and_its_parent_is_not_blamed(path: Path) -> None:
    """Even though nothing could be created beside it."""
    inner = path.parent / "inner"
    inner.mkdir()
    set_mode(path.parent, 0o555)
    for how in ("writes", "reads"):
        assert await tried(inner, how) == (
            f"the event log {inner} is a folder, not a file; name a file in it: {inner / 'muster.db'}"
        )


async def test_symlink_loops_are_reported(path: Path) -> None:
    """On the way to the file, or in its place."""
    loop = path.parent / "loop"
    loop.symlink_to(loop.name)
    for log in (loop, loop / "muster.db"):
        for how in ("writes", "reads"):
            assert await tried(log, how) == (f"the event log {log} cannot be opened: symbolic links lead to themselves")


async def test_a_path_that_is_not_a_regular_file_is_refused_by_its_name_and_kind(path: Path) -> None:
    """SQLite would report a disk error, or wait for a writer to the pipe."""
    pipe, other = path.parent / "pipe", path.with_name("other.db")
    os.mkfifo(pipe)
    assert await tried(pipe) == f"the event log {pipe} cannot be opened: it is a named pipe, not a file"
    for suffix in ("-wal", ".lock"):
        beside = other.with_name(other.name + suffix)
        beside.mkdir()
        assert await tried(other) == f"the event log {other} cannot be opened: {beside} is a folder, not a file"
        beside.rmdir()


@pytest.mark.parametrize("writes", [True, False])
def test_each_kind_of_special_file_has_its_word(path: Path, writes: bool) -> None:
    """At the log's path it is "it", whatever link leads there; beside the log it has its name."""
    folder, kinds = path.parent, {"pipe": "a named pipe", "socket": "a socket", "null": "a device"}
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    (folder / "null").symlink_to(os.devnull)
    for name, kind in kinds.items():
        with pytest.raises(LogMismatch, match=rf"{folder / name} cannot be opened: it is {kind}, not a file$"):
            refuse_unusable(folder / name, writes=writes, locks=True)
        log = folder / f"beside-{name}.db"
        (folder / f"{log.name}-wal").symlink_to(folder / name)
        with pytest.raises(LogMismatch, match=rf"{log} cannot be opened: {log}-wal is {kind}, not a file$"):
            refuse_unusable(log, writes=writes, locks=True)


async def test_a_read_only_file_system_is_reported_and_no_permissions(path: Path) -> None:
    """The modes are innocent there; any such file system will do, and most machines have one."""
    read_only = read_only_folders()
    if not read_only:
        pytest.skip("no read-only file system is mounted")
    log = read_only[0] / "muster.db"
    assert await tried(log) == (
        f"the event log {log} cannot be written: the file system of {log.parent} is read-only; change that, or give"
        " another --log"
    )
