"""The one writer of an archive: its lock, its commits, and the leftovers of killed writers.

A commit exists once its manifest does. So the order is: write and sync the segments' files; write the manifest under a
temporary name; link it to its final name, which only one writer can take; remove the files that the commit replaced.
Whatever happens between two of these steps, readers see either the previous commit or this one.

The lock keeps a second writer out with a clear message. On file systems whose locks do not work between machines, the
manifest's number keeps it out: the second writer's commit fails, and its files are leftovers. Leftovers may belong to a
writer that is still alive and about to commit them. So before they are removed, an empty commit takes the number that
this writer would need: then they can no longer be committed. File names are never reused.
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
from muster.replay.archive.deleted import DeletedRecords
from muster.replay.archive.files import DISK, TEMPORARY, ArchiveBusy, Disk, NewFile, locked, said
from muster.replay.archive.manifest import FORMAT, Archived, ExpiredRecords, Live, Manifest, State
from muster.replay.archive.segment import Segment, is_path

LOCK: Final = "_lock"
LINGER_MS: Final = 60 * 60 * 1000
"""How long files that compaction replaced are kept for current readers."""

_FULL_AFTER: Final = 64
_FULL_AFTER_COMMITS: Final = 256
"""All segments are listed again after as many new ones as the last list had (at least _FULL_AFTER), so the size of
manifests grows with the number of segments, not with its square; and after _FULL_AFTER_COMMITS in any case, which
limits the number of manifests that readers open."""

_TEMPORARY_NAME: Final = re.compile("[0-9a-f]{32}")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to be made."""

    action: Literal["archive", "compact", "expire"]
    added: Sequence[Segment] = ()
    replaced: Sequence[str] = ()
    expired: Sequence[ExpiredRecords] = ()
    deleted: Sequence[DeletedRecords] = ()
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
        """The wall clock, or the fixed time that replaces it."""
        return wall_clock_ms() if self._now_ms is None else self._now_ms

    @property
    def state(self) -> State:
        """The archive's state. Raises LogMismatch if nothing was committed yet."""
        if self._state is None:
            raise LogMismatch(f"the archive {self.root} is empty: nothing was committed yet")
        return self._state

    def begin(self, log: Archived) -> State:
        """Check that the archive belongs to this log, or make a new one belong to it. Raises LogMismatch if it is
        another log's.
        """
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
                f" {log.location} ({log.identity}). A topic that was deleted and recreated is another one, too. Give"
                " --to another folder"
            )
        if theirs.partitions != log.partitions:
            raise LogMismatch(
                f"{self.root} is an archive of {theirs.partitions} partitions, and {log.location} has {log.partitions}"
                " now: groups have moved between partitions. Give --to another folder"
            )
        return self.state

    def commit(self, change: Change) -> State:
        """Commit. Raises ArchiveBusy if another writer has committed meanwhile, LogUnavailable if the disk is full."""
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
            deleted=tuple(change.deleted),
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
        """Remove files that no manifest names, after making sure that they can no longer be committed. Raises
        ArchiveBusy.

        Files without the name of an archive file are foreign, and are left alone.
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
        """Remove the files that commits have dropped since the last call; return their number."""
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
        """Remove manifests before the last one with `live`, oldest first, so that there is never a gap."""
        for number in manifests.numbers(self.root):
            if number < self.state.full:
                self.disk.remove(manifests.path_of(self.root, number))


@contextmanager
def writing(root: Path, *, disk: Disk = DISK, now_ms: int | None = None, make: bool = False) -> Iterator[ArchiveWriter]:
    """Open the archive for writing, exclusively. `make`: create it if missing. Raises ArchiveBusy, LogMissing,
    LogMismatch, LogDamaged.

    File system errors become LogUnavailable if the disk is full, else LogMismatch.
    """
    if not make:
        manifests.opened(root)
    try:
        _refuse_foreign(root)
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


def _refuse_foreign(root: Path) -> None:
    """Raise LogMismatch for a non-empty folder that is not an archive, since leftovers would be removed there."""
    if root.is_dir() and not (root / manifests.FOLDER).is_dir():
        others = sorted(path.name for path in root.iterdir() if path.name not in {LOCK, TEMPORARY})
        if others:
            raise LogMismatch(f"{root} is no archive, and not empty: it has {others[0]!r}. Give another folder")
