"""Records of groups, kept undecoded until they are needed: in memory while they are few, then in a temporary file.

The caller decides which records are kept. The file is SQLite's own temporary database: it has no name, no other process
can open it, and it disappears with the process. SQLite puts it into SQLITE_TMPDIR or TMPDIR if one is set, else into
/var/tmp.
"""

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

import cramjam
import msgspec

from muster.events.records import EventsError, StoredRecord
from muster.replay.history.items import LogPosition, Told
from muster.replay.logs.sources import read_value

IN_MEMORY_MAX: Final = 50_000
IN_MEMORY_BYTES: Final = 15_000_000
"""The limits of records in memory: their number, and the bytes of their values."""

_LEVEL: Final = 1
_TABLE: Final = """
    pragma journal_mode = off;
    pragma synchronous = off;
    pragma cache_size = -8000;
    create table blocks (id integer primary key, of_group integer, last_offset integer, block blob);
    create index by_group on blocks (of_group);
"""
_INSERT: Final = "insert into blocks (of_group, last_offset, block) values (?, ?, ?)"
_SELECT: Final = "select block from blocks where of_group = ? order by id"
_DROP: Final = "delete from blocks where of_group = ? and last_offset < ?"


class NoRoomToKeep(EventsError):
    """The temporary file cannot be written."""


class GroupRecords:
    """The records of one group, without their keys and without tombstones, which are not needed later. They are in
    compact arrays, since there may be many groups with many records.
    """

    def __init__(self) -> None:
        self.offsets = array("q")
        self._times = array("q")
        self._values: list[bytes] = []
        self._partition = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """The bytes of the values."""
        return sum(map(len, self._values))

    def add(self, records: Sequence[StoredRecord]) -> tuple[int, int]:
        """Add the next records; return how many are kept, and their bytes."""
        kept = [record for record in records if record.value is not None]
        values = [record.value or b"" for record in kept]
        self.offsets.extend([record.offset for record in kept])
        self._times.extend([record.timestamp_ms for record in kept])
        self._values += values
        self._partition = kept[-1].partition if kept else self._partition
        return len(values), sum(map(len, values))

    def drop(self, begin: int, end: int) -> tuple[int, int]:
        """Drop the records between two indexes; return how many there were, and their bytes."""
        dropped = self._values[begin:end]
        del self._values[begin:end], self.offsets[begin:end], self._times[begin:end]
        return len(dropped), sum(map(len, dropped))

    def reads(self) -> Iterator[Told]:
        """Decode the records."""
        for offset, timestamp_ms, value in zip(self.offsets, self._times, self._values, strict=True):
            position = LogPosition(partition=self._partition, offset=offset, timestamp_ms=timestamp_ms)
            yield read_value(value, position, of_partition=False)

    def pack(self) -> bytes:
        """Return all records, compressed."""
        lengths = array("q", map(len, self._values))
        numbers = (each.tobytes() for each in (self.offsets, self._times, lengths))
        packed = msgspec.msgpack.encode((self._partition, *numbers, b"".join(self._values)))
        return bytes(cramjam.zstd.compress(packed, level=_LEVEL))

    @classmethod
    def unpack(cls, block: bytes) -> "GroupRecords":
        """Restore packed records."""
        records, lengths = cls(), array("q")
        records._partition, *numbers, values = _PACKED.decode(bytes(cramjam.zstd.decompress(block)))
        for each, packed in zip((records.offsets, records._times, lengths), numbers, strict=True):
            each.frombytes(packed)
        ends = list(accumulate(lengths))
        records._values = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return records


_PACKED: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes, bytes, bytes])


class KeptRecords:
    """The records of many groups, each group identified by a number."""

    def __init__(self) -> None:
        self._by_group: dict[int, GroupRecords] = {}
        self._records = 0
        self._bytes = 0
        self._in_file: set[int] = set()
        self._file: _File | None = None

    def add(self, group: int, records: Sequence[StoredRecord]) -> None:
        """Keep the next records of a group. Raises NoRoomToKeep."""
        in_memory = self._by_group.get(group)
        if in_memory is None:
            in_memory = self._by_group[group] = GroupRecords()
        self._note(*in_memory.add(records))
        if self._records >= IN_MEMORY_MAX or self._bytes >= IN_MEMORY_BYTES:
            self._write()

    def drop(self, group: int, before: int) -> None:
        """Drop a group's records before an offset; in the file only whole blocks are dropped."""
        in_memory = self._by_group.get(group)
        if in_memory is not None:
            dropped, size = in_memory.drop(0, bisect_left(in_memory.offsets, before))
            self._note(-dropped, -size)
        if self._file is not None and group in self._in_file:
            self._file.drop(group, before)

    def take(self, group: int) -> Iterator[Told]:
        """Yield the records of a group, and drop them."""
        if self._file is not None and group in self._in_file:
            self._in_file.remove(group)
            for block in self._file.blocks(group):
                yield from GroupRecords.unpack(block).reads()
        in_memory = self._by_group.pop(group, None)
        if in_memory is not None:
            self._note(-len(in_memory), -in_memory.size)
            yield from in_memory.reads()

    def close(self) -> None:
        """Drop all records, and the file."""
        self._by_group.clear()
        if self._file is not None:
            self._file.close()

    def _note(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size

    def _write(self) -> None:
        """Move the records in memory into the file."""
        if self._file is None:
            self._file = _File()
        full = [(group, records) for group, records in self._by_group.items() if len(records)]
        self._file.write((group, records.offsets[-1], records.pack()) for group, records in full)
        self._in_file.update(group for group, _ in full)
        self._by_group.clear()
        self._records = self._bytes = 0


class _File:
    """The temporary file: blocks of records, each of one group."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        with _said():
            self._database.executescript(_TABLE)

    def write(self, blocks: Iterable[tuple[int, int, bytes]]) -> None:
        """Write blocks: group number, last offset, packed records."""
        with _said():
            self._database.execute("begin")
            self._database.executemany(_INSERT, blocks)
            self._database.execute("commit")

    def drop(self, group: int, before: int) -> None:
        """Drop the blocks of a group that end before an offset."""
        with _said():
            self._database.execute(_DROP, (group, before))

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._database.close()

    def blocks(self, group: int) -> Iterator[bytes]:
        """Yield the blocks of a group, in order."""
        for (block,) in self._database.execute(_SELECT, (group,)):
            yield block


@contextmanager
def _said() -> Iterator[None]:
    """Convert SQLite's errors. Raises NoRoomToKeep."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise NoRoomToKeep(
            f"the result does not fit into memory, and its temporary file cannot be written: {error};"
            " TMPDIR sets its folder"
        ) from error
