"""Whether a path still names the file that was opened under it.

A file that was deleted, moved away or replaced while it is open can still be written, and nobody would ever find those
appends. So it is checked, by name, together with its write-ahead log, where the newest appends are alone.
"""

from collections.abc import Mapping
from pathlib import Path

from muster.events.log.base import LogMismatch

Identity = tuple[int, int]
"""The device and inode of a file."""


def identities(path: Path) -> dict[Path, Identity]:
    """Return the identities of the file and of its write-ahead log, if any. Call it right after opening."""
    real = path.resolve()  # SQLite names its own files after this one
    found = {}
    for file in (path, real.with_name(real.name + "-wal")):
        identity = _identity(file)
        if identity is not None:
            found[file] = identity
    return found


def identity_of_read(path: Path) -> dict[Path, Identity]:
    """Return the identity of a file that is only read: its write-ahead log comes and goes with its owner."""
    identity = _identity(path)
    return {} if identity is None else {path: identity}


def check_same_file(path: Path, opened: Mapping[Path, Identity], *, read_only: bool = False) -> None:
    """Check that the paths still name the files that were opened. Raises LogMismatch, with the way out."""
    for file, identity in opened.items():
        found = _identity(file)
        if found != identity:
            what = "is gone" if found is None else "is another file now"
            if read_only:
                raise LogMismatch(f"the event log {path} {what}: what was read was the file that stood there before")
            raise LogMismatch(
                f"{file} {what}, while the event log {path} was in use: nothing more is appended to it. Put back what"
                f" stood there, {path.name} and {path.name}-wal together, or restore a backup, and start again"
            )


def _identity(file: Path) -> Identity | None:
    """Return the identity of the file at a path; None without one."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
