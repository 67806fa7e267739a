"""Checks whether this process may use a SQLite file and the files next to it; if not, reports which one, and its owner.

SQLite's own error does not say which file cannot be opened, or why, so this check comes first.
"""

import errno
import os
import stat
from pathlib import Path

from muster.events.log.base import LogMismatch

_BESIDE = ("-wal", "-shm")
_CHANGE = "change that, or give another --log"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def refuse_unusable(path: Path, *, writes: bool, locks: bool) -> None:
    """Refuse a file that may not be read or, if this process `writes` it, that may not be written.

    The same applies to the files of write-ahead logging next to it; for a writer also to the lock file, if it `locks`,
    and to the folder, if one of them has to be created. Raises LogMismatch that lists the files at fault, with owner
    and mode.
    """
    real = _real(path)
    _refuse_closed_folder(path, real.parent)
    _refuse_other_kinds(path, real, locks=locks)
    if not writes:
        unreadable = [file for file in _read(real) if file.exists() and not os.access(file, os.R_OK)]
        if unreadable:
            raise LogMismatch(_refused(path, "read", unreadable))
        return
    _refuse_read_only(path, real)
    files = _files(real, locks=locks)
    to_blame = [file for file in files if file.exists() and not os.access(file, os.R_OK | os.W_OK)]
    is_one_to_be_made = not all(file.exists() for file in files)
    if is_one_to_be_made and real.parent.is_dir() and not os.access(real.parent, os.W_OK):
        to_blame.append(real.parent)
    if to_blame:
        raise LogMismatch(f"{_refused(path, 'written', to_blame)}; {_CHANGE}")


def _files(real: Path, *, locks: bool) -> list[Path]:
    """Return the file, and those next to it."""
    return [real, *(real.with_name(real.name + suffix) for suffix in (*_BESIDE, *([".lock"] if locks else [])))]


def _real(path: Path) -> Path:
    """Return the path with links resolved."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LogMismatch(f"the event log {path} cannot be opened: symbolic links lead to themselves") from error
    return path.resolve()


def _refuse_other_kinds(path: Path, real: Path, *, locks: bool) -> None:
    """Refuse existing paths that are not regular files."""
    if real.is_dir():
        raise LogMismatch(f"the event log {path} is a folder, not a file; name a file in it: {path / 'muster.db'}")
    for file in _files(real, locks=locks):
        if file.exists() and not file.is_file():
            kind = _KINDS.get(stat.S_IFMT(file.stat().st_mode), "of another kind")
            raise LogMismatch(
                f"the event log {path} cannot be opened: {'it' if file == real else file} is {kind}, not a file"
            )


def _refuse_read_only(path: Path, real: Path) -> None:
    """Refuse a file system that is mounted read-only, regardless of the files' permissions."""
    for each in (real, real.parent):
        if each.exists() and os.statvfs(each).f_flag & os.ST_RDONLY:
            raise LogMismatch(
                f"the event log {path} cannot be written: the file system of {each} is read-only; {_CHANGE}"
            )


def _read(real: Path) -> list[Path]:
    """Return the files that a reader needs: if the write-ahead log is empty, only the file itself."""
    _, wal, shm = _files(real, locks=False)
    return [real, wal, shm] if wal.exists() and wal.stat().st_size > 0 else [real]


def _refuse_closed_folder(path: Path, folder: Path) -> None:
    """Refuse a path through an existing folder that this process may not search."""
    for each in (*reversed(folder.parents), folder):
        if each.is_dir() and not os.access(each, os.X_OK):
            raise LogMismatch(f"{_refused(path, 'reached', [each])}; {_CHANGE}")


def _refused(path: Path, done: str, to_blame: list[Path]) -> str:
    whose = " and ".join(_whose(each, is_it=each == path.resolve()) for each in to_blame)
    return f"the event log {path} cannot be {done} by user {os.geteuid()}: {whose}"


def _whose(file: Path, *, is_it: bool) -> str:
    found = file.stat()
    return f"{'it' if is_it else file} is user {found.st_uid}'s, with mode {stat.filemode(found.st_mode)}"
