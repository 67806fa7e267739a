"""The formats of exports (`exports.py`): the interface, and JSON lines; Avro containers are in `container_form.py`.

Unreadable parts are reported to a `Skipped` with their position, and skipped: a line, or everything up to the next
block.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Annotated, Final, Protocol

import msgspec

from muster.events.records import BrokenRecord, StoredRecord
from muster.replay.logs.exports import ExportedLine, Head

CANNOT_DECODE: Final = (BrokenRecord, msgspec.DecodeError, RecursionError, ValueError)
"""The errors of decoding; msgspec raises RecursionError for content that is nested too deeply."""
LINE_BYTES_MAX: Final = 128 * 1024 * 1024
"""The maximum length of a line: that of the largest record in base64."""

_SECTION_LINES: Final = 1_000
_SECTION_BYTES: Final = 1024 * 1024

Skipped = Callable[[int, str], None]
"""Called with a line number, or the byte at which a block begins, and what is wrong with it."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the file with records of one partition. `first` and `last` are log offsets.

    `at` and `end` are positions in bytes; `line` is the number of its first line.
    """

    partition: int
    first: int
    last: int
    at: int
    end: int
    records: int
    line: int = 0


class Form(Protocol):
    """The format of the file."""

    unit: str
    """The word for a skipped part, before its number."""

    def head(self, file: IO[bytes]) -> Head:
        """Read which log was exported; the file is then positioned after the head. Raises one of CANNOT_DECODE."""
        ...

    def sections(self, file: IO[bytes], skipped: Skipped) -> Iterator[Section]:
        """Yield the sections from the current position on."""
        ...

    def records(self, file: IO[bytes], section: Section, skipped: Skipped) -> Sequence[StoredRecord]:
        """Return the records of a section."""
        ...


class _PlaceOfLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a line that locate its record."""

    partition: int
    offset: Annotated[int, msgspec.Meta(ge=0, lt=2**63 - 1)]


class JsonLinesForm:
    """One record per line, after the head. Blank lines are skipped, and the last line needs no line end."""

    unit = "line"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(ExportedLine)
        self._places = msgspec.json.Decoder(_PlaceOfLine)
        self._first = 1  # the number of the line with the head

    def head(self, file: IO[bytes]) -> Head:
        """See Form."""
        self._first, _, line = next(_lines(file, number=1), (1, 0, b""))
        try:
            return msgspec.json.decode(line, type=Head)
        except CANNOT_DECODE:
            if not self._is_record(line):
                raise
        raise ValueError("its first line is a record; the line before it that names its log is missing")

    def _is_record(self, line: bytes) -> bool:
        try:
            self._places.decode(line)
        except CANNOT_DECODE:
            return False
        return True

    def sections(self, file: IO[bytes], skipped: Skipped) -> Iterator[Section]:
        """See Form. Stops at the head of another export, whose records are from another log, or repeated."""
        section: Section | None = None
        last: dict[int, int] = {}
        for number, at, line in _lines(file, number=self._first + 1):
            try:
                place = self._places.decode(line)
            except CANNOT_DECODE as error:
                if _begins_export(line):
                    skipped(number, "another export begins here, which belongs in a file of its own; it is left out")
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
    """Yield the lines from the current position on that are not blank, each with its number and position.

    Of a line that is too long only the beginning is yielded, which cannot be decoded.
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
        msgspec.json.decode(line.removeprefix(BOM_UTF8), type=Head)
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
