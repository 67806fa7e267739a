"""A build: what a log has told since the last one -> parts of tables, and the manifest that names them.

stage     the log's records from the offsets on that the build before reached: an archive's own files, or copies
          (`stage.py`); what concerns all groups of a partition (`pieces.py`)
carry     of groups to which nothing happened, what was open (`carry.py`)
fold      each group's records, going on from what it had open, into rows (`engines/`, `fold.py`)
derive    the tables of days, for the days that were touched (`tables/days.py`)
join      small parts of what is closed, into fewer (`joining.py`)
commit    the manifest (`builds.py`)

What was closed before is named again as it is, or joined. What was open is made anew: the result is a full build's.
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
"""Chooses the engine for so many bytes of events."""

Watching = Callable[[str], AbstractContextManager[Watch]]
"""Shows how far a step is, whose title it is given."""


@contextmanager
def unwatching(_title: str) -> Iterator[Watch]:
    """Show nothing."""
    yield unwatched


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A build that was made, or the one before, where the log tells nothing new. `events`: those that it read.

    `took_s`: where the time went, by step. `strangers`: a sentence about records that no owner wrote. `damage`: what
    could not be read.
    """

    build: Build
    is_new: bool
    events: int = 0
    took_s: dict[str, float] = {}
    strangers: tuple[str, ...] = ()
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
    """Bring the tables in a folder up to date with a log that is open.

    `grace_ms`: how long the files of earlier builds stay for those who are reading them.

    Raises CannotBuild, NoRoom, NoMemory, and as the log does; then the tables are as they were, and nothing is left
    over.
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
    told = (each.report(log.location) for each in (staged.strangers, found.strangers))
    return Built(
        build=build,
        is_new=True,
        events=events,
        took_s=clock.laps,
        strangers=tuple(each for each in told if each is not None),
        damage=staged.damage,
    )


class _Step(msgspec.Struct, frozen=True):
    """The things of one build that its steps need."""

    engine_for: EngineFor
    ends: Mapping[int, int]
    scratch: Path
    watching: Watching
    clock: "_Clock"


def _made(log: EventLog, to: Path, before: Build | None, found: Survey, step: _Step) -> tuple[Build, int]:
    """Write the parts, and say which; with the number of events that they tell of."""
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
    """Say which log has a file that cannot be read. Raises LogDamaged; LogUnavailable for one that has gone."""
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
    """Go on with what the build before has left. Raises CannotBuild for a file that is not what it wrote."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise CannotBuild(
            f"the tables in {to} cannot be brought up to date: {first_line(error)}; if one of their files was altered,"
            " say --rebuild, or another --to"
        ) from error


@contextmanager
def _room_of_earlier_builds(to: Path) -> Iterator[None]:
    """Say how much room earlier builds take, if there is too little, and how to free it."""
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
    """Refuse to go on with tables of other rules, or of another log. Raises CannotBuild."""
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
    """The log's location, and of an archive that of the log that it is one of: its tables are the log's."""
    return log.source if isinstance(log, ArchiveLog) else log.location


def _quarantined(task: Task, to: Path) -> list[Part]:
    """The records of whole partitions that cannot be read; those of groups come from their folds."""
    with PartWriter(to, task.build) as writer:
        for reads in task.shared.values():
            for read in reads:
                if isinstance(read, Broken):
                    writer.add("quarantine", quarantine_row(task.topic, read, None), Role.CLOSED)
    return writer.parts


def _preludes(before: Mapping[int, Prelude], shared: Mapping[int, list[Read]]) -> dict[int, Prelude]:
    """How each partition stands behind everything that was read. `before` is theirs then."""
    preludes = dict(before)
    for partition, reads in shared.items():
        prelude = preludes.setdefault(partition, Prelude())
        for read in reads:
            prelude.note(read)
    return preludes


class _Clock:
    """Tells where the time went. In seconds."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._at = now - self._at, now
