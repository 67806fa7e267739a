"""The one writer of an archive: its lock, its commits, and what is left over from those that were killed.

A commit is there when its manifest is. So the order is: the segments' files, whole and synced; then the manifest, under
a temporary name; then its name, which only one can take; then what it gave up is removed. Whatever comes between two of
these steps, readers see the commit before, or this one.

The lock keeps a second writer out with a clear message. Where the file system has none that works between machines, the
manifest's number does: the second one's commit fails, and its files are leftovers. Leftovers may be the files of a
writer that is not dead, and about to commit them. So before they are removed the number that it wants is taken, by a
commit of nothing: all that was there before this one can no longer be committed. No name is given to two files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from muster.events.log.base import LogDamaged, LogMismatch, OwnersMarks
from muster.events.log.wall_clock import wall_clock_ms
from muster.replay.archive import manifest as manifests
from muster.replay.archive.files import DISK, TEMPORARY, ArchiveBusy, Disk, NewFile, locked, said
from muster.replay.archive.manifest import FORMAT, Archived, ExpiredRecords, Live, Manifest, State
from muster.replay.archive.segment import Segment, is_path

LOCK: Final = "_lock"
LINGER_MS: Final = 60 * 60 * 1000
"""How long the files that compaction replaced are kept, for those who are reading them."""

_FULL_AFTER: Final = 64
_FULL_AFTER_COMMITS: Final = 256
"""All is named again after as many new segments as there are, and at least so many: what manifests take grows with the
segments, not with their square. After so many commits it is in any case: readers open no more manifests than that."""

_TEMPORARY_NAME: Final = re.compile("[0-9a-f]{32}")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to be made."""

    action: Literal["archive", "compact", "expire"]
    added: Sequence[Segment] = ()
    replaced: Sequence[str] = ()
    expired: Sequence[ExpiredRecords] = ()
    marks: Mapping[int, OwnersMarks] = {}


