"""Distinguishes full disks, which are retryable, from all other errors.

Also removes files whose writing failed: a file is complete or absent.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from muster.replay.archive.files import NO_ROOM

COMPRESSION: Final = "zstd"

_IN_WORDS: Final = (*(os.strerror(each) for each in NO_ROOM), "max_temp_directory_size")
"""DuckDB's wording of these errors, which have no code."""


class NoRoom(Exception):
    """The disk has no room for the tables; the message says where."""


class NoMemory(Exception):
    """DuckDB has too little memory for what it reads; the message says what to do."""


@contextmanager
def needing_room(folder: Path) -> Iterator[None]:
    """Write into a folder. Raises NoRoom if its disk is full or a file may not grow; NoMemory."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _no_room(folder, os.strerror(error.errno or errno.ENOSPC)) from error
        raise
    except Exception as error:
        if is_no_room(error):
            raise _no_room(folder, "to sort what was read") from error
        if _is_duckdbs(error, "OutOfMemoryException"):
            raise NoMemory(
                f"DuckDB has too little memory for the tables in {folder}, which are as the last build left them: say"
                f" --engine spark, or build on a machine with more ({first_line(error)})"
            ) from error
        raise


def is_no_room(error: Exception) -> bool:
    """Return whether a DuckDB error means a full disk; DuckDB reports one as lack of memory, too."""
    return _is_duckdbs(error, "Error") and any(each in str(error) for each in _IN_WORDS)


def _is_duckdbs(error: Exception, kind: str) -> bool:
    """Return whether it is a DuckDB error of this kind. Does not import DuckDB, which Spark's workers skip (30 MB)."""
    duckdb = sys.modules.get("duckdb")
    return duckdb is not None and isinstance(error, getattr(duckdb, kind))


def first_line(error: Exception) -> str:
    """The message of a DuckDB error, without the query quoted below it."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _no_room(folder: Path, why: str) -> NoRoom:
    return NoRoom(f"there is no room at {folder} ({why}); its tables are as the last build left them")


@contextmanager
def new_parquet(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Write a Parquet file; it is removed on any exception."""
    writer = pq.ParquetWriter(path, schema, compression=COMPRESSION)
    try:
        yield writer
        writer.close()
    except BaseException:
        writer.is_open = False  # else it is closed again when garbage-collected, and fails again
        path.unlink(missing_ok=True)
        raise
