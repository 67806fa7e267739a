"""Whether a path still names the file that was opened under it.

A file that was deleted, moved away or replaced while it is open can still be written, and nobody would ever find what
was written. So it is looked at, by name, together with its write-ahead log, where the newest appends stand alone.
"""

from collections.abc import Mapping
from pathlib import Path

from muster.events.log.base import LogMismatch

Identity = tuple[int, int]
"""Device and inode."""


def identities(path: Path) -> dict[Path, Identity]:
    """Those of the file and of its write-ahead log, if it has one. Call it right after opening."""
    real = path.resolve()  # SQLite names its own files after this one
    found = {}
    for file in (path, real.with_name(real.name + "-wal")):
        identity = _identity(file)
        if identity is not None:
            found[file] = identity
    return found


def check_same_file(path: Path, opened: Mapping[Path, Identity]) -> None:
    """Raises LogMismatch, with the way out."""
    for file, identity in opened.items():
        found = _identity(file)
        if found != identity:
            what = "is gone" if found is None else "is another file now"
            raise LogMismatch(
                f"{file} {what}, while the event log {path} was in use: nothing more is appended to it. Put back what"
                f" stood there, {path.name} and {path.name}-wal together, or restore a backup, and start again"
            )


def _identity(file: Path) -> Identity | None:
    """None when there is no such file."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
