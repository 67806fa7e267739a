"""Converts exports that went through other tools to a plain file: gzip, or UTF-16 as Windows writes it.

The copy is a temporary file without a name, so it disappears with the process. It takes at most half of the free space
of its disk, which is checked again for each piece, since other processes may fill the disk meanwhile. Unpacking stops
if the content expands more than that of an export can.
"""

import codecs
import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from muster.events.log.base import LogMismatch

_GZIP: Final = b"\x1f\x8b"
_ENCODINGS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\x00", "utf-16-le"),
    (b"\x00{", "utf-16-be"),
)
"""The first bytes of JSON lines in encodings other than UTF-8. UTF-32 comes first, since its byte order marks begin
with those of UTF-16.
"""

_PIECE_BYTES: Final = 1024 * 1024
_BOM: Final = codecs.BOM_UTF8
EXPANSION_MAX: Final = 250
"""The maximum ratio of content to packed size; for exports it is 10 to 60."""
_SMALL_BYTES: Final = 16 * 1024 * 1024
"""The size up to which the ratio is not checked."""

Convert = Callable[[IO[bytes]], Iterator[bytes]]
"""Yields the converted content of a file; raises EOFError, zlib.error, ValueError or gzip.BadGzipFile if damaged."""


class Unpacked(msgspec.Struct, frozen=True):
    """A plain file. `damage`: why the content ends before the end of the original; None: it is complete."""

    file: IO[bytes]
    damage: str | None = None


def unpacked(path: Path, *, is_text: bool) -> Unpacked:
    """Open a file for reading, or a copy of its content if it is packed, positioned after a byte order mark.

    Raises OSError, and LogMismatch if there is no room for the copy.
    """
    found = Unpacked(path.open("rb"))
    if found.file.read(len(_GZIP)) == _GZIP:
        found = _converted(found, path, _gunzipped)
    if is_text:
        begin = _begin(found.file)
        encoding = next((name for mark, name in _ENCODINGS if begin.startswith(mark)), None)
        if encoding is not None:
            found = _converted(found, path, lambda file: _in_utf8(file, encoding))
    found.file.seek(len(_BOM) if is_text and _begin(found.file).startswith(_BOM) else 0)
    return found


def _begin(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(4)


def _converted(packed: Unpacked, path: Path, convert: Convert) -> Unpacked:
    """Convert the content into a temporary file, up to the first damage."""
    copy, damage = tempfile.TemporaryFile(), packed.damage  # noqa: SIM115 -- the caller closes it
    packed_bytes = size_of(packed.file)
    packed.file.seek(0)
    with packed.file as file:
        try:
            for piece in convert(file):
                _check_room(path, copy.tell() + len(piece), packed_bytes)
                copy.write(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error, ValueError) as error:
            damage = damage or f"cannot be unpacked to its end: {error}"
        except (LogMismatch, OSError):
            copy.close()
            raise
    return Unpacked(copy, damage)


def _check_room(path: Path, size: int, packed_bytes: int) -> None:
    """Check that the copy may grow to this size. Raises LogMismatch."""
    if size > max(packed_bytes * EXPANSION_MAX, _SMALL_BYTES):
        raise LogMismatch(
            f"{path} has more than {EXPANSION_MAX} times its {packed_bytes:,} bytes when it is unpacked, which no"
            " export has: if it is one, unpack it by hand and name the unpacked file"
        )
    if size > shutil.disk_usage(tempfile.gettempdir()).free:  # the copy takes free space, so this is half
        raise LogMismatch(
            f"{path} has more than {size:,} bytes when it is unpacked, half of what is free in"
            f" {tempfile.gettempdir()}: unpack it where there is room, or set TMPDIR"
        )


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as content:
        while piece := content.read1(_PIECE_BYTES):
            yield piece


def _in_utf8(file: IO[bytes], encoding: str) -> Iterator[bytes]:
    """Convert the text to UTF-8. A lone surrogate is passed through as invalid UTF-8, which makes its line
    unreadable.
    """
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    while piece := file.read(_PIECE_BYTES):
        yield decoder.decode(piece).encode("utf-8", "surrogatepass")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file in bytes."""
    return file.seek(0, os.SEEK_END)
