"""Logs of many groups for tests: the judge's cases side by side, and groups that saw a takeover; and reading tables.

`told_by_why` returns what `muster replay why --format jsonl` prints for a log, in the columns of the tables.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.events.avro.codec import records_of
from muster.events.events import AnyPartitionEvent
from muster.events.ids import GroupId
from muster.events.log.base import EventLog
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord
from muster.replay.fleet.building.build import Built, make_build
from muster.replay.fleet.building.engine import Engine
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.tables.builds import GRACE_MS, current
from muster.replay.fleet.tables.parts import Part
from muster.replay.fleet.tables.schemas import TABLES
from muster.replay.history.items import Broken, Coordinated, Gap, Item
from muster.replay.text.times import instant
from tests.judge.case import make_case
from tests.replay import memberships
from tests.replay.whole import incidents, read_histories
from tests.replay.written import broken_value
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

GROUPS = ("orders", "payments", "invoices", "e-mail")
PLANNED = {
    "registered": memberships.registration,
    "retired": memberships.retirement_late,
    "stood-by": memberships.standby,
    "duelled": memberships.duel,
}
"""Groups with planned membership."""

Rows = list[dict[str, Any]]


# ---- logs ---------------------------------------------------------------------------------------


def judged(seeds: Iterable[int], named: Callable[[int], str] = "group-{}".format) -> MemoryStorage:
    """Return a log of the judge's cases: `group-SEED`, each in a partition of its own with its coordinators."""
    cases = [make_case(seed) for seed in seeds]
    storage = MemoryStorage(partitions=len(cases))
    for partition, case in enumerate(cases):
        records = storage.records[partition]
        for item in case.history.items:
            if isinstance(item, Gap):
                continue
            for record in _records(item, named(case.seed), partition):
                at_ms = item.position.timestamp_ms
                records.append(StoredRecord(partition, len(records), at_ms, record.key, record.value))
    return storage


def _records(item: Item, group_id: str, partition: int) -> Iterable[Record]:
    if isinstance(item, Broken):
        return [broken_value(group_id)]
    assert not isinstance(item, Gap)
    if isinstance(item, Coordinated):
        event: AnyPartitionEvent = msgspec.structs.replace(item.event, partition=partition)
        return records_of([event], FORMAT_LEVEL)
    return records_of([msgspec.structs.replace(item.event, group_id=group_id)], FORMAT_LEVEL)


def lived() -> MemoryStorage:
    """Return a log of several groups side by side: restarts, an expiry, a departure, a takeover in the middle."""
    return simulate(_lives())


async def _lives() -> MemoryStorage:
    storage = MemoryStorage(partitions=3)
    first = await SimulatedProcess(storage).start()
    for group_id in GROUPS:
        first.group_id = GroupId(group_id)
        outcomes = await first.stable_group("a", "b", "c")
        await first.join("b")
        if group_id != "e-mail":
            leaving = first.leave(outcomes["a"].member_id)
            rejoins = [first.join("b"), first.join("c")]
            assert (await leaving).error.value == 0
            for joined in [await rejoin for rejoin in rejoins]:
                await first.sync(joined)
    second = await SimulatedProcess(storage, offsets=first.offsets).start()
    await asyncio.sleep(11)
    for group_id in GROUPS:
        second.group_id = GroupId(group_id)
        await second.stable_group("d")
    await second.runtime.stop()
    for group_id, play in PLANNED.items():
        records = storage.records[partition_for(group_id, len(storage.records))]
        for record in play(group_id).records:
            place = {"partition": records[0].partition, "offset": records[-1].offset + 1}
            records.append(msgspec.structs.replace(record, **place))
    return storage


async def opened(storage: MemoryStorage) -> MemoryEventLog:
    log = MemoryEventLog(storage)
    await log.open()
    return log


def up_to(storage: MemoryStorage, share: float) -> MemoryStorage:
    """Return the log as it was when this much of each partition was written, including its identity."""
    earlier = MemoryStorage(partitions=len(storage.records))
    earlier.identity = storage.identity
    for partition, records in enumerate(storage.records):
        earlier.records[partition] = records[: round(len(records) * share)]
    return earlier


async def sqlite_copy(storage: MemoryStorage, path: Path) -> str:
    """Return the URL of the same log as a file."""
    log = SqliteEventLog(path, partitions=len(storage.records))
    await log.open()
    for number, records in enumerate(storage.records):
        writer = await log.claim(number)
        await writer.append([(Record(record.key, record.value),) for record in records])
    await log.close()
    return f"sqlite:///{path}"


# ---- tables -------------------------------------------------------------------------------------


async def built(
    storage: MemoryStorage, to: Path, engine: Engine | None = None, *, rebuild: bool = False, grace_ms: int = GRACE_MS
) -> Built:
    """Bring the tables in a folder up to date with a log."""
    return await make_build(
        await opened(storage), to, lambda _bytes: engine or LocalEngine(), rebuild=rebuild, grace_ms=grace_ms
    )


