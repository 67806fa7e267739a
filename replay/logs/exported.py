"""Exports (`exports.py`) as logs that are only read.

What is there when the file is opened is read. A file that ends in the middle of a record, or has a part that cannot be
read, is read as far as that; `warnings` says so afterwards, with the offset in bytes.
"""

import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

import msgspec

from muster.events.log.base import LogMismatch
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.log.only_read import OnlyReadLog
from muster.events.records import BrokenRecord, StoredRecord
from muster.replay.logs.exports import FORM, ExportedLine, Head

_CANNOT_DECODE: Final = (BrokenRecord, msgspec.DecodeError, ValueError)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the file with records of one partition. `first` and `last` are offsets in it; `at` and `end` bytes."""

    partition: int
    first: int
    last: int
    at: int
    end: int


class _Form(Protocol):
    """How the records stand in the file."""

    def head(self, file: IO[bytes]) -> Head:
        """Read which log was exported; the file stands behind it then. Raises one of _CANNOT_DECODE."""
        ...

    def sections(self, file: IO[bytes]) -> Iterator[Section]:
        """The sections from here on; raises one of _CANNOT_DECODE where the file is broken."""
        ...

    def records(self, file: IO[bytes], section: Section) -> Iterator[StoredRecord]:
        """The records of a section. Raises one of _CANNOT_DECODE."""
        ...


class ExportedLog(OnlyReadLog):
    """An EventLog that can only be read."""

    def __init__(self, path: Path, suffix: str) -> None:
        super().__init__(f"the export {path}")
        self._path = path
        self._form: _Form = JsonLinesForm() if suffix == ".jsonl" else ContainerForm()
        self._head: Head | None = None
        self._sections: dict[int, list[Section]] = {}
        self._damage: str | None = None
        self._damaged_at = 0

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def identity(self) -> str:
        """The identity of the log that was exported."""
        return self._opened().identity

    @property
    def partitions(self) -> int:
        return self._opened().partitions

    @property
    def warnings(self) -> Sequence[str]:
        """The damage, once it was met."""
        return () if self._damage is None else (self._damage,)

    async def open(self) -> None:
        """See EventLog: find out what is where. Raises LogMismatch."""
        try:
            with self._path.open("rb") as file:
                self._head = self._read_head(file)
                self._find_sections(file)
        except OSError as error:
            raise LogMismatch(f"the export {self._path} cannot be read: {error.strerror}") from error

    def _read_head(self, file: IO[bytes]) -> Head:
        try:
            head = self._form.head(file)
        except _CANNOT_DECODE as error:
            raise LogMismatch(f"{self._path} is no export of muster replay: {error}") from error
        if head.form != FORM:
            raise LogMismatch(f"{self._path} is an export of the form {head.form!r}, this version knows {FORM}")
        return head

    def _find_sections(self, file: IO[bytes]) -> None:
        at = file.tell()
        try:
            for section in self._form.sections(file):
                self._sections.setdefault(section.partition, []).append(section)
                at = section.end
        except _CANNOT_DECODE as error:
            self._note(at, error)

    def _note(self, at: int, error: Exception) -> None:
        if self._damage is not None and self._damaged_at <= at:
            return
        self._damaged_at = at
        self._damage = f"the export {self._path} is broken or cut off at byte {at}: {error}. What is there was left out"

    async def has_owners_record(self, partition: int) -> bool:
        return bool(self._sections.get(partition))

    async def end_offset(self, partition: int) -> int:
        sections = self._sections.get(partition)
        return max(section.last for section in sections) + 1 if sections else 0

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        chunk: list[StoredRecord] = []
        with self._path.open("rb") as file:
            for section in self._sections.get(partition, ()):
                if section.last < start or (end is not None and section.first >= end):
                    continue
                try:
                    for record in self._form.records(file, section):
                        if start <= record.offset and (end is None or record.offset < end):
                            chunk.append(record)
                        if len(chunk) >= CHUNK_RECORDS_MAX:
                            yield chunk
                            chunk = []
                except _CANNOT_DECODE as error:
                    self._note(section.at, error)
        if chunk:
            yield chunk

    def _opened(self) -> Head:
        assert self._head is not None, "the export is not open"
        return self._head


_LINES_PER_SECTION: Final = 1_000


class JsonLinesForm:
    """See `exports.py`. A line is at most so long as a record in base64 (`LINE_BYTES_MAX`)."""

    LINE_BYTES_MAX: Final = 128 * 1024 * 1024

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(ExportedLine)
        self._places = msgspec.json.Decoder(_PlaceOfLine)
        self._line_at = 0
        """The offset of the line that was read last."""

    def head(self, file: IO[bytes]) -> Head:
        return msgspec.json.decode(self._line(file), type=Head)

    def sections(self, file: IO[bytes]) -> Iterator[Section]:
        at, first, last, count = file.tell(), None, None, 0
        try:
            while line := self._line(file):
                place = self._places.decode(line)
                if first is None:
                    first = place
                elif first.partition != place.partition or count >= _LINES_PER_SECTION:
                    assert last is not None
                    end = file.tell() - len(line)
                    yield _section(first, last, at, end)
                    at, first, count = end, place, 0
                last = place
                count += 1
        except _CANNOT_DECODE:
            if first is not None and last is not None:
                yield _section(first, last, at, self._line_at)
            raise
        if first is not None and last is not None:
            yield _section(first, last, at, file.tell())

    def records(self, file: IO[bytes], section: Section) -> Iterator[StoredRecord]:
        file.seek(section.at)
        while file.tell() < section.end:
            yield self._decoder.decode(self._line(file)).record()

    def _line(self, file: IO[bytes]) -> bytes:
        """The next line; empty at the end. Raises ValueError for one that is cut off."""
        self._line_at = file.tell()
        line = file.readline(self.LINE_BYTES_MAX)
        if line and not line.endswith(b"\n"):
            raise ValueError("a line is cut off, or too long")
        return line


class _PlaceOfLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a line by which it is found."""

    partition: int
    offset: int


