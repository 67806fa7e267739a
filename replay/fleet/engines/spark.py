"""The engine on Spark: `sortWithinPartitions` stands right under `mapInArrow`, so that the order is part of the plan.

A group's records come in one run, by offset, one group at a time. Workers write the parts themselves, into the folder
of the tables, which all of them see; what they return is which. A task that is done twice leaves a part that no build
names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from muster.replay.fleet.engines.engine import Task, fold_batches
from muster.replay.fleet.stage import STATE_OFFSET
from muster.replay.fleet.tables.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FACTS: Final = "part binary"
_FACTS_SCHEMA: Final = pa.schema([pa.field("part", pa.binary())])
_STATES: Final = (
    "group_id", "partition", f"cast({STATE_OFFSET} as bigint) as offset", "cast(0 as bigint) as timestamp_ms",
    "cast('' as binary) as key", "state as value",
)  # fmt: skip


class SparkEngine:
    """See the module."""

    name = "spark"

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def fold(self, files: Sequence[Path], states: Sequence[Path], task: Task) -> list[Part]:
        """See Engine."""
        if not files and not states:
            return []
        facts = self._folded(files, states, task).collect()
        return [msgspec.json.decode(bytes(fact.part), type=Part) for fact in facts]

    def plan(self, files: Sequence[Path], states: Sequence[Path]) -> str:
        """The physical plan of a fold, in Spark's words."""
        task = Task(to="", scratch="", build=0, topic="", shared={}, preludes={})
        frame = self._folded(files, states, task)
        return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 -- there is no other way

    def _folded(self, files: Sequence[Path], states: Sequence[Path], task: Task) -> "DataFrame":
        frames: list[DataFrame] = []
        if files:
            frames.append(self._session.read.parquet(*map(str, files)))
        if states:
            frames.append(self._session.read.parquet(*map(str, states)).selectExpr(*_STATES))
        records = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        ordered = records.repartition("group_id").sortWithinPartitions("group_id", "offset")
        return ordered.mapInArrow(_folding(task), _FACTS)


def _folding(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [msgspec.json.encode(part) for part in fold_batches(batches, task)]
        yield pa.RecordBatch.from_arrays([pa.array(parts, pa.binary())], schema=_FACTS_SCHEMA)

    return run
