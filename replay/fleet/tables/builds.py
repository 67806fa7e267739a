"""Builds: which files the tables consist of. A build exists once its manifest does; readers use the last one.

    _builds/000007.json   the seventh build: its log and how far it read, the rules, and the parts of each table

A manifest is written under a temporary name, synced and hard-linked to its number, which fails if another build has it.
A build and its parts are kept for a while after the next build, for their readers: DuckDB and Spark may open files long
after listing them. Leftovers of builds that did not finish are removed at once.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from muster.replay.archive import files
from muster.replay.fleet.tables.parts import STATES, Part, Role, is_part
from muster.replay.fleet.tables.schemas import RULES_VERSION, TABLES

FOLDER: Final = "_builds"
_SCRATCH: Final = "_building-"
_NUMBER: Final = re.compile("[0-9]{6,}")
GRACE_MS: Final = 60 * 60 * 1000
"""How long a build is kept after the next one; the same as for a replaced file of an archive."""
KEPT: Final = 2
"""This many of the latest builds are always kept."""


class CannotBuild(Exception):
    """The tables cannot be extended by a build; the message says why, and what to do."""


class BuildBusy(CannotBuild):
    """Another build of the same tables is running."""


class NoTables(Exception):
    """No tables were found; the message says where they were looked for."""


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A build, as in its manifest. `until`: the offsets that it reached; `preludes`: see `open_items`."""

    number: int
    rules: int
    topic: str
    identity: str
    engine: str
    made_ms: int
    until: dict[int, int]
    records: int
    preludes: bytes
    parts: tuple[Part, ...]

    def of(self, table: str) -> list[Part]:
        """The parts of a table."""
        return [part for part in self.parts if part.table == table]

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.of(table))

    @property
    def closed(self) -> list[Part]:
        """The parts that never change."""
        return [part for part in self.parts if part.role is Role.CLOSED]


class _Path(msgspec.Struct, frozen=True):
    path: str


class _Named(msgspec.Struct, frozen=True):
    """The files that a manifest names, and when its build was made (wall clock ms)."""

    made_ms: int
    parts: tuple[_Path, ...]

    @property
    def paths(self) -> set[str]:
        return {part.path for part in self.parts}


class KeptBuilds(msgspec.Struct, frozen=True, kw_only=True):
    """Builds that are kept for their readers, and the size of their files."""

    builds: int
    size_bytes: int


def last_build(folder: Path) -> Build | None:
    """Return the last build of a folder, or None. Raises CannotBuild if it cannot be read."""
    numbers = _numbers(folder)
    if not numbers:
        return None
    path = _manifest(folder, numbers[-1])
    try:
        return msgspec.json.decode(path.read_bytes(), type=Build)
    except (OSError, msgspec.DecodeError) as error:
        raise CannotBuild(
            f"{path} cannot be read: {error}; muster fleet build --rebuild makes the tables anew"
        ) from error


def current(folder: Path) -> Build:
    """Return the build that readers use. Raises NoTables."""
    try:
        build = last_build(folder)
    except CannotBuild as error:
        raise NoTables(str(error)) from error
    if build is None:
        raise NoTables(f"there are no tables in {folder}: muster fleet build --log URL --to {folder}")
    if build.rules != RULES_VERSION:
        raise NoTables(
            f"the tables in {folder} were built by version {build.rules} of the rules, this is version {RULES_VERSION}:"
            f" muster fleet build --log URL --rebuild --to {folder}"
        )
    return build


def commit(folder: Path, build: Build) -> None:
    """Make the build the last one. Raises CannotBuild if its number is taken."""
    target = _manifest(folder, build.number)
    earlier = _named(folder, build.number - 1)
    before = earlier.paths if earlier is not None else set()
    new = [folder / part.path for part in build.parts if part.path not in before]  # the other files were synced before
    for path in (*new, *{path.parent for path in new}):
        files.sync_path(path)
    aside = target.with_suffix(".tmp")
    try:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(build), indent=1))
        files.sync_path(aside)
        files.DISK.link(aside, target)  # unlike a rename it replaces nothing
    except FileExistsError as error:
        raise CannotBuild(f"another build has made {target} meanwhile; start this one again") from error
    finally:
        aside.unlink(missing_ok=True)
    files.sync_path(target.parent)


@contextmanager
def nothing_left(folder: Path, grace_ms: int) -> Iterator[None]:
    """A context for a build: remove files that no build names before and after it, i.e. those of killed builds, and its
    own if it fails.

    `grace_ms`: how long builds are kept for their readers. Needs the lock.
    """
    _remove_leftovers(folder, grace_ms)
    try:
        yield
    finally:
        _remove_leftovers(folder, grace_ms)


def _remove_leftovers(folder: Path, grace_ms: int) -> None:
    """Remove builds past their grace period, and parts that no remaining build names.

    Nothing is removed while a build cannot be read, since it may be repaired. Files without a part's name are foreign
    and are left alone.
    """
    builds = {number: _named(folder, number) for number in _numbers(folder)}
    now_ms, next_ms = time.time_ns() // 1_000_000, None
    named: set[str] = set()
    for place, (number, build) in enumerate(reversed(builds.items())):
        if place >= KEPT and next_ms is not None and next_ms + grace_ms <= now_ms:
            _manifest(folder, number).unlink()
        elif build is None:
            return
        else:
            named |= build.paths
        if build is not None:  # if the clock was ahead for a while, a later build may have an earlier time
            next_ms = build.made_ms if next_ms is None else min(next_ms, build.made_ms)
    for table in (*TABLES, STATES):
        for path in (folder / table).glob("*.parquet"):
            if is_part(path.name) and str(path.relative_to(folder)) not in named:
                path.unlink()


def kept_for_readers(folder: Path) -> KeptBuilds:
    """The builds that are only kept for the grace period, and the files that only they name."""
    builds = [_named(folder, number) for number in _numbers(folder)]
    earlier, last = ([build for build in some if build is not None] for some in (builds[:-KEPT], builds[-KEPT:]))
    paths = {path for build in earlier for path in build.paths} - {path for build in last for path in build.paths}
    sizes = [(folder / path).stat().st_size for path in paths if (folder / path).exists()]
    return KeptBuilds(builds=len(earlier), size_bytes=sum(sizes))


def _named(folder: Path, number: int) -> _Named | None:
    """Return the files that a build names, whatever its rules; None if it cannot be read or does not exist."""
    try:
        return msgspec.json.decode(_manifest(folder, number).read_bytes(), type=_Named)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield a scratch folder for a build, on the same disk as the tables. Those of killed builds are removed first."""
    for left in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left)
    with TemporaryDirectory(prefix=_SCRATCH, dir=folder) as made:
        yield Path(made)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other builds out of the folder, as far as its file system supports locks. Raises BuildBusy if one runs."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with files.locked(
        folder / FOLDER / "lock", lambda holder: BuildBusy(f"another build of {folder} is running ({holder})")
    ):
        yield


def next_number(folder: Path) -> int:
    """The number of the next build, even if the last one cannot be read."""
    return max(_numbers(folder), default=0) + 1


def _numbers(folder: Path) -> list[int]:
    found = (folder / FOLDER).glob("*.json")
    return sorted(int(path.stem) for path in found if _NUMBER.fullmatch(path.stem))


def _manifest(folder: Path, number: int) -> Path:
    return folder / FOLDER / f"{number:06d}.json"
