"""Merges small segments of one day and partition: the same records in fewer files.

Replaced files are kept for an hour for current readers. Manifests that are no longer needed are removed, too.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from muster.events.log.base import LogDamaged
from muster.replay.archive import files
from muster.replay.archive.commits import LINGER_MS, ArchiveWriter, Change, writing
from muster.replay.archive.files import DISK, Disk
from muster.replay.archive.manifest import State
from muster.replay.archive.segment import Segment, SegmentWriter, read_batches
from muster.replay.archive.writer import SEGMENT_BYTES_MAX
from muster.replay.progress import Watch

COMMIT_FILES: Final = 1_000
"""How many files are replaced before each commit: a killed run has to repeat no more than this."""


class CompactedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the number of files replaced and added. `removed`: files that earlier runs replaced."""

    replaced: int
    added: int
    removed: int


def compact(root: Path, *, watch: Watch, disk: Disk = DISK, now_ms: int | None = None) -> CompactedArchive:
    """Merge small segments. Raises ArchiveBusy, LogMismatch, LogDamaged; LogUnavailable for a full disk."""
    with writing(root, disk=disk, now_ms=now_ms) as writer:
        runs = list(runs_of(writer.state))
        total, replaced, added = sum(map(len, runs)), 0, 0
        change: tuple[list[Segment], list[str]] = ([], [])
        for run in runs:
            change[0].append(_joined(writer, run))
            change[1].extend(segment.path for segment in run)
            replaced, added = replaced + len(run), added + 1
            watch(replaced, total)
            if len(change[1]) >= COMMIT_FILES:
                writer.commit(Change(action="compact", added=change[0], replaced=change[1]))
                change = ([], [])
        is_over = any(at + LINGER_MS <= writer.now_ms for at in writer.state.replaced.values())
        if change[0] or is_over:
            writer.commit(Change(action="compact", added=change[0], replaced=change[1]))
        removed = writer.remove_given_up()
        writer.remove_old_manifests()
        return CompactedArchive(replaced=replaced, added=added, removed=removed)


def runs_of(state: State) -> Iterator[Sequence[Segment]]:
    """Yield runs of adjacent segments to merge: of one partition and day, together within the maximum size."""
    for partition in range(state.log.partitions):
        run: list[Segment] = []
        for segment in state.of_partition(partition):
            size = sum(each.bytes for each in run) + segment.bytes
            if run and (segment.day != run[0].day or segment.start != run[-1].end or size > SEGMENT_BYTES_MAX):
                if len(run) > 1:
                    yield run
                run = []
            run.append(segment)
        if len(run) > 1:
            yield run


def _joined(writer: ArchiveWriter, run: Sequence[Segment]) -> Segment:
    """Write the records of the segments into one, if each segment matches its manifest, so that altered files do not
    spread.
    """
    joined = SegmentWriter(writer.root, run[0].partition, run[0].day, writer.disk)
    with joined:
        records = 0
        for segment in run:
            path = writer.root / segment.path
            if not path.exists() or files.sha256_of(path) != segment.sha256:
                raise LogDamaged(f"{path} is missing or was altered; fleet verify tells what else. Nothing was joined")
            for batch in read_batches(path, segment):
                joined.write(batch)
                records += batch.num_rows
        if records != sum(segment.records for segment in run):
            raise LogDamaged(f"the segments from {run[0].path} on have {records} records, and manifests name others")
        return joined.finish(start=run[0].start, end=run[-1].end)
