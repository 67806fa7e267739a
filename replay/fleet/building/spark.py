"""The engine on Spark: `mapInArrow` directly follows `sortWithinPartitions`, so that the plan keeps the order.

Workers read the files of the pieces, and Spark shuffles the records by group and sorts them. Each task gets the records
of one group after another, ordered by offset. Workers write the parts themselves, into the folder of the tables, which
all of them can access, and return the parts' names. If a task runs twice, it leaves a part that no build refers to.

Spark only reports the end of a task, so each task writes its progress to a small file in the scratch folder. A repeated
task writes to the same file; a file that is incomplete is read later.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from muster.replay.fleet.building.engine import STATE_OFFSET, Folded, Task, Took, fold_batches
from muster.replay.fleet.building.fold import OutOfOrder
from muster.replay.fleet.building.open_items import NotCarriedOver
from muster.replay.fleet.building.pieces import Piece, of_groups
from muster.replay.fleet.disk_space import NoRoom, needing_room
from muster.replay.fleet.session import SparkFailed, in_a_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic

BUNDLE_BYTES: Final = 32 * 1024 * 1024
"""The total size of the files that one task reads, unless a single file is larger."""

_RECORDS: Final = "group_id string, partition int, offset bigint, timestamp_ms bigint, value binary"
_FOLDED: Final = "folded binary, refusal string, message string"
_FOLDED_SCHEMA: Final = pa.schema([("folded", pa.binary()), ("refusal", pa.string()), ("message", pa.string())])
_REFUSALS: Final = {each.__name__: each for each in (OutOfOrder, NotCarriedOver, NoRoom)}
"""Errors of a fold that are returned as rows: Spark would wrap them in its own errors, with two stack traces."""
_GONE: Final = "Spark could not fold: FileNotFoundError: "
"""How the error begins for a file that `compact` or `expire` has removed meanwhile, which is not Spark's fault."""
_SPECIAL: Final = re.compile(r"[\\{}\[\]*?,]")
_STATES: Final = (
    "group_id", "partition", f"cast({STATE_OFFSET} as bigint) as offset", "cast(0 as bigint) as timestamp_ms",
    "state as value",
)  # fmt: skip


class SparkEngine:
    """Builds the tables with Spark."""

    name = "spark"

    def __init__(self, session: "SparkSession") -> None:
        self._session = session

    def fold(self, pieces: Sequence[Piece], states: Sequence[Path], task: Task, watch: Took) -> Folded:
        """See Engine."""
        if not pieces and not states:
            return Folded(parts=(), events=0)
        try:
            with in_a_line("Spark could not fold"), told(Path(task.scratch), watch):
                rows = self._folded(pieces, states, task).collect()
        except SparkFailed as failed:
            if str(failed).startswith(_GONE):
                raise FileNotFoundError(str(failed).removeprefix(_GONE)) from failed
            raise
        for row in rows:
            if row.refusal is not None:
                raise _REFUSALS[row.refusal](row.message)
        done = [msgspec.json.decode(row.folded, type=Folded) for row in rows]
        events = sum(each.events for each in done)
        watch(events)
        return Folded(parts=tuple(part for each in done for part in each.parts), events=events)

    def plan(self, pieces: Sequence[Piece], states: Sequence[Path]) -> str:
        """The physical plan of a fold, as Spark prints it."""
        task = Task(to="", scratch="", build=0, topic="", shared={}, preludes={})
        frame = self._folded(pieces, states, task)
        return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 -- there is no other way

    def _folded(self, pieces: Sequence[Piece], states: Sequence[Path], task: Task) -> "DataFrame":
        bundles = [(msgspec.msgpack.encode(bundle),) for bundle in bundled(pieces)]
        slices = self._session.sparkContext.parallelize(bundles, max(1, len(bundles)))
        records = self._session.createDataFrame(slices, "pieces binary").mapInArrow(_read, _RECORDS)
        if states:
            records = records.unionByName(self._session.read.parquet(*map(_as_a_pattern, states)).selectExpr(*_STATES))
        ordered = records.repartition("group_id").sortWithinPartitions("group_id", "offset")
        return ordered.mapInArrow(_folding(task), _FOLDED)


def _as_a_pattern(path: Path) -> str:
    """Escape a path for Spark, which treats every path as a pattern."""
    return _SPECIAL.sub(r"\\\g<0>", str(path))


def bundled(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Group small pieces into bundles."""
    bundle: list[Piece] = []
    size = 0
    for piece in pieces:
        piece_bytes = Path(piece.path).stat().st_size
        if bundle and size + piece_bytes > BUNDLE_BYTES:
            yield bundle
            bundle, size = [], 0
        bundle.append(piece)
        size += piece_bytes
    if bundle:
        yield bundle


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _give_memory_back()
    for batch in batches:
        for bundle in batch.column(0).to_pylist():
            yield from of_groups(msgspec.msgpack.decode(bundle, type=list[Piece]))


def _folding(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _give_memory_back()
        row: dict[str, bytes | str | None] = {"folded": None, "refusal": None, "message": None}
        try:
            with needing_room(Path(task.to)):
                report = reporting(Path(task.scratch), _task_number())
                row["folded"] = msgspec.json.encode(fold_batches(batches, task, report))
        except tuple(_REFUSALS.values()) as refusal:
            row |= {"refusal": type(refusal).__name__, "message": str(refusal)}
        yield pa.RecordBatch.from_pylist([row], schema=_FOLDED_SCHEMA)

    return run


def _give_memory_back() -> None:
    """Stop pyarrow from keeping freed memory in this worker: its own pool keeps tens of MB."""
    pa.set_memory_pool(pa.system_memory_pool())


def _task_number() -> int:
    """The number of this worker's task, the same if the task is repeated."""
    from pyspark import TaskContext  # noqa: PLC0415 -- a worker has it

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


EVERY_S: Final = 0.5
_NAME: Final = "folded-"


def reporting(folder: Path, task: int) -> Took:
    """Return a callback that writes to a file how many events a task has folded so far; `task`: its number."""
    path = folder / f"{_NAME}{task:06d}"
    told = 0.0

    def report(events: int) -> None:
        nonlocal told
        if monotonic() - told >= EVERY_S:
            path.write_text(str(events))
            told = monotonic()

    return report


def folded(folder: Path) -> int:
    """The events that all tasks have folded so far."""
    events = 0
    for path in folder.glob(f"{_NAME}*"):
        with suppress(ValueError, OSError):  # it is being written
            events += int(path.read_text())
    return events


@contextmanager
def told(folder: Path, watch: Took) -> Iterator[None]:
    """Report the workers' progress to `watch` while this process waits for them."""
    is_over = Event()

    def tell() -> None:
        while not is_over.wait(EVERY_S):
            watch(folded(folder))

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()
