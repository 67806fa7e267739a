"""The archiver on Spark: Structured Streaming from the event topic, with Spark's own Kafka source.

Workers write a batch: one task writes each partition's records to segments, in offset order. The metadata of the
segments is returned to the driver, which makes one commit of it. So workers need access to the archive's folder, and to
nothing else.

* Spark's checkpoint is not used: each run starts where the manifests end, with a new checkpoint that it deletes at the
  end. Records read twice are skipped by offset. A run stops at the end of the topic, so that others can write the
  archive between runs.
* The source gives one task the records of one partition, in order, and no shuffle follows. The writer checks this, and
  refuses anything else.
* Before each commit the topic is looked up: if it was deleted and recreated, it has another identity, and its records
  must not be added to the archive.
* The source does not report which producer wrote a batch, so copies of an owner's records that another producer wrote
  are not recognised (see events/log/kafka/marks.py); `fleet verify` finds them by their sequence numbers.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from muster.events.log.base import EventLog, LogError, LogMismatch, LogUnavailable, OwnersMarks, RawLog
from muster.replay.archive.commits import ArchiveWriter, Change, writing
from muster.replay.archive.deleted import DeletedRecords, deleted_before, deletion_text
from muster.replay.archive.files import DISK
from muster.replay.archive.local import ArchivedRun, archived_log, ends_of, last_days
from muster.replay.archive.segment import SCHEMA, Segment
from muster.replay.archive.writer import PartitionWriter
from muster.replay.fleet.archive.connector import PACKAGE
from muster.replay.fleet.session import in_a_line, reason_of
from muster.replay.progress import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BATCH_OFFSETS_MAX: Final = 2_000_000
ARROW_ROWS: Final = 10_000
ARROW_BYTES: Final = 16 * 1024 * 1024
"""The limits of a batch for a worker, in records and in bytes: a batch of large records has fewer of them."""
POLLED_RECORDS: Final = 5_000
"""How many records Spark's consumer returns per poll; with Kafka's default of 500 it would send more fetches."""

COLUMNS: Final = (
    "partition",
    "offset",
    "unix_millis(timestamp) AS timestamp_ms",
    "key",
    "coalesce(headers, array()) AS headers",
    "value",
)


class TaskPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The position in a partition at which a task continues."""

    start: int
    day: str | None


class KafkaSource(msgspec.Struct, frozen=True, kw_only=True):
    """The topic, with the options of Spark's source, and a function that opens the log with our own reader."""

    servers: str
    topic: str
    options: Mapping[str, str]
    open_log: Callable[[], EventLog]


def archive(source: KafkaSource, root: Path, session: "SparkSession", *, watch: Watch) -> ArchivedRun:
    """Archive what the topic has now; the session may be reused. Raises like `local.archive`, and SparkFailed."""
    with writing(root, make=True) as writer, tempfile.TemporaryDirectory(prefix="muster-fleet-") as checkpoint:
        run = _Run(source, writer, watch)
        run.look_up()
        with in_a_line("Spark could not archive"):
            session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
            session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
            stream = _stream(session, source, writer).writeStream.foreachBatch(run.take).trigger(availableNow=True)
            query = stream.option("checkpointLocation", Path(checkpoint).as_uri()).start()
        _await(query, run)
        return run.done()


def _stream(session: "SparkSession", source: KafkaSource, writer: ArchiveWriter) -> "DataFrame":
    from pyspark.errors import AnalysisException  # noqa: PLC0415 -- an extra

    # Compaction may have removed the next records of the archive: that is not an error, and manifests show it.
    reader = session.readStream.format("kafka").options(**source.options).option("failOnDataLoss", "false")
    reader = reader.option("kafka.max.poll.records", str(POLLED_RECORDS))
    starts = {str(partition): offset for partition, offset in writer.state.next_offsets.items()}
    partitions = sorted(writer.state.next_offsets)
    reader = reader.option("kafka.bootstrap.servers", source.servers).option("includeHeaders", "true")
    reader = reader.option("assign", json.dumps({source.topic: partitions}))
    reader = reader.option("startingOffsets", json.dumps({source.topic: starts}))
    try:
        frame: DataFrame = reader.option("maxOffsetsPerTrigger", str(BATCH_OFFSETS_MAX)).load()
    except AnalysisException as error:
        raise LogMismatch(f"Spark has no Kafka source: say --packages {PACKAGE} to spark-submit") from error
    return frame.selectExpr(*COLUMNS)


