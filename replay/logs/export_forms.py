"""How records stand in the two forms of exports (`exports.py`): in lines, or in the blocks of an Avro container.

What cannot be read is told to a `Skipped` with its place, and stepped over: a line, or all up to the next block.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, Protocol

import msgspec

from muster.events.records import BrokenRecord, StoredRecord
from muster.events.varints import read_long
from muster.replay.logs.exports import ExportedLine, Head
from muster.replay.logs.unpacking import size_of

CANNOT_DECODE: Final = (BrokenRecord, msgspec.DecodeError, ValueError)
LINE_BYTES_MAX: Final = 128 * 1024 * 1024
"""A line is at most so long as a record in base64."""

_SECTION_LINES: Final = 1_000
_SECTION_BYTES: Final = 1024 * 1024

Skipped = Callable[[int, str], None]
"""Takes the number of a line, or the byte at which a block begins, and what is wrong with it."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the file with records of one partition. `first` and `last` are offsets in it.

    `at` and `end` are bytes; `line` is the number of its first line.
    """

    partition: int
    first: int
    last: int
    at: int
    end: int
    records: int
    line: int = 0


class Form(Protocol):
    """How the records stand in the file."""

    unit: str
    """The word for a part that is skipped, before its number."""

    def head(self, file: IO[bytes]) -> Head:
        """Read which log was exported; the file stands behind it then. Raises one of CANNOT_DECODE."""
        ...

    def sections(self, file: IO[bytes], skipped: Skipped) -> Iterator[Section]:
        """The sections from here on."""
        ...

    def records(self, file: IO[bytes], section: Section, skipped: Skipped) -> Sequence[StoredRecord]:
        """The records of a section."""
        ...


# ---- JSON lines ---------------------------------------------------------------------------------


class _PlaceOfLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a line by which it is found."""

    partition: int
    offset: int


class JsonLinesForm:
    """A record is a line. Blank lines are passed over, and the last one may have no end."""

    unit = "line"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(ExportedLine)
        self._places = msgspec.json.Decoder(_PlaceOfLine)

    def head(self, file: IO[bytes]) -> Head:
        """See Form."""
        line = file.readline(LINE_BYTES_MAX)
        try:
            return msgspec.json.decode(line, type=Head)
        except CANNOT_DECODE:
            if not self._is_record(line):
                raise
        raise ValueError("its first line is a record, and the line that says which log it is of is missing before it")

    def _is_record(self, line: bytes) -> bool:
        try:
            self._places.decode(line)
        except CANNOT_DECODE:
            return False
        return True

    def sections(self, file: IO[bytes], skipped: Skipped) -> Iterator[Section]:
        """See Form. What is after the first line of another export is of another log, or there twice."""
        section: Section | None = None
        last: dict[int, int] = {}
        for number, at, line in _lines(file, number=2):
            try:
                place = self._places.decode(line)
            except CANNOT_DECODE as error:
                if _begins_export(line):
                    skipped(number, "another export begins, which is a file of its own; it is left out")
                    break
                skipped(number, _wrong_with(line, error))
                continue
            if place.offset <= last.get(place.partition, -1):
                skipped(number, f"partition {place.partition} has an offset as high as {place.offset} before it")
                continue
            last[place.partition] = place.offset
            if section is not None and _may_grow(section, place.partition):
                section = _grown(section, place.offset, file.tell())
                continue
            if section is not None:
                yield section
            section = Section(
                partition=place.partition,
                first=place.offset,
                last=place.offset,
                records=1,
                at=at,
                end=file.tell(),
                line=number,
            )
        if section is not None:
            yield section

    def records(self, file: IO[bytes], section: Section, skipped: Skipped) -> Sequence[StoredRecord]:
        """See Form."""
        found: list[StoredRecord] = []
        file.seek(section.at)
        number = section.line - 1
        for number, at, line in _lines(file, number=section.line):
            if at >= section.end:
                break
            try:
                found.append(self._decoder.decode(line).record())
            except CANNOT_DECODE as error:
                skipped(number, _wrong_with(line, error))
        if file.tell() < section.end:
            skipped(number + 1, "from here on the file was cut off while it was read")
        return found


def _lines(file: IO[bytes], number: int) -> Iterator[tuple[int, int, bytes]]:
    """The lines from here on that are not blank, each with its number and where it begins.

    Of one that is too long its beginning is given, which cannot be decoded.
    """
    at = file.tell()
    while line := file.readline(LINE_BYTES_MAX):
        rest = line
        while len(rest) == LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX)
        if not line.isspace():
            yield number, at, line
        number, at = number + 1, file.tell()


def _wrong_with(line: bytes, error: Exception) -> str:
    if len(line) == LINE_BYTES_MAX:
        return f"it is longer than {LINE_BYTES_MAX:,} bytes"
    return str(error) if line.endswith(b"\n") else f"it is cut off ({error})"


