"""Pieces: Parquet files with a log's records in the columns of an archive's segments, and the records of groups in
them.

An archive's segments are used in place; the records of another kind of log are first copied into such files
(`stage.py`), so that the later steps treat both alike. Works on columns; the only values that are decoded are those of
records about whole partitions, which every group of the partition needs (`survey`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from muster.events.keys import EntityKind, decode_key
from muster.events.log.kafka.marks import Marks, is_foreign
from muster.events.records import ForeignRecords, StoredRecord, UndecodableKey
from muster.replay.archive.segment import SCHEMA, Segment, read_batches
from muster.replay.history.items import Read
from muster.replay.logs.sources import read_record
from muster.replay.progress import Watch

COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value")
_OF_THE_MARK: Final = ("headers", "producer_id", "transactional")
_FOR_A_SURVEY: Final = ("partition", "offset", "key")

BATCH_ROWS: Final = 8_192
"""Records per batch."""

RECORDS: Final = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        *(SCHEMA.field(name) for name in ("partition", "offset", "timestamp_ms", "value")),
    ]
)
"""The records of groups, as engines sort them. Tombstones are left out: the event before each has the same information.
"""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """The records in a file of one partition, at offsets from `start` up to `end` (exclusive).

    `marks`: the marks that identify foreign records; None if there are none. `segment`: the manifest's entry for the
    file of an archive; None for a copy of our own.
    """

    path: str
    partition: int
    start: int
    end: int
    marks: Marks | None = None
    segment: Segment | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A survey of the pieces: their groups, and the reads that concern whole partitions. `value_bytes`:
    uncompressed."""

    pieces: tuple[Piece, ...]
    records: int
    value_bytes: int
    groups: set[str]
    shared: dict[int, list[Read]]
    foreign_records: ForeignRecords


def survey(pieces: Sequence[Piece], watch: Watch) -> Survey:
    """Survey pieces that are in offset order. Raises OSError, pyarrow's errors, LogTooNew."""
    found = Survey(
        pieces=tuple(pieces), records=0, value_bytes=0, groups=set(), shared={}, foreign_records=ForeignRecords()
    )
    records = value_bytes = 0
    total = sum(piece.end - piece.start for piece in pieces)
    done = 0
    for piece in pieces:
        records += _look_over(piece, found)
        value_bytes += _value_bytes(Path(piece.path))
        done += piece.end - piece.start
        watch(done, total)
    return msgspec.structs.replace(found, records=records, value_bytes=value_bytes)


def _look_over(piece: Piece, found: Survey) -> int:
    """Survey one piece; return the number of groups' records in it."""
    of_groups = 0
    shared: list[int] = []
    for read in _batches(piece, _FOR_A_SURVEY):
        batch = _of_owners(read, piece.marks, found.foreign_records)
        groups = _groups(batch.column("key"))
        found.groups.update(groups.drop_null().unique().to_pylist())
        of_groups += len(groups) - groups.null_count
        if groups.null_count:
            shared += batch.column("offset").filter(groups.is_null()).to_pylist()
    if shared:
        reads = found.shared.setdefault(piece.partition, [])
        reads.extend(_reads(piece, shared))
    return of_groups


def _reads(piece: Piece, offsets: Sequence[int]) -> Iterator[Read]:
    """Read the records at these offsets, which belong to no group."""
    wanted = pa.array(offsets, pa.int64())
    for batch in read_batches(
        Path(piece.path), start=offsets[0], end=offsets[-1] + 1, rows=BATCH_ROWS, columns=COLUMNS
    ):
        chosen = batch.filter(pc.is_in(batch.column("offset"), value_set=wanted))
        for partition, offset, at_ms, key, value in zip(*(each.to_pylist() for each in chosen.columns), strict=True):
            read = read_record(StoredRecord(partition, offset, at_ms, key or b"", value))
            if read is not None:
                yield read[1]


def _value_bytes(path: Path) -> int:
    metadata = pq.read_metadata(path)
    sizes = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        last = (group.column(index) for index in range(group.num_columns))
        sizes += sum(each.total_uncompressed_size for each in last if each.path_in_schema == "value")
    return sizes


def of_groups(pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """Yield the records of groups (schema RECORDS), in the order of the pieces. Raises OSError and pyarrow's errors."""
    nobody = ForeignRecords()
    for piece in pieces:
        for read in _batches(piece, COLUMNS):
            some = _of_owners(read, piece.marks, nobody)
            if some.column("value").null_count:
                some = some.filter(some.column("value").is_valid())
            groups = _groups(some.column("key"))
            columns = [groups, *(some.column(name) for name in RECORDS.names[1:])]
            found = pa.RecordBatch.from_arrays(columns, names=RECORDS.names)
            if groups.null_count:
                found = found.filter(groups.is_valid())
            if found.num_rows:
                yield found.cast(RECORDS)


def _batches(piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = columns if piece.marks is None else (*columns, *_OF_THE_MARK)
    return read_batches(
        Path(piece.path), piece.segment, start=piece.start, end=piece.end, rows=BATCH_ROWS, columns=wanted
    )


def _groups(keys: pa.Array) -> pa.Array:
    """The group that each key names; null if the record concerns the partition or its key cannot be read.

    Each distinct key is decoded once.
    """
    encoded = keys.dictionary_encode()
    named = pa.array(map(_group_of, encoded.dictionary.to_pylist()), pa.string())
    return named.take(encoded.indices)


@lru_cache(maxsize=32_768)
def _group_of(key: bytes) -> str | None:
    try:
        found = decode_key(key)
    except UndecodableKey:
        return None
    return None if found.kind is EntityKind.PARTITION else found.group_id


# ---- foreign records ----------------------------------------------------------------------------


def _of_owners(batch: pa.RecordBatch, marks: Marks | None, foreign_records: ForeignRecords) -> pa.RecordBatch:
    """Return the records that owners wrote, and note the others. `marks` is updated when the first mark is found."""
    if marks is None:
        return batch
    told = list(_told_apart(batch, marks))
    if all(told):
        return batch
    for row, is_owners in enumerate(told):
        if not is_owners:
            partition, offset = batch.column("partition")[row].as_py(), batch.column("offset")[row].as_py()
            foreign_records.note(StoredRecord(partition, offset, 0, b"", None, is_foreign=True))
    return batch.filter(pa.array(told, pa.bool_()))


def _told_apart(batch: pa.RecordBatch, marks: Marks) -> Iterator[bool]:
    """Yield for each record whether an owner wrote it; consecutive records with equal inputs are checked once."""
    offsets: list[int] = batch.column("offset").to_pylist()
    asked: tuple[Any, ...] | None = None
    answer = False
    for offset, facts in zip(offsets, _facts(batch), strict=True):
        stage = (marks.since is not None and offset >= marks.since, offset >= (marks.native_from or 0), *facts)
        if stage != asked:
            headers, producer_id, transactional = facts
            answer = not is_foreign(offset, headers, marks, producer_id=producer_id, transactional=bool(transactional))
            asked = stage
        yield answer


def _facts(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Each record's headers, producer, and whether it is transactional, as flat tuples because dicts would be slow."""
    headers = batch.column("headers")
    entries = headers.flatten()
    pairs = list(zip(entries.field("key").to_pylist(), entries.field("value").to_pylist(), strict=True))
    begin = headers.offsets[0].as_py()
    bounds = pairwise(at - begin for at in headers.offsets.to_pylist())
    found = [tuple(pairs[start:stop]) for start, stop in bounds]
    return zip(found, batch.column("producer_id").to_pylist(), batch.column("transactional").to_pylist(), strict=True)
