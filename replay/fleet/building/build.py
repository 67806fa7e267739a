"""A build: turns the events since the last build into parts of tables, and a manifest that names them.

stage     the log's records from the offsets that the previous build reached: an archive's own files, or copies
          (`stage.py`); and the reads that concern all groups of a partition (`pieces.py`)
carry     copies the open rows of groups without new events (`carry.py`)
fold      folds each group's records into rows, continuing from its open state (`engine.py`, `fold.py`)
derive    rebuilds the daily tables for touched days (`tables/days.py`)
join      merges small parts of closed rows (`joining.py`)
commit    writes the manifest (`builds.py`)

The new manifest names the previous build's closed parts, some of them merged. Open rows are rebuilt, so the result
equals that of a full build.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa

from muster.events.log.base import EventLog, LogDamaged, LogUnavailable
from muster.replay.archive.log import ArchiveLog
from muster.replay.fleet.building import open_items
from muster.replay.fleet.building.carry import NOTHING_CARRIED, carry
from muster.replay.fleet.building.engine import Engine, Task
from muster.replay.fleet.building.joining import joined
from muster.replay.fleet.building.pieces import Survey, survey
from muster.replay.fleet.building.stage import stage
from muster.replay.fleet.disk_space import NoRoom, first_line, needing_room
from muster.replay.fleet.tables.builds import (
    GRACE_MS,
    Build,
    CannotBuild,
    commit,
    kept_for_readers,
    last_build,
    locked,
    next_number,
    nothing_left,
    scratch,
)
from muster.replay.fleet.tables.days import derived
from muster.replay.fleet.tables.parts import Part, PartWriter, Role
from muster.replay.fleet.tables.rows import quarantine_row
from muster.replay.fleet.tables.schemas import RULES_VERSION
from muster.replay.history.items import Broken, Prelude, Read
from muster.replay.progress import Watch, unwatched
from muster.replay.text.grammar import plural, size_text

EngineFor = Callable[[int], Engine]
"""Chooses the engine, given the bytes of events."""

Watching = Callable[[str], AbstractContextManager[Watch]]
"""Shows the progress of a step with the given title."""


@contextmanager
def unwatching(_title: str) -> Iterator[Watch]:
    """Show nothing."""
    yield unwatched


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a build; if the log has nothing new, the previous build. `events`: the number of events read.

    `took_s`: seconds by step. `foreign_records`: sentences about foreign records. `damage`: what could not be read.
    """

    build: Build
    is_new: bool
    events: int = 0
    took_s: dict[str, float] = {}
    foreign_records: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


async def make_build(
    log: EventLog,
    to: Path,
    engine_for: EngineFor,
    *,
    rebuild: bool = False,
    grace_ms: int = GRACE_MS,
    watching: Watching = unwatching,
) -> Built:
    """Bring the tables in a folder up to date with an open log.

    `grace_ms`: how long the files of earlier builds are kept for their readers.

    Raises CannotBuild, NoRoom, NoMemory, and the log's errors; then the tables are unchanged and no files are left
    behind.
    """
    with (
        _reading_tables(to),
        _room_of_earlier_builds(to),
        needing_room(to),
        locked(to),
        nothing_left(to, grace_ms),
        scratch(to) as folder,
    ):
        before = None if rebuild else last_build(to)
        ends = {partition: await log.end_offset(partition) for partition in range(log.partitions)}
        if before is not None:
            _check(before, log, ends, to)
            if before.until == ends:
                return Built(build=before, is_new=False)
        clock = _Clock()
        with watching(f"reading {log.location}") as watch:
            staged = await stage(log, folder, since=before.until if before else {}, ends=ends, watch=watch)
            with _readable(log):
                found = survey(staged.pieces, watch)
        clock.lap("reading")
        build, events = _made(log, to, before, found, _Step(engine_for, ends, folder, watching, clock))
        commit(to, build)
        clock.lap("commit")
    told = (each.report(log.location) for each in (staged.foreign_records, found.foreign_records))
    return Built(
        build=build,
        is_new=True,
        events=events,
        took_s=clock.laps,
        foreign_records=tuple(each for each in told if each is not None),
        damage=staged.damage,
    )


class _Step(msgspec.Struct, frozen=True):
    """The values that the steps of one build share."""

    engine_for: EngineFor
    ends: Mapping[int, int]
    scratch: Path
    watching: Watching
    clock: "_Clock"


