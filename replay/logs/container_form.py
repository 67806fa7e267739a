"""Exports as Avro containers (`exports.py`): a section is a block.

The file may come from anyone, so everything that is read from it has a limit, its schema must be the expected one, and
a block is unpacked and decoded only if its size and its number of records are plausible.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO
from typing import IO, Any, Final

import msgspec

from muster.events.records import StoredRecord
from muster.events.varints import read_long_at
from muster.replay.logs.export_forms import CANNOT_DECODE, LINE_BYTES_MAX, Section, Skipped
from muster.replay.logs.exports import RECORD_SCHEMA, Head
from muster.replay.logs.unpacking import size_of

_SYNC_BYTES: Final = 16
_NUMBER_BYTES_MAX: Final = 10
_PIECE_BYTES: Final = 1024 * 1024
_HEAD_BYTES_MAX: Final = 1024 * 1024
BLOCK_BYTES_MAX: Final = LINE_BYTES_MAX
"""The maximum size of a block, packed and unpacked; Muster writes blocks of about SYNC_EVERY_BYTES."""
BLOCK_RECORDS_MAX: Final = 500_000
"""The maximum number of records in a block; they take 100 MB in memory even if tiny. Muster writes a few thousand."""
_RECORD_BYTES_MIN: Final = 5
"""Each field of a record takes at least one byte."""
_TOLD_MAX: Final = 10
_TOLD_CHARS_MAX: Final = 40
_NO_HEAD: Final = (AttributeError, EOFError, IndexError, KeyError, OverflowError, RecursionError, TypeError)
_NO_RECORD: Final = (EOFError, IndexError, KeyError, OverflowError, TypeError)
"""The errors, besides ValueError, that fastavro raises for a malformed record."""


class _Block(msgspec.Struct, frozen=True):
    """A block with its sync marker in the right place: its number of records, and its range of bytes in the file."""

    count: int
    begin: int
    end: int


class ContainerForm:
    """A section is a block. After an unreadable block the file is searched for the next sync marker."""

    unit = "the block at byte"

    def __init__(self) -> None:
        self._is_packed = True

    def head(self, file: IO[bytes]) -> Head:
        """See Form."""
        metadata = _header(file)
        codec = metadata.get("avro.codec", "null")
        if codec not in {"deflate", "null"}:
            raise ValueError(
                f"its blocks are compressed with {codec[:_TOLD_CHARS_MAX]!r}, and only deflate is supported"
            )
        self._is_packed = codec == "deflate"
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
                block = _block(file, at, size, sync)
                records = self._records(file, block)
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
                    end=block.end,
                )
            at = block.end

    def records(self, file: IO[bytes], section: Section, skipped: Skipped) -> Sequence[StoredRecord]:
        """See Form."""
        try:
            return [
                StoredRecord(each["partition"], each["offset"], each["timestamp_ms"], each["key"], each["value"])
                for each in self._records(file, _block(file, section.at, section.end))
            ]
        except CANNOT_DECODE as error:  # the file was altered since it was opened
            skipped(section.at, str(error))
            return ()

    def _records(self, file: IO[bytes], block: _Block) -> list[Any]:
        """Return the records of a block. Raises ValueError for any damage."""
        from fastavro import schemaless_reader  # noqa: PLC0415 -- slow to import

        if block.count > BLOCK_RECORDS_MAX:
            raise ValueError(f"it has more than {BLOCK_RECORDS_MAX:,} records ({block.count:,})")
        file.seek(block.begin)
        content = file.read(block.end - _SYNC_BYTES - block.begin)
        if self._is_packed:
            content = _inflated(content)
        if not 0 <= block.count * _RECORD_BYTES_MIN <= len(content):
            raise ValueError(f"it cannot be decoded (it has {block.count:,} records in {len(content):,} bytes)")
        stream = BytesIO(content)
        try:
            records = [schemaless_reader(stream, _schema(), None) for _ in range(block.count)]
        except _NO_RECORD as error:
            raise ValueError(f"it cannot be decoded ({type(error).__name__}: {error})") from error
        if stream.tell() < len(content):
            raise ValueError("it cannot be decoded (it has bytes after its last record)")
        return records


@cache
def _schema() -> Any:  # noqa: ANN401 -- fastavro's
    from fastavro import parse_schema  # noqa: PLC0415 -- slow to import

    return parse_schema(RECORD_SCHEMA)


def _header(file: IO[bytes]) -> dict[str, str]:
    """Return the container's metadata; the file is then positioned after the header. Raises ValueError if it is not an
    export.
    """
    from fastavro import block_reader  # noqa: PLC0415 -- slow to import
    from fastavro.schema import SchemaParseException  # noqa: PLC0415 -- slow to import

    file.seek(0)
    begin = BytesIO(file.read(_HEAD_BYTES_MAX))
    try:
        reader = block_reader(begin)
    except (*_NO_HEAD, SchemaParseException) as error:
        raise ValueError(f"it does not start like an Avro container ({type(error).__name__}: {error})") from error
    found, expected = _fields(reader.writer_schema), _fields(RECORD_SCHEMA)
    if found != expected:
        raise ValueError(f"it has records of another schema: {_told(found)}; an export has {_told(expected)}")
    file.seek(begin.tell())
    return dict(reader.metadata)


def _fields(schema: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 -- any schema
    """Return the names and types of a record's fields; a schema that is not a record's counts as one field without a
    name.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return [("", schema)]
    return [(field["name"], field["type"]) for field in schema["fields"]]


