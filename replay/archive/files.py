"""File operations that make a committed archive survive a crash: everything is synced before it is relied on.

Every step after which a crash matters is a method of Disk, so that tests can simulate a crash between any two. Knows
nothing of segments and manifests.
"""

import errno
import fcntl
import hashlib
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from muster.events.log.base import LogError, LogMismatch, LogUnavailable

TEMPORARY: Final = "_tmp"
"""The folder in which files are written before they get their names. Spark and the globs of DuckDB ignore it."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors for a full disk, an exceeded quota, and a file size limit."""

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class ArchiveBusy(LogError):
    """Another process is writing the archive; the message names it if possible."""


class Disk:
    """The steps of writing an archive. Each raises OSError; `said` turns that into an error for users."""

    def make_folder(self, path: Path) -> None:
        """Create the folder and its parents durably."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync_folder(each.parent)

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing, unbuffered."""
        return path.open("xb", buffering=0)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Write all bytes, even if one call writes only some of them."""
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]

    def sync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def rename(self, path: Path, to: Path) -> None:
        path.replace(to)

    def link(self, path: Path, to: Path) -> None:
        """Give the file a second name. Raises FileExistsError if the name is taken: only one writer can succeed."""
        try:
            os.link(path, to)
        except FileExistsError:
            if not path.samefile(to):  # else NFS repeated the request, because the first response was lost
                raise
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise LogMismatch(
                    f"{to.parent}: its file system has no hard links ({error.strerror}), without which two writers"
                    " could overwrite each other's commits; use another one"
                ) from error
            raise

    def sync_folder(self, path: Path) -> None:
        """Make the names in the folder durable."""
        sync_path(path)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove the folder, unless it is not empty or a link to a folder elsewhere."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                raise


DISK: Final = Disk()


class NewFile:
    """A file that is being written under a temporary name. Tracks its size and SHA-256."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._disk = disk
        self._sha256 = hashlib.sha256()
        self.bytes = 0
        disk.make_folder(root / TEMPORARY)
        self.path = root / TEMPORARY / uuid.uuid4().hex
        self._file = disk.create(self.path)

    closed = False
    """Always False; pyarrow requires this attribute."""

    _is_discarded = False

    def discard(self) -> None:
        """Ignore everything that is written from now on."""
        self._is_discarded = True

    def write(self, data: bytes | memoryview) -> int:
        """Append; return the number of bytes."""
        view = memoryview(data)
        if self._is_discarded:
            return view.nbytes
        self._sha256.update(view)
        self._disk.write(self._file, view)
        self.bytes += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: writes are unbuffered."""

    def tell(self) -> int:
        return self.bytes

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything written so far, in hexadecimal."""
        return self._sha256.hexdigest()

    def keep(self, to: Path) -> None:
        """Give the file its name atomically, replacing any other file of that name."""
        self._disk.sync(self._file)
        self._file.close()
        self._disk.make_folder(to.parent)
        self._disk.rename(self.path, to)
        self._disk.sync_folder(to.parent)

    def keep_first(self, to: Path) -> None:
        """Give the file a name that is not taken. Raises FileExistsError."""
        self._disk.sync(self._file)
        self._file.close()
        self._disk.link(self.path, to)
        self._disk.sync_folder(to.parent)
        self._disk.remove(self.path)

    def abandon(self) -> None:
        """Remove the file, unless it was given a name."""
        self._file.close()
        self._disk.remove(self.path)


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, busy: Callable[[str], Exception]) -> Iterator[None]:
    """Hold a lock, if the file system supports locks. If it is taken, raises `busy` of the current holder's name.

    The file is kept, with the name of its last holder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1_000, 0).decode(errors="replace").strip()
            raise busy(holder or "which did not say who it is") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{socket.gethostname()}:{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # which unlocks it


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def said(error: OSError, root: Path) -> Exception:
    """Convert an OSError for users: a full disk is retryable, other errors are not."""
    if error.errno == errno.ENOENT:
        return ArchiveBusy(
            f"{error.filename or root} is gone while it was written: another process writes the archive {root}, or"
            " tidies up there; what was committed stands"
        )
    if error.errno in NO_ROOM:
        return LogUnavailable(
            f"there is no room at {root} ({error.strerror}); what was committed stands, and the next run goes on there"
        )
    return LogMismatch(f"the archive {root} cannot be used: {error.strerror or error} ({error.filename or root})")