class ArchiveWriter:
    """The right to commit. Use `writing`."""

    def __init__(self, root: Path, state: State | None, disk: Disk, now_ms: int | None) -> None:
        self.root = root
        self.disk = disk
        self._state = state
        self._now_ms = now_ms
        self._given_up: set[str] = set()

    @property
    def now_ms(self) -> int:
        """The wall clock, or the time that was given in its place."""
        return wall_clock_ms() if self._now_ms is None else self._now_ms

    @property
    def state(self) -> State:
        """All that there is. Raises LogMismatch for an archive in which nothing was committed."""
        if self._state is None:
            raise LogMismatch(f"the archive {self.root} is empty: nothing was committed yet")
        return self._state

    def begin(self, log: Archived) -> State:
        """Take the archive for that log; a new one is its from now on. Raises LogMismatch for another log's."""
        if self._state is None:
            nothing = Live(segments=(), replaced={}, expired=())
            first = Manifest(
                format=FORMAT,
                number=1,
                previous="",
                at_ms=self.now_ms,
                action="archive",
                log=log,
                next_offsets=dict.fromkeys(range(log.partitions), 0),
                live=nothing,
            )
            self._commit(first)
        theirs = self.state.log
        if theirs.identity != log.identity:
            raise LogMismatch(
                f"{self.root} is the archive of another log: of {theirs.location} ({theirs.identity}), and this is"
                f" {log.location} ({log.identity}). A topic that was deleted and made anew is another one, too. Give"
                " --to another folder"
            )
        if theirs.partitions != log.partitions:
            raise LogMismatch(
                f"{self.root} is an archive of {theirs.partitions} partitions, and {log.location} has {log.partitions}"
                " now: groups have moved between partitions. Give --to another folder"
            )
        return self.state

    def commit(self, change: Change) -> State:
        """Commit. Raises ArchiveBusy if another writer has committed meanwhile, LogUnavailable if there is no room."""
        state = self.state
        next_offsets = dict(state.next_offsets)
        if change.action == "archive":
            for segment in change.added:
                next_offsets[segment.partition] = max(next_offsets[segment.partition], segment.end)
        number = state.number + 1
        manifest = Manifest(
            format=FORMAT,
            number=number,
            previous=state.sha256,
            at_ms=self.now_ms,
            action=change.action,
            log=state.log,
            next_offsets=next_offsets,
            marks={**state.marks, **change.marks},
            added=tuple(change.added),
            replaced=tuple(change.replaced),
            expired=tuple(change.expired),
        )
        before = len(state.segments) - state.changes_since
        is_due = state.changes_since + len(change.added) >= max(_FULL_AFTER, before)
        if change.action != "archive" or is_due or number - state.full >= _FULL_AFTER_COMMITS:
            live = manifests.changed(state, manifest)
            kept = {path: at for path, at in live.replaced.items() if at + LINGER_MS > self.now_ms}
            manifest = msgspec.structs.replace(manifest, live=msgspec.structs.replace(live, replaced=kept))
        return self._commit(manifest)

    def _commit(self, manifest: Manifest) -> State:
        encoded = manifests.encode(manifest)
        self.disk.make_folder(self.root / manifests.FOLDER)
        file = NewFile(self.root, self.disk)
        try:
            file.write(encoded)
            file.keep_first(manifests.path_of(self.root, manifest.number))
        except FileExistsError:
            file.abandon()
            raise ArchiveBusy(
                f"another process has committed to {self.root} meanwhile; what this one has written since is left out"
            ) from None
        before = set() if self._state is None else self._state.files
        self._state = manifests.after(self._state, manifest, manifests.sha256_of(encoded))
        self._given_up |= before - self._state.files
        return self._state

    def remove_leftovers(self) -> None:
        """Remove the files that no manifest names, once nobody can commit them any more. Raises ArchiveBusy.

        What has another name than an archive's files is somebody else's, and stays.
        """
        for path in (self.root / TEMPORARY).glob("*"):
            if _TEMPORARY_NAME.fullmatch(path.name):
                self.disk.remove(path)
        found = {"/".join(path.parts[-3:]) for path in self.root.glob("day=*/partition-*/*")}
        kept = self._state.files if self._state is not None else set()
        leftovers = {path for path in found - kept if is_path(path)}
        if leftovers:
            self.commit(Change(action="archive"))
            self._remove(leftovers)

    def remove_given_up(self) -> int:
        """Remove the files that the commits since have given up; returns how many there were."""
        gone, self._given_up = self._given_up, set()
        self._remove(gone)
        return len(gone)

    def _remove(self, paths: Set[str]) -> None:
        for path in paths:
            self.disk.remove(self.root / path)
        folders = {(self.root / path).parent for path in paths}
        for folder in (*folders, *{each.parent for each in folders}):
            self.disk.remove_folder(folder)

    def remove_old_manifests(self) -> None:
        """Remove those before the last one that names all there is, the oldest first, so that none is missing."""
        for number in manifests.numbers(self.root):
            if number < self.state.full:
                self.disk.remove(manifests.path_of(self.root, number))


@contextmanager
def writing(root: Path, *, disk: Disk = DISK, now_ms: int | None = None, make: bool = False) -> Iterator[ArchiveWriter]:
    """Write the archive, alone. `make`: it may be a new one. Raises ArchiveBusy, LogMissing, LogMismatch, LogDamaged.

    What the file system refuses is LogUnavailable if there is no room, else LogMismatch.
    """
    if not make:
        manifests.opened(root)
    try:
        _refuse_somebody_elses(root)
        disk.make_folder(root)
        with locked(root / LOCK, partial(_busy, root)):
            state = manifests.load(root)
            if state is None and any(root.glob("day=*")):
                raise LogDamaged(f"{root / manifests.FOLDER} is empty, and there are segments. Restore it from a copy")
            contradiction = next(state.contradictions(), None) if state is not None else None
            if contradiction is not None:
                raise LogDamaged(f"{root}: {contradiction}. Restore its manifests from a copy; fleet verify tells more")
            writer = ArchiveWriter(root, state, disk, now_ms)
            writer.remove_leftovers()
            yield writer
    except OSError as error:
        raise said(error, root) from error


def _busy(root: Path, holder: str) -> ArchiveBusy:
    return ArchiveBusy(f"{root} is written by another process ({holder}); it has one writer at a time")


def _refuse_somebody_elses(root: Path) -> None:
    """Raise LogMismatch for a folder with anything in it that is no archive: leftovers are removed there."""
    if root.is_dir() and not (root / manifests.FOLDER).is_dir():
        others = sorted(path.name for path in root.iterdir() if path.name not in {LOCK, TEMPORARY})
        if others:
            raise LogMismatch(f"{root} is no archive, and not empty: it has {others[0]!r}. Give another folder")
