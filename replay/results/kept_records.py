"""Records of groups, kept undecoded until they are told: in memory as long as these are few, else in a temporary file.

What belongs here: keeping much in little room. Which records are kept is for whoever keeps them.

The file is SQLite's own temporary database: it has no name, is nobody else's to read, and is gone with the process. It
is where SQLite puts such files: in SQLITE_TMPDIR or TMPDIR, where they are set, else in /var/tmp.
"""

import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
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
"""Records that are kept in memory, and the bytes of their values."""

_LEVEL: Final = 1
_TABLE: Final = """
    pragma journal_mode = off;
    pragma synchronous = off;
    pragma cache_size = -8000;
    create table blocks (id integer primary key, of_group integer, last_offset integer, records integer, block blob);
    create index by_group on blocks (of_group);
"""
_INSERT: Final = "insert into blocks (of_group, last_offset, records, block) values (?, ?, ?, ?)"
_SELECT: Final = "select block from blocks where of_group = ? order by id"
_BEFORE: Final = "from blocks where of_group = ? and last_offset < ?"


class NoRoomToKeep(EventsError):
    """The temporary file cannot be written."""


class GroupRecords:
    """Records of one group, without what is not needed to tell them: keys and tombstones. Of many groups they are many,
    and so kept in little room.
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
        """The bytes of their values."""
        return sum(map(len, self._values))

    def add(self, records: Sequence[StoredRecord]) -> tuple[int, int]:
        """Take in the next records; returns how many are kept, and their bytes."""
        kept = [record for record in records if record.value is not None]
        values = [record.value or b"" for record in kept]
        self.offsets.extend([record.offset for record in kept])
        self._times.extend([record.timestamp_ms for record in kept])
        self._values += values
        self._partition = kept[-1].partition if kept else self._partition
        return len(values), sum(map(len, values))

    def drop(self, begin: int, end: int) -> tuple[int, int]:
        """Drop those between two places; returns how many there were, and their bytes."""
        dropped = self._values[begin:end]
        del self._values[begin:end], self.offsets[begin:end], self._times[begin:end]
        return len(dropped), sum(map(len, dropped))

    def reads(self) -> Iterator[Told]:
        """Decode them."""
        for offset, timestamp_ms, value in zip(self.offsets, self._times, self._values, strict=True):
            position = LogPosition(partition=self._partition, offset=offset, timestamp_ms=timestamp_ms)
            yield read_value(value, position, of_partition=False)

    def pack(self) -> bytes:
        """All of them, compressed."""
        lengths = array("q", map(len, self._values))
        numbers = (each.tobytes() for each in (self.offsets, self._times, lengths))
        packed = msgspec.msgpack.encode((self._partition, *numbers, b"".join(self._values)))
        return bytes(cramjam.zstd.compress(packed, level=_LEVEL))

    @classmethod
    def unpack(cls, block: bytes) -> "GroupRecords":
        """Make those that were packed."""
        records, lengths = cls(), array("q")
        records._partition, *numbers, values = _PACKED.decode(bytes(cramjam.zstd.decompress(block)))
        for each, packed in zip((records.offsets, records._times, lengths), numbers, strict=True):
            each.frombytes(packed)
        ends = list(accumulate(lengths))
        records._values = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return records


_PACKED: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes, bytes, bytes])


class KeptRecords:
    """The records of many groups, each known by a number."""

    def __init__(self) -> None:
        self._by_group: dict[int, GroupRecords] = {}
        self._records = 0
        self._bytes = 0
        self._in_file: Counter[int] = Counter()
        self._file: _File | None = None

    def count(self, group: int) -> int:
        """How many of a group are kept, about."""
        return len(self._by_group.get(group, ())) + self._in_file[group]

    def add(self, group: int, records: Sequence[StoredRecord]) -> None:
        """Keep the next records of a group. Raises NoRoomToKeep."""
        in_memory = self._by_group.get(group)
        if in_memory is None:
            in_memory = self._by_group[group] = GroupRecords()
        self._note(*in_memory.add(records))
        if self._records >= IN_MEMORY_MAX or self._bytes >= IN_MEMORY_BYTES:
            self._write()

    def drop(self, group: int, before: int) -> None:
        """Drop what a group has before an offset, as far as that makes room."""
        in_memory = self._by_group.get(group)
        if in_memory is not None:
            dropped, size = in_memory.drop(0, bisect_left(in_memory.offsets, before))
            self._note(-dropped, -size)
        if self._file is not None and group in self._in_file:
            self._in_file[group] -= self._file.drop(group, before)

    def take(self, group: int) -> Iterator[Told]:
        """Give what a group has, and keep it no longer."""
        if self._file is not None and self._in_file.pop(group, 0):
            for block in self._file.blocks(group):
                yield from GroupRecords.unpack(block).reads()
        in_memory = self._by_group.pop(group, None)
        if in_memory is not None:
            self._note(-len(in_memory), -in_memory.size)
            yield from in_memory.reads()

    def close(self) -> None:
        """Give up what is left, and the file."""
        self._by_group.clear()
        if self._file is not None:
            self._file.close()

    def _note(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size

    def _write(self) -> None:
        """Move what is in memory into the file."""
        if self._file is None:
            self._file = _File()
        full = [(group, records) for group, records in self._by_group.items() if len(records)]
        self._file.write((group, records.offsets[-1], len(records), records.pack()) for group, records in full)
        self._in_file.update({group: len(records) for group, records in full})
        self._by_group.clear()
        self._records = self._bytes = 0


class _File:
    """The temporary file: blocks of records, each of one group."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        with _said():
            self._database.executescript(_TABLE)

    def write(self, blocks: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Write blocks: the number of a group, the offset of its last record, how many records it has, and these."""
        with _said():
            self._database.execute("begin")
            self._database.executemany(_INSERT, blocks)
            self._database.execute("commit")

    def drop(self, group: int, before: int) -> int:
        """Drop the blocks of a group that end before an offset; returns how many records they had."""
        with _said():
            ((dropped,),) = self._database.execute(f"select total(records) {_BEFORE}", (group, before))
            self._database.execute(f"delete {_BEFORE}", (group, before))
        return int(dropped)

    def close(self) -> None:
        """Close it; it is gone then."""
        self._database.close()

    def blocks(self, group: int) -> Iterator[bytes]:
        """The blocks of a group, in order."""
        for (block,) in self._database.execute(_SELECT, (group,)):
            yield block


@contextmanager
def _said() -> Iterator[None]:
    """Write into it. Raises NoRoomToKeep."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise NoRoomToKeep(
            f"what is told does not fit into memory, and the temporary file for it cannot be written: {error};"
            " TMPDIR says where it is"
        ) from error