def _told(fields: Sequence[tuple[str, Any]]) -> str:
    told = [f"{name} {of}".strip()[:_TOLD_CHARS_MAX] for name, of in fields[:_TOLD_MAX]]
    return ", ".join(told) + (", ..." if len(fields) > _TOLD_MAX else "")


def _inflated(packed: bytes) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflate.decompress(packed, BLOCK_BYTES_MAX + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be decoded ({error})") from error
    if len(content) > BLOCK_BYTES_MAX:
        raise ValueError(f"it has more than {BLOCK_BYTES_MAX:,} bytes when it is unpacked")
    if not inflate.eof:
        raise ValueError("it cannot be decoded (its compressed content is cut off)")
    return content


def _block(file: IO[bytes], at: int, size: int, sync: bytes | None = None) -> _Block:
    """Return the block that begins at this byte. Raises ValueError, BrokenRecord if there is no complete one.

    `sync`: the marker expected at its end; None: it was checked before.
    """
    file.seek(at)
    head = file.read(2 * _NUMBER_BYTES_MAX)
    try:
        count, pos = read_long_at(head, 0)
        content, pos = read_long_at(head, pos)
    except IndexError:
        raise ValueError("the file is cut off") from None
    end = at + pos + content + _SYNC_BYTES
    if content < 0:
        raise ValueError("its size is negative")
    if end > size:
        raise ValueError("the file is cut off, or the size of the block is wrong")
    if content > BLOCK_BYTES_MAX:
        raise ValueError(f"it has more than {BLOCK_BYTES_MAX:,} bytes")
    file.seek(end - _SYNC_BYTES)
    if sync is not None and file.read(_SYNC_BYTES) != sync:
        raise ValueError("the marker is missing at its end")
    return _Block(count, at + pos, end)


def _behind_next(file: IO[bytes], at: int, sync: bytes) -> int:
    """Return the position after the next sync marker; the end of the file if there is none."""
    file.seek(at)
    kept = b""
    while piece := file.read(_PIECE_BYTES):
        kept += piece
        found = kept.find(sync)
        if found >= 0:
            return file.tell() - len(kept) + found + _SYNC_BYTES
        kept = kept[1 - _SYNC_BYTES :]
    return file.tell()