def _section(first: _PlaceOfLine, last: _PlaceOfLine, at: int, end: int) -> Section:
    return Section(partition=first.partition, first=first.offset, last=last.offset, at=at, end=end)


class ContainerForm:
    """See `exports.py`: a section is a block."""

    def head(self, file: IO[bytes]) -> Head:
        from fastavro import block_reader  # noqa: PLC0415 -- slow to import

        reader: Any = block_reader(file)
        names = Head.__struct_fields__
        told = {name: reader.metadata.get(f"muster.{name}") for name in names}
        return msgspec.convert(told, Head, strict=False)

    def sections(self, file: IO[bytes]) -> Iterator[Section]:
        from fastavro import block_reader  # noqa: PLC0415

        file.seek(0)
        for block, records in _blocks(block_reader(file)):
            if records:
                first, last = records[0], records[-1]
                yield Section(
                    partition=first["partition"],
                    first=first["offset"],
                    last=last["offset"],
                    at=block.offset,
                    end=block.offset + block.size,
                )

    def records(self, file: IO[bytes], section: Section) -> Iterator[StoredRecord]:
        from fastavro import block_reader  # noqa: PLC0415

        file.seek(0)
        reader = block_reader(file)
        file.seek(section.at)
        for _, records in _blocks(reader):
            for each in records:
                yield StoredRecord(each["partition"], each["offset"], each["timestamp_ms"], each["key"], each["value"])
            return


def _blocks(reader: Any) -> Iterator[tuple[Any, list[Any]]]:  # noqa: ANN401 -- fastavro's
    """The blocks of a container with their records; whatever is wrong with one is a ValueError."""
    try:
        for block in reader:
            yield block, list(block)
    except (EOFError, IndexError, KeyError, OverflowError, TypeError, zlib.error) as error:
        raise ValueError(f"a block cannot be read ({error})") from error