def _made(log: EventLog, to: Path, before: Build | None, found: Survey, step: _Step) -> tuple[Build, int]:
    """Write the parts; return the build that names them and the number of events folded."""
    engine = step.engine_for(found.value_bytes)
    step.clock.lap("starting the engine")
    number = next_number(to)
    preludes = open_items.load(before.preludes) if before else {}
    task = Task(
        to=str(to), scratch=str(step.scratch), build=number, topic=_topic(log), shared=found.shared, preludes=preludes
    )
    carried = carry(to, before, found, number, step.scratch) if before else NOTHING_CARRIED
    step.clock.lap("carrying over")
    with step.watching(f"folding the events of {len(found.groups)} groups") as watch, _readable(log):
        folded = engine.fold(found.pieces, carried.states, task, lambda done: watch(done, found.records))
    step.clock.lap("folding")
    parts = [*carried.parts, *folded.parts, *_quarantined(task, to)]
    parts += derived(to, before, parts, number, step.scratch)
    step.clock.lap("days")
    closed = [*(before.closed if before else ()), *(part for part in parts if part.role is Role.CLOSED)]
    closed = joined(to, closed, number, step.scratch)
    step.clock.lap("joining small files")
    build = Build(
        number=number,
        rules=RULES_VERSION,
        topic=_topic(log),
        identity=log.identity,
        engine=engine.name,
        made_ms=time.time_ns() // 1_000_000,
        until=dict(step.ends),
        records=folded.events + (before.records if before else 0),
        preludes=open_items.dump(_preludes(preludes, found.shared)),
        parts=(*closed, *(part for part in parts if part.role is not Role.CLOSED)),
    )
    return build, folded.events


@contextmanager
def _readable(log: EventLog) -> Iterator[None]:
    """Name the log in errors about its files. Raises LogDamaged; LogUnavailable if a file has disappeared."""
    try:
        yield
    except FileNotFoundError as error:
        raise LogUnavailable(
            f"{log.location}: a file has gone while it was read ({error}); build again, and if it is"
            " gone for good, see `muster fleet verify`"
        ) from error
    except pa.ArrowInvalid as error:
        raise LogDamaged(f"{log.location} cannot be read: {error}; see fleet verify") from error


@contextmanager
def _reading_tables(to: Path) -> Iterator[None]:
    """Convert errors in the previous build's files. Raises CannotBuild if a file is not what that build wrote."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise CannotBuild(
            f"the tables in {to} cannot be brought up to date: {first_line(error)}; if one of their files was altered,"
            " say --rebuild, or another --to"
        ) from error


@contextmanager
def _room_of_earlier_builds(to: Path) -> Iterator[None]:
    """If the disk is full, say how much space earlier builds take and how to free it."""
    try:
        yield
    except NoRoom as error:
        kept = kept_for_readers(to)
        if not kept.size_bytes:
            raise
        raise NoRoom(
            f"{error}. {plural(kept.builds, 'earlier build')} there {'has' if kept.builds == 1 else 'have'}"
            f" {size_text(kept.size_bytes)} that a query may still read: if none does, --grace 0 removes them"
        ) from error


def _check(before: Build, log: EventLog, ends: Mapping[int, int], to: Path) -> None:
    """Refuse to extend tables of other rules or of another log. Raises CannotBuild."""
    if before.rules != RULES_VERSION:
        raise CannotBuild(
            f"the tables in {to} were built by version {before.rules} of the rules, this is version {RULES_VERSION}:"
            " say --rebuild, or another --to"
        )
    if before.identity != log.identity:
        raise CannotBuild(
            f"the tables in {to} are those of {before.topic} (identity {before.identity}), not of {log.location}"
            f" (identity {log.identity}): say --rebuild, or another --to"
        )
    for partition, until in before.until.items():
        end = ends.get(partition, 0)
        if end < until:
            raise CannotBuild(
                f"{log.location} ends at offset {end} of partition {partition}, but the tables in {to} have read up to"
                f" {until}: the log has lost records, or is an older copy; say --rebuild, or another --to"
            )


def _topic(log: EventLog) -> str:
    """The log's location; for an archive, that of the archived log, whose tables these are."""
    return log.source if isinstance(log, ArchiveLog) else log.location


def _quarantined(task: Task, to: Path) -> list[Part]:
    """Unreadable records that concern a whole partition; the folds report those of groups."""
    with PartWriter(to, task.build) as writer:
        for reads in task.shared.values():
            for read in reads:
                if isinstance(read, Broken):
                    writer.add("quarantine", quarantine_row(task.topic, read, None), Role.CLOSED)
    return writer.parts


def _preludes(before: Mapping[int, Prelude], shared: Mapping[int, list[Read]]) -> dict[int, Prelude]:
    """The state of each partition after everything read so far, given the state `before`."""
    preludes = dict(before)
    for partition, reads in shared.items():
        prelude = preludes.setdefault(partition, Prelude())
        for read in reads:
            prelude.note(read)
    return preludes


class _Clock:
    """Measures the seconds that each step took."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._at = now - self._at, now
