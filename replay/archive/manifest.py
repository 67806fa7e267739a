"""Manifests: which segments an archive has. They are the only truth; a file that none names is a leftover.

    manifests/000000000042.json

One for each commit, numbered without gaps from 1 on. Each has the SHA-256 of the one before it, and of each segment
that it adds; so whoever changes anything of the past would have to write all that came after it anew. A manifest names
the segments that its commit has added; now and then, and always when anything was taken away, it names all that there
is (`live`), so that nobody has to read them from the first one on. `compact` removes those that are older than that.

What belongs here: manifests as values and files, and what they add up to. Commits are made in commits.py.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from muster.events.log.base import LogDamaged, LogMismatch, LogMissing, OwnersMarks
from muster.replay.archive.segment import PATH, Segment

FOLDER: Final = "manifests"
FORMAT: Final = 1
"""The archive's format. A version reads those up to its own."""

BYTES_MAX: Final = 1024 * 1024 * 1024
"""The limit of a manifest, which is read in one piece: some millions of segments."""

_READ_AGAIN_TIMES: Final = 10
"""How often the manifests are listed again, because `compact` has removed one that was to be read."""


_NAME: Final = re.compile(r"([0-9]{12})\.json")
SegmentPath = Annotated[str, msgspec.Meta(pattern=PATH)]


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """The log that is archived. `identity` and `partitions` never change; `location` is for people."""

    identity: str
    location: str
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class ExpiredRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a partition that were given up: those before offset `end`, of days before the day `before`."""

    partition: int
    end: int
    records: int
    before: str


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """All that there is after a commit. `replaced`: files that are no longer named, and since when (wall, ms)."""

    segments: tuple[Segment, ...]
    replaced: Mapping[SegmentPath, int]
    expired: tuple[ExpiredRecords, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit. `previous`: the SHA-256 of the manifest before it, empty in the first one. `at_ms`: wall clock.

    `next_offsets` and `marks`: by partition, all of them, after the commit.
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
    live: Live | None = None

    def __post_init__(self) -> None:
        """Check that nothing is said of partitions that are not there. Raises ValueError."""
        partitions = range(self.log.partitions)
        named = {each.partition for each in self.added} | {each.partition for each in self.expired} | set(self.marks)
        if self.live is not None:
            named |= {each.partition for each in self.live.segments} | {each.partition for each in self.live.expired}
        if set(self.next_offsets) != set(partitions):
            raise ValueError(f"next_offsets are not those of {len(partitions)} partitions")
        if wrong := named - set(partitions):
            raise ValueError(f"the log has {len(partitions)} partitions, and no partition {min(wrong)}")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that the manifests up to one add up to. `sha256`: that one's. `segments`: by path.

    `full`: the number of the last manifest with all that there is; `changes_since`: the segments in those after it.
    """

    number: int
    sha256: str
    log: Archived
    next_offsets: Mapping[int, int]
    marks: Mapping[int, OwnersMarks]
    segments: Mapping[str, Segment]
    replaced: Mapping[str, int]
    expired: Mapping[int, ExpiredRecords]
    full: int
    changes_since: int

    def of_partition(self, partition: int) -> list[Segment]:
        """The partition's segments in the order of their offsets."""
        return sorted((s for s in self.segments.values() if s.partition == partition), key=lambda s: s.start)

    def contradictions(self) -> Iterator[str]:
        """Say what does not fit together: each partition's segments follow each other up to its end."""
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
        """The paths of files that stay: what is named, and what may still be read."""
        return {*self.segments, *self.replaced}


def path_of(root: Path, number: int) -> Path:
    """The file of a manifest."""
    return root / FOLDER / f"{number:012d}.json"


def encode(manifest: Manifest) -> bytes:
    """The bytes of its file."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def sha256_of(encoded: bytes) -> str:
    """The SHA-256 by which the next manifest names it."""
    return hashlib.sha256(encoded).hexdigest()


def read(root: Path, number: int) -> tuple[Manifest, bytes]:
    """Read a manifest, and its bytes. Raises LogDamaged, LogMismatch for a newer format, FileNotFoundError."""
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
    """The numbers of the manifests that are there, in order. Raises LogMismatch."""
    try:
        names = [path.name for path in (root / FOLDER).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LogMismatch(f"{root / FOLDER} cannot be read: {error.strerror}") from error
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)) is not None)


def load(root: Path) -> State | None:
    """Read what there is; None if nothing was ever committed. Raises LogDamaged and LogMismatch."""
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
    """Read what there is. Raises LogMissing, LogDamaged, LogMismatch."""
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
    """Add up the manifests, from the last one that lists all segments on."""
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
    segments, sha256 = dict(state.segments), state.sha256
    for manifest, encoded in reversed(later):
        if manifest.previous != sha256:
            raise LogDamaged(broken_chain(root, manifest.number))
        segments.update((each.path, each) for each in manifest.added)
        sha256 = sha256_of(encoded)
    last = later[0][0] if later else whole
    return msgspec.structs.replace(
        state,
        number=last.number,
        sha256=sha256,
        next_offsets=last.next_offsets,
        marks=last.marks,
        segments=segments,
        changes_since=len(segments) - len(state.segments),
    )


def broken_chain(root: Path, number: int) -> str:
    """Say that a manifest does not follow the one before it."""
    before, here = path_of(root, number - 1), path_of(root, number)
    return f"{here} does not follow {before.name}: one of them was altered. Restore them from a copy of the archive"


def after(state: State | None, manifest: Manifest, sha256: str) -> State:
    """Add up what there is after a commit. `state`: what there was before; only a manifest with all needs none."""
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
        full=full,
        changes_since=changes,
    )


def changed(state: State, manifest: Manifest) -> Live:
    """All that there is after what the manifest has changed."""
    gone = set(manifest.replaced)
    replaced = {**state.replaced, **dict.fromkeys(manifest.replaced, manifest.at_ms)}
    expired = {**state.expired, **{each.partition: each for each in manifest.expired}}
    if manifest.expired:
        before = max(each.before for each in manifest.expired)
        gone |= {path for path, segment in state.segments.items() if segment.day < before}
        replaced = {path: at for path, at in replaced.items() if path.split("/")[0] >= f"day={before}"}
    kept = (segment for path, segment in state.segments.items() if path not in gone)
    return Live(segments=(*kept, *manifest.added), replaced=replaced, expired=tuple(expired.values()))
