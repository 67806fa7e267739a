"""The pieces of a log: an archive's segments in place, or another log's records copied into such files, undecoded.

Both start at the offsets that the previous build reached, so that a build reads only new records.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from muster.events.log.base import EventLog
from muster.events.records import ForeignRecords, StoredRecord
from muster.replay.archive.log import ArchiveLog
from muster.replay.archive.segment import SCHEMA
from muster.replay.fleet.building.pieces import COLUMNS, Piece
from muster.replay.logs.reading import Reading
from muster.replay.progress import Watch

ROWS_MAX: Final = 16_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""The limits of a staged file; its records are buffered until it is written."""

STAGED: Final = pa.schema([SCHEMA.field(name) for name in COLUMNS])


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces, in offset order, and what was left out: foreign records and unreadable parts."""

    pieces: tuple[Piece, ...]
    foreign_records: ForeignRecords
    damage: tuple[str, ...]


async def stage(
    log: EventLog, folder: Path, *, since: Mapping[int, int], ends: Mapping[int, int], watch: Watch
) -> Staged:
    """Return the log's records from `since` up to `ends`, by partition. `folder`: for copies. Raises the log's
    errors."""
    if isinstance(log, ArchiveLog):
        found = (
            Piece(
                path=str(log.root / segment.path),
                partition=partition,
                start=since.get(partition, 0),
                end=end,
                marks=marks,
                segment=segment,
            )
            for partition, end in ends.items()
            for segment, marks in log.segments(partition, start=since.get(partition, 0), end=end)
        )
        return Staged(pieces=tuple(found), foreign_records=ForeignRecords(), damage=tuple(_expired_unread(log, since)))
    reading = Reading(log=log, foreign_records=ForeignRecords())
    total = sum(end - since.get(partition, 0) for partition, end in ends.items())
    staging = _Staging(folder)
    done = 0
    for partition, end in ends.items():
        start = since.get(partition, 0)
        async for chunk in reading.chunks([partition], start=start, end=end):
            for record in chunk:
                staging.add(record)
            if chunk:
                watch(done + chunk[-1].offset + 1 - start, total)
        staging.flush()
        done += max(0, end - start)
    return Staged(pieces=tuple(staging.pieces), foreign_records=reading.foreign_records, damage=tuple(reading.damage))


def _expired_unread(log: ArchiveLog, since: Mapping[int, int]) -> Iterator[str]:
    """Report records that were expired from an archive before this build could read them."""
    for partition, start in since.items():
        end = log.expired_end(partition)
        if start < end:
            yield (
                f"{log.location}: partition {partition} up to offset {end} was expired before it was built from"
                f" offset {start} on: what happened there is in no table"
            )


class _Staging:
    """Writes files, each with records of one partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[StoredRecord] = []
        self._kept_bytes = 0
        self.pieces: list[Piece] = []

    def add(self, record: StoredRecord) -> None:
        self._rows.append(record)
        self._kept_bytes += len(record.key) + len(record.value or b"")
        if len(self._rows) >= ROWS_MAX or self._kept_bytes >= BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        path = self._folder / f"staged-{len(self.pieces):06d}.parquet"
        columns: list[list[Any]] = [[getattr(record, name) for record in self._rows] for name in COLUMNS]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=STAGED), path, compression="lz4")
        first, last = self._rows[0], self._rows[-1]
        piece = Piece(path=str(path), partition=first.partition, start=first.offset, end=last.offset + 1)
        self.pieces.append(piece)
        self._rows, self._kept_bytes = [], 0
