"""Manifests: the authoritative list of an archive's segments. A file that no manifest names is a leftover.

    manifests/000000000042.json

There is one per commit, numbered from 1 without gaps. Each contains the SHA-256 of the one before it and of every
segment that it adds, so altering the past means rewriting everything after it. A manifest names the segments that its
commit added. From time to time, and whenever segments were removed, it lists all of them (`live`), so that readers need
not begin with the first manifest. `compact` removes manifests older than the last such list.

This module reads and writes manifests and computes the state that they add up to; commits.py makes the commits.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from muster.events.log.base import LogDamaged, LogMismatch, LogMissing, OwnersMarks
from muster.replay.archive.deleted import DeletedRecords, with_deleted
from muster.replay.archive.segment import PATH, Segment

FOLDER: Final = "manifests"
FORMAT: Final = 1
"""The archive's format. A version of Muster reads formats up to its own."""

BYTES_MAX: Final = 1024 * 1024 * 1024
"""The largest manifest, since it is read into memory at once: some millions of segments."""

_READ_AGAIN_TIMES: Final = 10
"""How often the manifests are listed again because `compact` has removed one in the meantime."""


_NAME: Final = re.compile(r"([0-9]{12})\.json")
SegmentPath = Annotated[str, msgspec.Meta(pattern=PATH)]


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """The archived log. `identity` and `partitions` never change; `location` is informational."""

    identity: str
    location: str
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class ExpiredRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The expired records of a partition: those before offset `end`, of days before the day `before`."""

    partition: int
    end: int
    records: int
    before: str


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The full state after a commit. `replaced`: files that this manifest no longer names, and when each was replaced
    (wall clock, ms).
    """

    segments: tuple[Segment, ...]
    replaced: Mapping[SegmentPath, int]
    expired: tuple[ExpiredRecords, ...]
    deleted: tuple[DeletedRecords, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit. `previous`: the SHA-256 of the manifest before it, empty in the first one. `at_ms`: wall clock.

    `next_offsets` and `marks`: of all partitions, after the commit.
    """

    format: int
    number: int
    previous: str
    at_ms: int
    action: Literal["archive", "compact", "expire"]
    log: Archived
    next_offsets: Mapping[int, int]
    marks: Mapping[int, OwnersMarks] = {}
    added: tuple[Segment, ...] = ()
    replaced: tuple[SegmentPath, ...] = ()
    expired: tuple[ExpiredRecords, ...] = ()
    deleted: tuple[DeletedRecords, ...] = ()
    live: Live | None = None

    def __post_init__(self) -> None:
        """Check that only existing partitions are named. Raises ValueError."""
        partitions = range(self.log.partitions)
        live = self.live or Live(segments=(), replaced={}, expired=())
        parts = (self.added, self.expired, self.deleted, live.segments, live.expired, live.deleted)
        named = {each.partition for part in parts for each in part} | set(self.marks)
        if set(self.next_offsets) != set(partitions):
            raise ValueError(f"next_offsets are not those of {len(partitions)} partitions")
        if wrong := named - set(partitions):
            raise ValueError(f"the log has {len(partitions)} partitions, and no partition {min(wrong)}")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all manifests up to one, whose `number` and `sha256` it has. `segments`: by path.

    `full`: the number of the last manifest with `live`; `changes_since`: the number of segments added after it.
    """

    number: int
    sha256: str
    log: Archived
    next_offsets: Mapping[int, int]
    marks: Mapping[int, OwnersMarks]
    segments: Mapping[str, Segment]
    replaced: Mapping[str, int]
    expired: Mapping[int, ExpiredRecords]
    deleted: tuple[DeletedRecords, ...]
    full: int
    changes_since: int

    def of_partition(self, partition: int) -> list[Segment]:
        """The partition's segments in offset order."""
        return sorted((s for s in self.segments.values() if s.partition == partition), key=lambda s: s.start)

    def contradictions(self) -> Iterator[str]:
        """Describe inconsistencies: each partition's segments must follow each other up to its end."""
        positions = dict.fromkeys(range(self.log.partitions), 0)
        positions |= {partition: expired.end for partition, expired in self.expired.items()}
        for segment in sorted(self.segments.values(), key=lambda s: (s.partition, s.start)):
            partition, position = segment.partition, positions[segment.partition]
            if segment.start != position:
                what = "missing" if segment.start > position else "there twice"
                yield f"partition {partition}: the offsets {position} to {segment.start} are {what} in manifests"
            positions[partition] = segment.end
        for partition, position in positions.items():
            end = self.next_offset(partition)
            if position != end:
                yield f"partition {partition}: the segments end at {position}, and manifests say {end}"

    def next_offset(self, partition: int) -> int:
        """The offset up to which the partition was archived (exclusive)."""
        return self.next_offsets.get(partition, 0)

    @property
    def files(self) -> set[str]:
        """The paths of files to keep: those that are named, and replaced ones that may still be read."""
        return {*self.segments, *self.replaced}


def path_of(root: Path, number: int) -> Path:
    """The file of a manifest."""
    return root / FOLDER / f"{number:012d}.json"


def encode(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def sha256_of(encoded: bytes) -> str:
    """The SHA-256 that the next manifest contains."""
    return hashlib.sha256(encoded).hexdigest()


def read(root: Path, number: int) -> tuple[Manifest, bytes]:
    """Read a manifest and its bytes. Raises LogDamaged, LogMismatch for a newer format, FileNotFoundError."""
    path = path_of(root, number)
    try:
        if path.stat().st_size > BYTES_MAX:
            raise LogDamaged(f"{path} has {path.stat().st_size} bytes, and no manifest has more than {BYTES_MAX}")
        encoded = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LogMismatch(f"{path} cannot be read: {error.strerror}") from error
    try:
        form = msgspec.json.decode(encoded, type=_Form).format
        if form > FORMAT:
            raise LogMismatch(f"{path} has format {form}, and this version knows {FORMAT}: use a newer Muster")
        manifest = msgspec.json.decode(encoded, type=Manifest)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"{path} is no manifest: {error}. Restore it from a copy of the archive") from error
    if manifest.number != number:
        raise LogDamaged(f"{path} is manifest {manifest.number} under another name. Restore it from a copy")
    return manifest, encoded


class _Form(msgspec.Struct, frozen=True):
    format: int


def numbers(root: Path) -> list[int]:
    """The numbers of the existing manifests, in order. Raises LogMismatch."""
    try:
        names = [path.name for path in (root / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LogMismatch(f"{root / FOLDER} cannot be read: {error.strerror}") from error
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)) is not None)


