"""Simulates groups one by one, and merges their records by time, since a partition of a log has a single order.

A piece of work is a few groups of one partition: they are simulated, in this process or in others, and their records
are written to Parquet files of the spool. Memory holds only one group's days, however many groups there are. DuckDB
sorts the records of a partition, on disk if there are many.

Each group's world has its own view of the partition's coordinators, which start and stop at the same times for all
groups: their counts (groups, members, sessions) are added up, and the log gets one event for all.
"""

from collections.abc import Iterator
from glob import escape
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.events.avro.codec import records_of
from muster.events.events import AnyPartitionEvent, CoordinatorPaused, CoordinatorReady, CoordinatorStopped
from muster.events.ids import GroupId
from muster.events.records import FORMAT_LEVEL
from muster.replay.fleet.simulation.fleet import Fleet, Outage, outages
from muster.replay.fleet.simulation.week import Lived, group_of, live
from muster.replay.history.items import Coordinated, Happened
from muster.replay.progress import Watch

GROUPS_AT_ONCE: Final = 10
BATCH_ROWS: Final = 10_000
MEMORY_LIMIT: Final = "160MB"
"""DuckDB's memory limit; the rest goes to disk."""

BEFORE, OF_GROUPS, AFTER = 0, 1, 2
"""The order within a millisecond: a coordinator is elected before its groups' events, and stops after them."""

