"""Whether this process may use a SQLite file, and the files that stand beside it; if not, whose they are.

What belongs here: asking before SQLite does, which says that it cannot open a file, and not which one, nor why. What it
must not know: what is in the files.
"""

import os
import stat
from pathlib import Path

from muster.events.log.base import LogMismatch

_BESIDE = ("-wal", "-shm")


def refuse_unusable(path: Path, *, writes: bool, locks: bool) -> None:
    """Refuse a file that may not be read or, if this process `writes` it, that may not be written.

    The same for the files of write-ahead logging beside it; for who writes also for that of the lock, if it `locks`,
    and for the folder, if one of them has to be made. Raises LogMismatch with each that is to blame: its owner, and its
    mode.
    """
    real = path.resolve()
    _refuse_closed_folder(path, real.parent)
    if not writes:
        unreadable = [file for file in _read(real) if file.exists() and not os.access(file, os.R_OK)]
        if unreadable:
            raise LogMismatch(_refused(path, "read", unreadable))
        return
    files = [real, *(real.with_name(real.name + suffix) for suffix in (*_BESIDE, *([".lock"] if locks else [])))]
    to_blame = [file for file in files if file.exists() and not os.access(file, os.R_OK | os.W_OK)]
    is_one_to_be_made = not all(file.exists() for file in files)
    if is_one_to_be_made and real.parent.is_dir() and not os.access(real.parent, os.W_OK):
        to_blame.append(real.parent)
    if to_blame:
        raise LogMismatch(
            f"{_refused(path, 'written', to_blame)}, or its file system can only be read; change that, or give another"
            " --log"
        )


def _read(real: Path) -> list[Path]:
    """Return the files that a reader needs: the file alone, if the write-ahead log is empty."""
    wal, shm = (real.with_name(real.name + suffix) for suffix in _BESIDE)
    return [real, wal, shm] if wal.exists() and wal.stat().st_size > 0 else [real]


def _refuse_closed_folder(path: Path, folder: Path) -> None:
    """Refuse a path through a folder in which this process may look for nothing; one that is missing is none."""
    for each in (*reversed(folder.parents), folder):
        if each.is_dir() and not os.access(each, os.X_OK):
            raise LogMismatch(f"{_refused(path, 'reached', [each])}; change that, or give another --log")


def _refused(path: Path, done: str, to_blame: list[Path]) -> str:
    whose = " and ".join(_whose(each, is_it=each == path.resolve()) for each in to_blame)
    return f"the event log {path} cannot be {done} by user {os.geteuid()}: {whose}"


def _whose(file: Path, *, is_it: bool) -> str:
    found = file.stat()
    return f"{'it' if is_it else file} is user {found.st_uid}'s, with mode {stat.filemode(found.st_mode)}"
