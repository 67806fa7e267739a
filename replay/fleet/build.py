"""A build: what a log has told since the last one -> parts of tables, and the manifest that names them.

stage     the log's records from the offsets on that the build before reached, copied into Parquet (`stage.py`)
carry     of groups to which nothing happened, what was open (`carry.py`)
fold      each group's records, going on from what it had open, into rows (`engines/`, `fold.py`)
derive    the tables of days, for the days that were touched (`tables/days.py`)
commit    the manifest (`builds.py`)

What was closed before is named again as it is. What was open is made anew, so that the result is a full build's.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from muster.events.log.base import EventLog
from muster.replay.fleet import open_items
from muster.replay.fleet.builds import (
    Build,
    CannotBuild,
    commit,
    last_build,
    locked,
    next_number,
    remove_leftovers,
    scratch,
)
from muster.replay.fleet.carry import NOTHING_CARRIED, carry
from muster.replay.fleet.engines.engine import Engine, Task
from muster.replay.fleet.fold import prelude_before
from muster.replay.fleet.stage import Staged, stage
from muster.replay.fleet.tables.days import derived
from muster.replay.fleet.tables.parts import Part, PartWriter, Role
from muster.replay.fleet.tables.quarantine import quarantine_row
from muster.replay.fleet.tables.schemas import RULES_VERSION
from muster.replay.history.items import Broken, Prelude, Read
from muster.replay.logs.sources import Watch, unwatched

EngineFor = Callable[[int], Engine]
"""Chooses the engine for so many bytes of events."""


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A build that was made. `events`: those that it read; `took_s`: where the time went, by step."""

    build: Build
    staged: Staged
    took_s: dict[str, float]

    @property
    def events(self) -> int:
        return self.staged.records


async def make_build(
    log: EventLog, to: Path, engine_for: EngineFor, *, rebuild: bool = False, watch: Watch = unwatched
) -> Built:
    """Bring the tables in a folder up to date with a log that is open. Raises CannotBuild, and as the log does."""
    with locked(to), scratch(to) as folder:
        before = None if rebuild else last_build(to)
        if before is not None:
            await _check(before, log, to)
        clock = _Clock()
        staged = await stage(log, folder, since=before.until if before else {}, watch=watch)
        clock.lap("reading")
        engine = engine_for(staged.value_bytes)
        number = next_number(to)
        preludes = open_items.load(before.preludes) if before else {}
        task = Task(
            to=str(to), scratch=str(folder), build=number, topic=log.location, shared=staged.shared, preludes=preludes
        )
        carried = carry(to, before, staged, number, folder) if before else NOTHING_CARRIED
        clock.lap("carrying over")
        parts = [*carried.parts, *engine.fold(staged.files, carried.states, task), *_quarantined(task, to)]
        clock.lap("folding")
        parts += derived(to, before, parts, number)
        clock.lap("days")
        build = Build(
            number=number,
            rules=RULES_VERSION,
            topic=log.location,
            identity=log.identity,
            engine=engine.name,
            made_ms=time.time_ns() // 1_000_000,
            until=staged.until,
            records=staged.records + (before.records if before else 0),
            preludes=open_items.dump(_preludes(preludes, staged.shared)),
            parts=(*(before.closed if before else ()), *parts),
        )
        commit(to, build)
        remove_leftovers(to)
        clock.lap("commit")
    return Built(build=build, staged=staged, took_s=clock.laps)


async def _check(before: Build, log: EventLog, to: Path) -> None:
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
        end = await log.end_offset(partition)
        if end < until:
            raise CannotBuild(
                f"{log.location} ends at offset {end} of partition {partition}, but the tables in {to} have read up to"
                f" {until}: the log has lost records, or is an older copy; say --rebuild, or another --to"
            )


def _quarantined(task: Task, to: Path) -> list[Part]:
    """The records of whole partitions that cannot be read; those of groups come from their folds."""
    writer = PartWriter(to, task.build)
    for reads in task.shared.values():
        for read in reads:
            if isinstance(read, Broken):
                writer.add("quarantine", quarantine_row(task.topic, read, None), Role.CLOSED)
    return writer.close()


def _preludes(before: Mapping[int, Prelude], shared: Mapping[int, list[Read]]) -> dict[int, Prelude]:
    """How each partition stands behind everything that was read."""
    end = 2**63
    return {partition: prelude_before(reads, end, before.get(partition)) for partition, reads in shared.items()}


class _Clock:
    """Tells where the time went. In seconds."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._at = now - self._at, now