def timestamps(folder: Path) -> dict[str, bool]:
    """Read the footers of all Parquet files below: each timestamp's file and column, and whether readers see UTC.

    A timestamp as INT96, Spark's default, has no zone: DuckDB and pyarrow read timestamps without one.
    """
    found: dict[str, bool] = {}
    for path in folder.rglob("*.parquet"):
        schema = pq.ParquetFile(path).schema
        for column in (schema.column(number) for number in range(len(schema))):
            logical = msgspec.json.decode(column.logical_type.to_json())
            if column.physical_type == "INT96" or logical["Type"] == "Timestamp":
                found[f"{path.relative_to(folder)} {column.path}"] = logical.get("isAdjustedToUTC", False)
    return found


def table_of(folder: Path, name: str) -> pa.Table:
    """Return a table of the last build, sorted."""
    return table_of_parts(folder, current(folder).of(name), name)


def table_of_parts(folder: Path, parts: Iterable[Part], name: str) -> pa.Table:
    schema = TABLES[name].schema
    table = pa.concat_tables([pq.read_table(folder / part.path) for part in parts] or [schema.empty_table()])
    order = [(each.name, "ascending") for each in schema if not pa.types.is_list(each.type)]
    return table.sort_by(order)


def rows_of(folder: Path, name: str) -> Rows:
    """Return its rows, with times as in `why`."""
    return rows_of_parts(folder, current(folder).of(name), name)


def rows_of_parts(folder: Path, parts: Iterable[Part], name: str) -> Rows:
    table = table_of_parts(folder, parts, name)
    columns = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            columns[field.name] = [each and instant(each // 1_000) for each in column.cast(pa.int64()).to_pylist()]
        else:
            columns[field.name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def all_tables(folder: Path) -> dict[str, Rows]:
    return {name: rows_of(folder, name) for name in TABLES}


# ---- what `why` tells ---------------------------------------------------------------------------

CAUSES = (
    "group_id", "incident", "incident_kind", "grade", "first_seq", "last_seq", "from_generation", "to_generation",
    "outcome", "trigger", "trigger_member_id", "client_reason", "folded", "started_at", "ended_at", "duration_ms",
    "join_ms", "members_before", "members_after", "partitions_moved", "protocol_name",
)  # fmt: skip
INCIDENTS = (
    "group_id", "incident", "kind", "grade", "headline", "parent", "client_ids", "client_hosts", "started_at",
    "ended_at", "rebalances", "rebalancing_ms", "partition_ms", "silent_partition_ms",
    "empty_partition_ms", "known_partition_ms", "partitions_moved_back", "unassigned_partition_ms",
    "restarts_absorbed", "notes",
)  # fmt: skip


async def results_of_why(log: EventLog) -> tuple[Rows, Rows]:
    """Return the rebalances and incidents of all groups from the JSON output, as the columns CAUSES and INCIDENTS."""
    rebalances: Rows = []
    reported: Rows = []
    for history in (await read_histories(log)).values():
        for incident in incidents(history):
            whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(incident))
            reported.append(_incident(whole))
            rebalances += [_rebalance(each, whole) for each in whole["rebalances"]]
    return in_order(rebalances), in_order(reported)


def _incident(whole: Mapping[str, Any]) -> dict[str, Any]:
    cost = dict(whole["cost"])
    return {
        **{name: whole[name] for name in ("group_id", "kind", "grade", "headline", "parent", "started_at", "ended_at")},
        **{name: cost[name] for name in cost if name != "partitions_moved"},
        "incident": whole["id"],
        "client_ids": [each["client_id"] for each in whole["culprits"]],
        "client_hosts": [each["client_host"] for each in whole["culprits"]],
        "notes": whole["notes"],
    }


def _rebalance(each: Mapping[str, Any], incident: Mapping[str, Any]) -> dict[str, Any]:
    same = ("group_id", "first_seq", "last_seq", "from_generation", "to_generation", "outcome", "started_at")
    trigger, movement = each["trigger"], each["movement"]
    return {
        **{name: each[name] for name in (*same, "ended_at", "duration_ms", "protocol_name")},
        "incident": incident["id"],
        "incident_kind": incident["kind"],
        "grade": incident["grade"],
        "trigger": trigger["cause"],
        "trigger_member_id": trigger["who"][0]["member_id"] if trigger["who"] else None,
        "client_reason": trigger["client_reason"],
        "folded": [folded["cause"] for folded in each["folded"]],
        "join_ms": each["join_phase"]["duration_ms"],
        "members_before": len(each["members_before"]),
        "members_after": len(each["members_after"]),
        "partitions_moved": movement["moved"] if movement else None,
    }


def in_order(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] | None = None) -> Rows:
    """Return these columns of the rows, in an order that does not depend on the engine."""
    chosen = [{name: row[name] for name in columns or row} for row in rows]
    return sorted(chosen, key=lambda row: msgspec.json.encode(row, order="sorted"))
