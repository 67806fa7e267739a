"""An archive as a read-only event log: `--log archive:/path`.

Returns the records of segments as a log's readers expect them; foreign records are recognised by the rule of
events/log/kafka/marks.py, whose inputs are in the manifests.

If `compact` replaces a file during a long read, the reader reloads the manifests and continues at the same offset.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from muster.events.keys import KEY_HEADER
from muster.events.log.base import LogDamaged, LogMismatch, OwnersMarks
from muster.events.log.kafka.marks import Marks, is_foreign
from muster.events.log.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from muster.events.log.only_read import OnlyReadLog
from muster.events.records import RawRecord, StoredRecord
from muster.replay.archive import manifest as manifests
from muster.replay.archive.deleted import deletion_text
from muster.replay.archive.manifest import State
from muster.replay.archive.segment import Segment, read_batches, records_of

_READ_ROWS: Final = CHUNK_RECORDS_MAX
_LOOK_AGAIN_TIMES: Final = 5

Choose = Callable[[pa.RecordBatch], pa.RecordBatch]


class ArchiveLog(OnlyReadLog):
    """An EventLog that can only be read."""

    def __init__(self, root: Path) -> None:
        super().__init__(f"the archive {root}")
        self._root = root
        self._state: State | None = None
        self._ordered: dict[int, list[Segment]] = {}

    @property
    def root(self) -> Path:
        """The archive's folder."""
        return self._root

    @property
    def location(self) -> str:
        return f"archive:{self._root}"

    @property
    def source(self) -> str:
        """The location of the archived log."""
        return self._opened().log.location

    @property
    def identity(self) -> str:
        """The identity of the archived log."""
        return self._opened().log.identity

    @property
    def partitions(self) -> int:
        return self._opened().log.partitions

    @property
    def warnings(self) -> Sequence[str]:
        """Name the records that were deleted before they were archived.

        Expired days look like compacted history, and `fleet verify` names them.
        """
        deleted = () if self._state is None else self._state.deleted
        return (deletion_text(self.source, deleted),) if deleted else ()

    async def open(self) -> None:
        """See EventLog. Raises LogMissing, LogDamaged, LogMismatch."""
        try:
            self.use(manifests.opened(self._root))
        except OSError as error:
            raise LogMismatch(f"the archive {self._root} cannot be read: {error.strerror}") from error

    async def has_owners_record(self, partition: int) -> bool:
        return bool(self._opened().of_partition(partition))

    async def end_offset(self, partition: int) -> int:
        """See EventLog: an archive may grow while it is read."""
        if manifests.path_of(self._root, self._opened().number + 1).exists():
            await self.open()
        return self._opened().next_offset(partition)

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        for chunk in self._stored(partition, start, end, lambda batch: batch):
            yield chunk

    async def read_wanted(
        self, partition: int, wanted: Sequence[bytes], *, start: int, end: int
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See SearchableLog."""
        for chunk in self._stored(partition, start, end, lambda batch: _with_keys(batch, wanted)):
            yield chunk

    async def read_raw(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[RawRecord]]:
        """See RawLog."""
        for batch in self._batches(partition, start, end):
            yield records_of(batch)

    async def owners_marks(self, partition: int) -> OwnersMarks:
        """See RawLog: the marks known when the archive was last written."""
        return self._opened().marks.get(partition, OwnersMarks())

    def segments(self, partition: int, *, start: int, end: int) -> Iterator[tuple[Segment, Marks | None]]:
        """The segments with offsets from `start` up to `end` (exclusive), in order, and the marks for foreign records.

        All segments share one Marks object, which the caller updates when it reads them in order and finds the first
        mark.
        """
        marks = marks_of(self._opened(), partition)
        for segment in self._opened().of_partition(partition):
            if segment.first < end and segment.last >= start:
                yield segment, marks

    def expired_end(self, partition: int) -> int:
        """The offset before which `expire` has removed all records of a partition; 0 if none."""
        expired = self._opened().expired.get(partition)
        return 0 if expired is None else expired.end

    def use(self, state: State) -> None:
        """Open the log with a state that has already been read."""
        self._state, self._ordered = state, {}

    def _stored(self, partition: int, start: int, end: int | None, choose: Choose) -> Iterator[Sequence[StoredRecord]]:
        marks = marks_of(self._opened(), partition)
        for batch in self._batches(partition, start, end):
            chosen = choose(batch)
            if chosen.num_rows:
                yield stored_records(chosen, marks)

    def _batches(self, partition: int, start: int, end: int | None) -> Iterator[pa.RecordBatch]:
        """Read the partition's records as columns, in small batches."""
        position, tries = start, 0
        until = self._opened().next_offset(partition) if end is None else end
        while segment := self._segment_at(partition, position, until):
            try:
                for batch in read_batches(
                    self._root / segment.path, segment, start=position, end=until, rows=_READ_ROWS
                ):
                    position = batch.column("offset")[-1].as_py() + 1
                    yield from _small(batch)
                position = segment.end
            except FileNotFoundError as error:
                self.use(manifests.opened(self._root))
                tries += 1
                if tries > _LOOK_AGAIN_TIMES:
                    raise LogDamaged(f"{self._root / segment.path} is missing; fleet verify tells what else") from error

    def _segment_at(self, partition: int, position: int, until: int) -> Segment | None:
        """The segment that contains the position, or else the first one after it."""
        if partition not in self._ordered:
            self._ordered[partition] = self._opened().of_partition(partition)
        segments = self._ordered[partition]
        at = bisect_right(segments, position, key=lambda segment: segment.end)
        return segments[at] if at < len(segments) and max(segments[at].start, position) < until else None

    def _opened(self) -> State:
        assert self._state is not None, "the archive is not open"
        return self._state


def marks_of(state: State, partition: int) -> Marks | None:
    """The marks that identify foreign records of the partition; None if only owners write to the log."""
    noted = state.marks.get(partition)
    return None if noted is None else Marks(since=noted.since, native_from=noted.native_from, home=noted.home)


def stored_records(batch: pa.RecordBatch, marks: Marks | None) -> list[StoredRecord]:
    """The records as other logs return them. `marks` is updated when the first mark is found."""
    return [_stored(record, marks) for record in records_of(batch)]


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of about CHUNK_BYTES_MAX: fewer rows if records are large."""
    rows = max(1, batch.num_rows * CHUNK_BYTES_MAX // max(batch.nbytes, CHUNK_BYTES_MAX))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _with_keys(batch: pa.RecordBatch, wanted: Sequence[bytes]) -> pa.RecordBatch:
    """The rows whose key begins with one of `wanted`, or is not one of Muster's."""
    keys = batch.column("key")
    mask = pc.invert(pc.starts_with(keys, KEY_HEADER))
    for prefix in wanted:
        mask = pc.or_(mask, pc.starts_with(keys, prefix))
    return batch.filter(pc.or_kleene(mask, pc.is_null(keys)))


def _stored(record: RawRecord, marks: Marks | None) -> StoredRecord:
    key = record.key or b""
    if marks is not None and is_foreign(
        record.offset,
        record.headers,
        marks,
        producer_id=record.producer_id,
        transactional=bool(record.transactional),
    ):
        return StoredRecord(record.partition, record.offset, record.timestamp_ms, key, None, is_foreign=True)
    return StoredRecord(record.partition, record.offset, record.timestamp_ms, key, record.value)
