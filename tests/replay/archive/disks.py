"""Disks that end the process at a given step, lose data that was not synced, or are full."""

import errno
import os
from pathlib import Path
from typing import BinaryIO

from muster.replay.archive.files import Disk


class Killed(BaseException):
    """The process is dead: the exception is not caught, and the disk does nothing any more."""


class CrashingDisk(Disk):
    """Ends the process before the step with this number; without one, it counts the steps. Nothing is really synced.

    `loses_power`: unsynced data is lost, too: files' contents and their names.
    """

    def __init__(self, crash_at: int | None = None, *, loses_power: bool = False) -> None:
        self._crash_at, self._loses_power = crash_at, loses_power
        self._unsynced_files: dict[BinaryIO, Path] = {}
        self._unsynced_names: list[tuple[Path, Path, bool]] = []
        self.steps = 0

    def _step(self) -> None:
        if self._crash_at is not None and self.steps >= self._crash_at:
            if self.steps == self._crash_at and self._loses_power:
                self._lose()
            self.steps += 1
            raise Killed
        self.steps += 1

    def _lose(self) -> None:
        for path in self._unsynced_files.values():
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        for path, to, was_moved in reversed(self._unsynced_names):
            if was_moved and to.exists():
                to.rename(path)
            else:
                to.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        self._step()
        super().make_folder(path)

    def create(self, path: Path) -> BinaryIO:
        self._step()
        file = super().create(path)
        self._unsynced_files[file] = path
        return file

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        self._step()
        super().write(file, data)

    def sync(self, file: BinaryIO) -> None:
        self._step()  # no real sync: a test would wait for the disk a thousand times
        self._unsynced_files.pop(file, None)

    def rename(self, path: Path, to: Path) -> None:
        self._step()
        super().rename(path, to)
        self._unsynced_files = {file: to if name == path else name for file, name in self._unsynced_files.items()}
        self._unsynced_names.append((path, to, True))

    def link(self, path: Path, to: Path) -> None:
        self._step()
        super().link(path, to)
        self._unsynced_names.append((path, to, False))

    def sync_folder(self, path: Path) -> None:
        self._step()
        self._unsynced_names = [each for each in self._unsynced_names if each[1].parent != path]

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._step()
        super().remove_folder(path)


class FullDisk(Disk):
    """Has room for this many more bytes."""

    def __init__(self, room: int) -> None:
        self._room = room

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, data)