def _begins_export(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=Head)
    except CANNOT_DECODE:
        return False
    return True


def _may_grow(section: Section, partition: int) -> bool:
    return (
        section.partition == partition
        and section.records < _SECTION_LINES
        and section.end - section.at < _SECTION_BYTES
    )


def _grown(section: Section, offset: int, end: int) -> Section:
    return msgspec.structs.replace(
        section,
        last=offset,
        records=section.records + 1,
        end=end,
    )


# ---- Avro containers ----------------------------------------------------------------------------

_SYNC_BYTES: Final = 16
_NUMBER_BYTES_MAX: Final = 10
_PIECE_BYTES: Final = 1024 * 1024


class ContainerForm:
    """A section is a block. After one that cannot be read the file is searched for the marker that ends a block."""

    unit = "the block at byte"

    def head(self, file: IO[bytes]) -> Head:
        """See Form."""
        metadata = _reader(file).metadata
        told = {name: metadata[key] for name in Head.__struct_fields__ if (key := f"muster.{name}") in metadata}
        if "records" in told:
            told["records"] = told["records"].lstrip("0") or "0"
        return msgspec.convert(told, Head, strict=False)

    def sections(self, file: IO[bytes], skipped: Skipped) -> Iterator[Section]:
        """See Form."""
        at = file.tell()
        file.seek(at - _SYNC_BYTES)
        sync, size = file.read(_SYNC_BYTES), size_of(file)
        while at < size:
            try:
                end = _end_of_block(file, at, size, sync)
                records = _block(file, at)
            except CANNOT_DECODE as error:
                skipped(at, str(error))
                at = _behind_next(file, at, sync)
                continue
            if records:
                yield Section(
                    partition=records[0]["partition"],
                    first=records[0]["offset"],
                    last=records[-1]["offset"],
                    records=len(records),
                    at=at,
                    end=end,
                )
            at = end

    def records(self, file: IO[bytes], section: Section, skipped: Skipped) -> Sequence[StoredRecord]:
        """See Form."""
        try:
            return [
                StoredRecord(each["partition"], each["offset"], each["timestamp_ms"], each["key"], each["value"])
                for each in _block(file, section.at)
            ]
        except CANNOT_DECODE as error:  # it has been altered since
            skipped(section.at, str(error))
            return ()


def _reader(file: IO[bytes]) -> Any:  # noqa: ANN401 -- fastavro's
    """A reader of the container's blocks, from where the file stands when the first of them is asked for."""
    from fastavro import block_reader  # noqa: PLC0415 -- slow to import

    file.seek(0)
    try:
        return block_reader(file)
    except (EOFError, IndexError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"it does not begin as an Avro container ({error})") from error


def _block(file: IO[bytes], at: int) -> list[Any]:
    """The records of the block that begins at this byte; whatever is wrong with it is a ValueError."""
    reader = _reader(file)
    file.seek(at)
    try:
        return list(next(reader))
    except (EOFError, IndexError, KeyError, OverflowError, StopIteration, TypeError, zlib.error) as error:
        raise ValueError(f"it cannot be decoded ({type(error).__name__}: {error})") from error


def _end_of_block(file: IO[bytes], at: int, size: int, sync: bytes) -> int:
    """The byte behind the block that begins here. Raises ValueError, BrokenRecord if there is no whole one."""
    file.seek(at)
    begin = file.read(2 * _NUMBER_BYTES_MAX)
    try:
        _, pos = _long(begin, 0)
        content, pos = _long(begin, pos)
    except IndexError:
        raise ValueError("the file is cut off") from None
    end = at + pos + content + _SYNC_BYTES
    if content < 0:
        raise ValueError("its size is negative")
    if end > size:
        raise ValueError("the file is cut off, or the size of the block is wrong")
    file.seek(end - _SYNC_BYTES)
    if file.read(_SYNC_BYTES) != sync:
        raise ValueError("the marker is missing at its end")
    return end


def _long(data: bytes, pos: int) -> tuple[int, int]:
    """A number of Avro's, and the position behind it."""
    first = data[pos]
    return ((first >> 1) ^ -(first & 1), pos + 1) if first < 128 else read_long(data, pos + 1, first)


def _behind_next(file: IO[bytes], at: int, sync: bytes) -> int:
    """The byte behind the next marker that ends a block; the end of the file if there is none."""
    file.seek(at)
    kept = b""
    while piece := file.read(_PIECE_BYTES):
        kept += piece
        found = kept.find(sync)
        if found >= 0:
            return file.tell() - len(kept) + found + _SYNC_BYTES
        kept = kept[1 - _SYNC_BYTES :]
    return file.tell()