def _await(query: Any, run: "_Run") -> None:  # noqa: ANN401 -- pyspark's StreamingQuery
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    with in_a_line("Spark could not archive"):
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if run.failure is not None:
                raise run.failure from error
            raise LogUnavailable(f"Spark gave up: {reason_of(error)}") from error
        finally:
            query.stop()


class _Run:
    """The driver's part: handles each batch."""

    def __init__(self, source: KafkaSource, writer: ArchiveWriter, watch: Watch) -> None:
        self._source, self._writer, self._watch = source, writer, watch
        self._added: list[Segment] = []
        self._marks: dict[int, OwnersMarks] = {}
        self._deleted: list[DeletedRecords] = []
        self._damage: list[str] = []
        self.failure: LogError | None = None

    def look_up(self, firsts: Mapping[int, int] = MappingProxyType({})) -> None:
        """Check that the topic is still the archived one, and find the owners' marks in partitions and what was
        deleted.

        `firsts`: the first offset that was read of each partition; empty before the run, when all partitions are looked
        at. The marks are searched for once per run, which decodes a batch of each partition. Raises LogError.
        """
        asyncio.run(self._look_up(firsts))

    async def _look_up(self, firsts: Mapping[int, int]) -> None:
        log = self._source.open_log()
        await log.open()
        try:
            state = self._writer.begin(archived_log(log))
            ends = await ends_of(log, state)
            done = sum(state.next_offsets.values())
            self._watch(done, sum(ends.values()))
            if isinstance(log, RawLog):
                for partition in firsts.keys() - self._marks.keys():
                    self._marks[partition] = await log.owners_marks(partition)
            for partition, end in (firsts or ends).items():
                found = await deleted_before(log, partition, state.next_offset(partition), end, known=state.deleted)
                if found is not None:
                    self._deleted.append(found)
        finally:
            await log.close()

    def take(self, frame: "DataFrame", _batch_id: int) -> None:
        """Archive a batch."""
        try:
            state = self._writer.state
            days = last_days(state)
            places = {p: TaskPlace(start=start, day=days.get(p)) for p, start in state.next_offsets.items()}
            write = _writing_segments(self._writer.root, places, self._writer.now_ms)
            rows = frame.mapInArrow(write, "segment string").collect()
            added = sorted(
                (msgspec.json.decode(row.segment, type=Segment) for row in rows), key=lambda s: (s.partition, s.start)
            )
            if added:
                self.look_up({segment.partition: segment.first for segment in reversed(added)})
                self._commit(added)
        except LogError as error:
            self.failure = error
            raise

    def _commit(self, added: Sequence[Segment]) -> None:
        self._writer.commit(Change(action="archive", added=added, deleted=self._deleted, marks=self._marks))
        self._added += added
        if self._deleted:
            self._damage.append(deletion_text(self._source.topic, self._deleted))
            self._deleted = []

    def done(self) -> ArchivedRun:
        """Commit the deletions in partitions without new records; return the result."""
        if self._deleted:
            self._commit(())
        return ArchivedRun.of(self._added, self._writer.state, self._damage)


def _writing_segments(
    root: Path, places: Mapping[int, TaskPlace], now_ms: int
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """Return the function of a task, which writes the records of one partition to segments and returns their
    metadata."""

    def run(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return write_segments(root, places, now_ms, batches)

    return run


def write_segments(
    root: Path, places: Mapping[int, TaskPlace], now_ms: int, batches: Iterable["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    """Write the segments of one partition; yields their metadata as JSON. Raises LogDamaged if the order is broken."""
    import pyarrow as pa  # noqa: PLC0415 -- an extra

    wanted = (batch for batch in batches if batch.num_rows)
    first = next(wanted, None)
    if first is None:
        return
    partition = first.column("partition")[0].as_py()
    place = places[partition]
    with PartitionWriter(root, partition, start=place.start, day=place.day, now_ms=now_ms, disk=DISK) as writer:
        finished: list[Segment] = []
        for batch in _all(first, wanted):
            finished += writer.add(_in_our_columns(batch))
        finished += writer.finish()
    facts = [msgspec.json.encode(segment).decode() for segment in finished]
    yield pa.RecordBatch.from_arrays([pa.array(facts, pa.string())], names=["segment"])


def _all(first: "pa.RecordBatch", others: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    yield first
    yield from others


def _in_our_columns(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Add the columns that the source does not have, as null."""
    import pyarrow as pa  # noqa: PLC0415

    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