SCHEMA: Final = pa.schema(
    [
        pa.field("at_ms", pa.int64()),
        pa.field("rank", pa.int8()),
        pa.field("group_number", pa.int32()),
        pa.field("number", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
Row = tuple[int, int, int, int, bytes, bytes | None]
Timed = tuple[int, AnyPartitionEvent]
"""An event of the partition, and when it was stored (wall clock, ms)."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Some groups of one partition, and the file for their records."""

    fleet: Fleet
    partition: int
    groups: tuple[tuple[int, GroupId], ...]
    outages: tuple[Outage, ...]
    path: str


class PlayedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `coordinators`: each event of the partition, as these groups have it, and when it was stored.

    `truths`: one line of JSON per group.
    """

    partition: int
    groups: int
    events: int
    incidents: int
    coordinators: list[Timed]
    truths: bytes


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the numbers of groups, of their events, and of the incidents that scenarios caused."""

    groups: int
    events: int
    incidents: int


def play(fleet: Fleet, folder: Path, truth: Path, *, jobs: int, watch: Watch) -> Simulated:
    """Simulate all groups into a folder, and write the ground truth. `jobs`: the number of processes."""
    work = list(_work(fleet, folder))
    coordinators: dict[int, list[Timed]] = {}
    groups = events = incidents = 0
    with truth.open("wb") as lines:
        for done in _each_done(work, jobs):
            known = coordinators.get(done.partition)
            added = done.coordinators if known is None else list(map(_together, known, done.coordinators))
            coordinators[done.partition] = added
            lines.write(done.truths)
            groups, events, incidents = groups + done.groups, events + done.events, incidents + done.incidents
            watch(groups, fleet.groups)
    for partition, told in coordinators.items():
        _write(_of_coordinators(partition, told), folder / f"{partition:05d}-coordinators.parquet")
    return Simulated(groups=groups, events=events, incidents=incidents)


def spooled(folder: Path, partition: int) -> Iterator[pa.RecordBatch]:
    """A partition's records in log order: at_ms, key, value."""
    files = sorted(escape(str(path)) for path in folder.glob(f"{partition:05d}-*.parquet"))
    if not files:
        return
    config: dict[str, Any] = {"memory_limit": MEMORY_LIMIT, "temp_directory": str(folder), "threads": 2}
    rows = "read_parquet($files, hive_partitioning = false)"
    query = f"select at_ms, key, value from {rows} order by at_ms, rank, group_number, number"  # noqa: S608 -- of ours
    with duckdb.connect(config=config) as connection:
        found: pa.RecordBatchReader = connection.sql(query, params={"files": files}).to_arrow_reader(BATCH_ROWS)
        yield from found


def _work(fleet: Fleet, folder: Path) -> Iterator[Work]:
    for partition, groups in fleet.by_partition().items():
        planned = tuple(outages(Random(f"{fleet.seed} partition {partition}"), fleet.span))
        for begin in range(0, len(groups), GROUPS_AT_ONCE):
            yield Work(
                fleet=fleet,
                partition=partition,
                groups=tuple(groups[begin : begin + GROUPS_AT_ONCE]),
                outages=planned,
                path=str(folder / f"{partition:05d}-{begin:06d}.parquet"),
            )


def _each_done(work: list[Work], jobs: int) -> Iterator[PlayedGroups]:
    """Yield results in the order of the work, whichever process does it."""
    if jobs == 1 or len(work) <= 1:
        yield from map(_do, work)
        return
    with get_context("spawn").Pool(min(jobs, len(work))) as pool:
        yield from pool.imap(_do, work)


def _do(work: Work) -> PlayedGroups:
    fleet = work.fleet
    coordinators: list[Timed] = []
    truths: list[bytes] = []
    events = incidents = 0
    with pq.ParquetWriter(work.path, SCHEMA, compression="lz4") as writer:
        for number, group_id in work.groups:
            lived = live(fleet.seed, group_id, number, fleet.span, list(work.outages))
            rows = list(_rows(lived, number))
            writer.write_table(_table(rows))
            seen = list(_coordinated(lived))
            coordinators = list(map(_together, coordinators, seen)) if coordinators else seen
            group = group_of(lived, work.partition)
            truths.append(msgspec.json.encode(group) + b"\n")
            events, incidents = events + len(lived.told) - len(seen), incidents + len(group.incidents)
    return PlayedGroups(
        partition=work.partition,
        groups=len(work.groups),
        events=events,
        incidents=incidents,
        coordinators=coordinators,
        truths=b"".join(truths),
    )


def _rows(lived: Lived, number: int) -> Iterator[Row]:
    place = 0
    for told in lived.told:
        if isinstance(told, Happened):
            for record in records_of([told.event], FORMAT_LEVEL):
                yield told.position.timestamp_ms, OF_GROUPS, number, place, record.key, record.value
                place += 1


# ---- coordinators ------------------------------------------------------------------------------


def _coordinated(lived: Lived) -> Iterator[Timed]:
    """The events of the partition, as far as they concern this group; events_read leaves them out."""
    before = 0
    for told in lived.told:
        if isinstance(told, Coordinated):
            event = told.event
            if isinstance(event, CoordinatorReady):
                event = msgspec.structs.replace(event, events_read=before)
            yield told.position.timestamp_ms, event
        else:
            before += 1


def _together(one: Timed, other: Timed) -> Timed:
    """Merge two copies of an event, with the counts of the groups of both."""
    (at_ms, event), (at_ms_too, too) = one, other
    assert at_ms == at_ms_too
    if isinstance(event, CoordinatorReady) and isinstance(too, CoordinatorReady):
        event = msgspec.structs.replace(
            event,
            events_read=event.events_read + too.events_read,
            groups=event.groups + too.groups,
            members=event.members + too.members,
            incarnation_max=max(event.incarnation_max, too.incarnation_max),
        )
    elif isinstance(event, CoordinatorPaused) and isinstance(too, CoordinatorPaused):
        event = msgspec.structs.replace(event, sessions=event.sessions + too.sessions)
    assert type(event) is type(too)
    return at_ms, event


def _of_coordinators(partition: int, told: list[Timed]) -> list[Row]:
    rows: list[Row] = []
    for number, (at_ms, event) in enumerate(told):
        rank = AFTER if isinstance(event, CoordinatorStopped) else BEFORE
        here: AnyPartitionEvent = msgspec.structs.replace(event, partition=partition)
        if isinstance(here, CoordinatorReady):
            here = msgspec.structs.replace(here, events_read=here.events_read + number)
        (record,) = records_of([here], FORMAT_LEVEL)
        rows.append((at_ms, rank, 0, number, record.key, record.value))
    return rows


# ---- files -------------------------------------------------------------------------------------


def _table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _write(rows: list[Row], path: Path) -> None:
    pq.write_table(_table(rows), path, compression="lz4")
