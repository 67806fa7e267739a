"""Writes records of one partition, in offset order, to segments; both engines use this.

A segment ends when it is large enough, or when its day is over. A partition's days never go back: a record with an
earlier day than the previous record is put in that one's day, and no record is put in a day after tomorrow, whatever
its timestamp. So each day of a partition is a range of offsets.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from muster.events.log.base import LogDamaged
from muster.replay.archive.files import Disk
from muster.replay.archive.segment import ROW_GROUP_BYTES, Segment, SegmentWriter, day_number, day_text
from muster.replay.text.times import DAY_MS

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024


class PartitionWriter:
    """Takes a partition's records from an offset on, and returns segments as they are finished.

    `day`: the day of the partition's last segment; `now_ms`: wall clock.
    """

    def __init__(
        self,
        root: Path,
        partition: int,
        *,
        start: int,
        day: str | None,
        now_ms: int,
        disk: Disk,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
    ) -> None:
        self._root, self._partition, self._disk = root, partition, disk
        self._bytes_max = segment_bytes_max
        self._tomorrow = now_ms // DAY_MS + 1
        self._day = 0 if day is None else day_number(day)
        self._start = start
        """The first offset that the current or next segment covers."""
        self._next = start
        self._open: SegmentWriter | None = None

    def add(self, batch: pa.RecordBatch) -> Iterator[Segment]:
        """Add records; those before the next offset are skipped as duplicates. Raises LogDamaged if they are out of
        order."""
        offsets = batch.column("offset")
        if batch.num_rows and offsets[0].as_py() < self._next:
            batch = batch.filter(pc.greater_equal(offsets, self._next))
        if not batch.num_rows:
            return
        self._check_order(batch)
        for day, some in self._by_day(batch):
            if self._open is not None and (day != self._day or self._open.bytes >= self._bytes_max):
                yield self._finished()
            self._day = day
            if self._open is None:
                self._open = SegmentWriter(self._root, self._partition, day_text(day), self._disk)
            for piece in _pieces(some):
                self._open.write(piece)
            self._next = some.column("offset")[-1].as_py() + 1

    def finish(self) -> Iterator[Segment]:
        """Finish the last segment, if there is one."""
        if self._open is not None:
            yield self._finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove an unfinished segment."""
        if self._open is not None:
            self._open.abandon()

    def _finished(self) -> Segment:
        assert self._open is not None
        segment = self._open.finish(start=self._start, end=self._next)
        self._open, self._start = None, self._next
        return segment

    def _by_day(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        days = pc.min_element_wise(pc.divide(batch.column("timestamp_ms"), DAY_MS), self._tomorrow)
        days = pc.cumulative_max(pc.max_element_wise(days, self._day))
        runs = pc.run_end_encode(days)
        begin = 0
        for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield day, batch.slice(begin, end - begin)
            begin = end

    def _check_order(self, batch: pa.RecordBatch) -> None:
        offsets, is_ours = batch.column("offset"), pc.equal(batch.column("partition"), self._partition)
        follows = pc.less(offsets.slice(0, len(offsets) - 1), offsets.slice(1))
        if not (pc.all(is_ours).as_py() and pc.all(follows, min_count=0).as_py()):
            raise LogDamaged(
                f"the records of partition {self._partition} came out of order, between the offsets {offsets[0]} and"
                f" {offsets[-1]}: nothing of them was archived"
            )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of about a row group's size: fewer rows if records are large."""
    rows = max(1, batch.num_rows * ROW_GROUP_BYTES // max(batch.nbytes, ROW_GROUP_BYTES))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)
