"""Opens a SQLite file for writing or for reading, locks it against a second writer, and checks that it is still in its
place.

Reading needs no write permission while a writer lives, or if the last writer closed the file cleanly. If the writer was
killed, its last transactions are in the `-wal` file, and SQLite can only use that if it may create the `-shm` file,
too.
"""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

from muster.events.log.base import LogDamaged, LogError, LogMismatch, LogUnavailable
from muster.events.log.sqlite.failures import code_of, failure_of, is_damage, is_full, is_locked

T = TypeVar("T")

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

BUSY_TIMEOUT_S = 3.0
"""The wait for other programs' locks; shorter than the time after which a disk is reported (file.py)."""


def connect_and_prepare(
    path: Path, connect: Callable[[Path], sqlite3.Connection], prepare: Callable[[sqlite3.Connection], T]
) -> tuple[sqlite3.Connection, T]:
    """Connect, and run `prepare`; return the connection, and the result of `prepare`, and raise its errors.

    Raises LogMismatch if the file is not SQLite's or cannot be used, LogDamaged, and LogUnavailable if another program
    has it locked or the disk is full.
    """
    try:
        with ExitStack() as on_failure:
            connection = connect(path)
            on_failure.callback(connection.close)
            prepared = prepare(connection)
            on_failure.pop_all()
    except sqlite3.Error as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise LogMismatch(f"{path} is not an event log: {error}") from error
        if is_damage(error) or is_locked(error) or is_full(error):
            raise failure_of(error, path, "opened") from error
        raise LogMismatch(f"the event log {path} cannot be opened: {error}") from error
    return connection, prepared


def look_at(path: Path, look: Callable[[sqlite3.Connection], None]) -> None:
    """Run `look` on an existing file, without creating any file next to it.

    The write-ahead log is ignored, so a file that was just created may look empty, and one that is being written may
    look damaged: opening it will show. Raises like `connect_and_prepare`.
    """
    if path.is_file():
        with suppress(LogDamaged):
            connection, _ = connect_and_prepare(path, _connect_for_looking, look)
            connection.close()


def _connect_for_looking(path: Path) -> sqlite3.Connection:
    return _connect(path, "mode=ro&immutable=1")


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Connect for writing; creates a missing file."""
    _refuse_other_names(path)
    return _connect(path, "mode=rwc")


def _refuse_other_names(path: Path) -> None:
    """Refuse a file with several hard links: the lock and the write-ahead log are named after one of them.

    See "multiple links to the same file" in sqlite.org/howtocorrupt.html. A symbolic link is fine: it is followed.
    """
    if path.exists() and path.stat().st_nlink > 1:
        raise LogMismatch(
            f"the event log {path} has another name, a hard link, under which it might also be in use:"
            f" remove that name (find / -xdev -inum {path.stat().st_ino} shows it), or give this one a copy"
        )


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Connect to an existing file, for reading only."""
    if not path.exists():
        raise LogMismatch(
            f"no event log at {path}: name it with --log, or MUSTER_LOG (a sidecar's is, unless it was given another,"
            " kafka://HOST:PORT/__muster_events)"
        )
    connection = _connect(path, "mode=ro")
    if _is_readable(connection):
        return connection
    connection.close()
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise LogMismatch(
            f"the event log {path} was not closed cleanly; to read it, you need write permission "
            f"in its folder, or a copy of it and of {wal.name} in a folder with that permission"
        )
    # Without a write-ahead log the file itself is complete, and nothing else is needed to read it.
    return _connect(path, "mode=ro&immutable=1")


def connect_to_salvage(path: Path) -> sqlite3.Connection:
    """Connect like `connect_for_reading`, also to a truncated file, which SQLite would not open otherwise."""
    connection = connect_for_reading(path)
    connection.execute("PRAGMA writable_schema = ON")  # harmless, since the connection is read-only
    return connection


def _connect(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)


def _is_readable(connection: sqlite3.Connection) -> bool:
    """Return whether the files of write-ahead logging can be created. Other errors show later."""
    try:
        connection.execute("PRAGMA application_id")
    except sqlite3.DatabaseError as error:
        return code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return True


NOTE_AT: Final = 32
"""The position of the owner's note in the lock file, after its process id."""


def lock_of(path: Path) -> Path:
    """Return the path of the lock file: next to the file itself, regardless of links that lead to it."""
    real = path.resolve()
    return real.with_name(real.name + ".lock")


class FileLock:
    """The lock of the writing process on a file, until the process exits, however it ends.

    It is a lock on a file next to it, `NAME.lock`, which contains the process id of the holder and a note
    (missing_records.py), and is never removed: SQLite's own locks must not be disturbed, and removing a locked file
    would allow two holders.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Acquire the lock. Raises LogMismatch, with file and holder; LogUnavailable if the disk is full."""
        lock_path = lock_of(self._path)
        with ExitStack() as on_failure:
            try:
                descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise self._failed(lock_path, error) from error
            on_failure.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.pwrite(descriptor, (b"%d" % os.getpid()).ljust(NOTE_AT - 1) + b"\n", 0)
            except BlockingIOError as error:
                holder = os.pread(descriptor, NOTE_AT, 0).decode(errors="replace").strip() or "unknown"
                raise LogMismatch(
                    f"the event log {self._path} is in use by process {holder}; stop that one first (to run"
                    " a second `muster serve`, give it another --log)"
                ) from error
            except OSError as error:
                raise self._failed(lock_path, error) from error
            on_failure.pop_all()
        self._descriptor = descriptor

    def _failed(self, lock_path: Path, error: OSError) -> LogError:
        if isinstance(error, FileNotFoundError):
            return LogMismatch(
                f"the event log {self._path} cannot be created: the folder {lock_path.parent} does not exist"
            )
        kind = LogUnavailable if error.errno in _FULL else LogMismatch
        return kind(f"the event log {self._path} cannot be opened: {lock_path}: {error.strerror}")

    def note(self, content: bytes) -> None:
        """Replace the holder's note, as far as the disk allows."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, content, NOTE_AT)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# ---- whether it is in its place ------------------------------------------------------------------------

FileIdentity = tuple[int, int]
"""The device and inode of a file."""


def identities(path: Path) -> dict[Path, FileIdentity]:
    """Return the identities of the file and of its write-ahead log, if any. Call it right after opening."""
    real = path.resolve()  # SQLite names its own files after this one
    found = {}
    for file in (path, real.with_name(real.name + "-wal")):
        identity = _identity(file)
        if identity is not None:
            found[file] = identity
    return found


def identity_of_read(path: Path) -> dict[Path, FileIdentity]:
    """Return the identity of a file that is only read: its write-ahead log is created and deleted by its owner."""
    identity = _identity(path)
    return {} if identity is None else {path: identity}


def check_same_file(path: Path, opened: Mapping[Path, FileIdentity], *, read_only: bool = False) -> None:
    """Check that the paths still name the files that were opened. Raises LogMismatch, including how to fix it."""
    for file, identity in opened.items():
        found = _identity(file)
        if found != identity:
            what = "no longer exists" if found is None else "was replaced by another file"
            if read_only:
                raise LogMismatch(f"the event log {path} {what}: the file that was there before was read")
            raise LogMismatch(
                f"{file} {what} while the event log {path} was in use: nothing more is appended to it. Put"
                f" back the original files, {path.name} and {path.name}-wal together, or restore a backup, and restart"
            )


def _identity(file: Path) -> FileIdentity | None:
    """Return the identity of the file at a path; None without one."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
