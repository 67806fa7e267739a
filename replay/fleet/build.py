"""Staged records -> the Parquet table `rebalances`.

`sortWithinPartitions` stands directly under `mapInArrow`, so that the order is part of the plan: a group's records
come in one run, by offset, one group at a time. Each event carries its group's running number, so anything else
would be found as a gap.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.fleet.fold import Row, fold
from muster.replay.fleet.stage import Staged
from muster.replay.history.items import Read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

COLUMNS = {
    "group_id": "string",
    "incarnation": "long",
    "first_seq": "long",
    "last_seq": "long",
    "from_generation": "int",
    "to_generation": "int",
    "outcome": "string",
    "cause": "string",
    "member_id": "string",
    "group_instance_id": "string",
    "client_id": "string",
    "client_host": "string",
    "client_reason": "string",
    "folded": "array<string>",
    "started_at": "string",
    "ended_at": "string",
    "duration_ms": "long",
    "members_before": "int",
    "members_after": "int",
    "partitions_moved": "int",
    "partitions_stayed": "int",
    "avoided": "int",
    "headline": "string",
    "incident": "string",
    "incident_kind": "string",
    "incident_headline": "string",
    "story": "string",
}
"""The table `rebalances`, in Spark's words. `story` is a rebalance of `muster replay why --format jsonl`."""

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
ROWS_PER_BATCH = 1_000


def spark_session(master: str) -> "SparkSession":
    """A session that stays on this machine's loopback when it is local."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- an extra

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("muster fleet").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def build(session: "SparkSession", staged: Staged, log: str, to: Path) -> int:
    """Write the table to `to/rebalances`, replacing one that is there; returns its number of rows."""
    if staged.records == 0:
        frame = session.createDataFrame([], SCHEMA)
    else:
        records = session.read.parquet(str(staged.directory))
        ordered = records.repartition("group_id").sortWithinPartitions("group_id", "offset")
        frame = ordered.mapInArrow(_folding(staged.shared, log), SCHEMA)
    table = str(to / "rebalances")
    frame.write.mode("overwrite").parquet(table)
    return session.read.parquet(table).count()


def _folding(
    shared: Mapping[int, Sequence[Read]], log: str
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def run(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return _batches(fold(_records(batches), shared, log))

    return run


def _records(batches: Iterable["pa.RecordBatch"]) -> Iterator[tuple[GroupId, StoredRecord]]:
    for batch in batches:
        columns: dict[str, list[Any]] = batch.to_pydict()
        for group_id, *stands in zip(
            columns["group_id"],
            columns["partition"],
            columns["offset"],
            columns["timestamp_ms"],
            columns["key"],
            columns["value"],
            strict=True,
        ):
            yield GroupId(group_id), StoredRecord(*stands)


def _batches(rows: Iterator[Row]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "array<string>": pa.list_(pa.string())}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(waiting, schema=schema)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=schema)