def load(root: Path) -> State | None:
    """Read the archive's state; None if nothing was ever committed. Raises LogDamaged and LogMismatch."""
    for _ in range(_READ_AGAIN_TIMES):
        known = numbers(root)
        if not known:
            return None
        try:
            return _added_up(root, known)
        except FileNotFoundError as error:
            if set(known) <= set(numbers(root)):
                raise LogDamaged(f"{error.filename} leads nowhere. Restore it from a copy of the archive") from error
    raise LogDamaged(f"{root}: its manifests were removed again and again while they were read")


def opened(root: Path) -> State:
    """Read the archive's state. Raises LogMissing, LogDamaged, LogMismatch."""
    try:
        is_archive = (root / FOLDER).is_dir()
    except OSError as error:
        raise LogMismatch(f"the archive {root} cannot be read: {error.strerror}") from error
    if not is_archive:
        raise LogMissing(f"{root} is no archive: it has no folder {FOLDER}")
    state = load(root)
    if state is None:
        raise LogMissing(f"the archive {root} is empty: nothing was committed yet")
    return state


def _added_up(root: Path, known: Iterable[int]) -> State:
    """Add up the manifests, starting at the last one that lists all segments."""
    later: list[tuple[Manifest, bytes]] = []
    expected: int | None = None
    for number in sorted(known, reverse=True):
        if expected is not None and number != expected:
            raise LogDamaged(f"{path_of(root, expected)} is missing. Restore it from a copy of the archive")
        later.append(read(root, number))
        if later[-1][0].live is not None:
            break
        expected = number - 1
    if later[-1][0].live is None:
        raise LogDamaged(f"{path_of(root, later[-1][0].number - 1)} is missing. Restore it from a copy of the archive")
    whole, encoded = later.pop()
    state = after(None, whole, sha256_of(encoded))
    segments, deleted, sha256 = dict(state.segments), state.deleted, state.sha256
    for manifest, encoded in reversed(later):
        if manifest.previous != sha256:
            raise LogDamaged(broken_chain(root, manifest.number))
        segments.update((each.path, each) for each in manifest.added)
        deleted = with_deleted(deleted, manifest.deleted)
        sha256 = sha256_of(encoded)
    last = later[0][0] if later else whole
    return msgspec.structs.replace(
        state,
        number=last.number,
        sha256=sha256,
        next_offsets=last.next_offsets,
        marks=last.marks,
        segments=segments,
        deleted=deleted,
        changes_since=len(segments) - len(state.segments),
    )


def broken_chain(root: Path, number: int) -> str:
    """The message for a manifest that does not follow the one before it."""
    before, here = path_of(root, number - 1), path_of(root, number)
    return f"{here} does not follow {before.name}: one of them was altered. Restore them from a copy of the archive"


def after(state: State | None, manifest: Manifest, sha256: str) -> State:
    """The state after a commit. `state`: the one before, not needed if the manifest has `live`."""
    if manifest.live is not None:
        live, full, changes = manifest.live, manifest.number, 0
    else:
        assert state is not None, "the first manifest has all"
        live, full, changes = changed(state, manifest), state.full, state.changes_since + len(manifest.added)
    return State(
        number=manifest.number,
        sha256=sha256,
        log=manifest.log,
        next_offsets=manifest.next_offsets,
        marks=manifest.marks,
        segments={each.path: each for each in live.segments},
        replaced=live.replaced,
        expired={each.partition: each for each in live.expired},
        deleted=live.deleted,
        full=full,
        changes_since=changes,
    )


def changed(state: State, manifest: Manifest) -> Live:
    """The full state after applying a manifest's changes."""
    gone = set(manifest.replaced)
    replaced = {**state.replaced, **dict.fromkeys(manifest.replaced, manifest.at_ms)}
    expired = {**state.expired, **{each.partition: each for each in manifest.expired}}
    if manifest.expired:
        before = max(each.before for each in manifest.expired)
        gone |= {path for path, segment in state.segments.items() if segment.day < before}
        replaced = {path: at for path, at in replaced.items() if path.split("/")[0] >= f"day={before}"}
    kept = (segment for path, segment in state.segments.items() if path not in gone)
    deleted = (
        each
        for each in with_deleted(state.deleted, manifest.deleted)
        if each.partition not in expired or each.end > expired[each.partition].end
    )
    return Live(
        segments=(*kept, *manifest.added),
        replaced=replaced,
        expired=tuple(expired.values()),
        deleted=tuple(deleted),
    )
