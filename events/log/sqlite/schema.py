"""The tables of an event log in a SQLite file: created in a new file, checked in an existing one.

    meta     one row per setting: log_id, partitions, format_level, audit_window_ms; the last sign_of_life, in JSON; and
             in_use, while an owner has the file open (see missing_records.py)
    records  the log itself; rows are stored by the key (partition, offset), there is no other index
    owners   the epoch of each partition's latest writer
    trimmed  how far each partition has been trimmed (see trim.py)
    kept     the last record of each key in what has been trimmed

The file's header identifies it as ours (application id) and gives the version of the tables (user version). What the
records may contain depends on the format level, a separate number: it is raised by `muster log upgrade`, not by
opening.
"""

import sqlite3
import uuid

import msgspec

from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.failures import corruption_error
from muster.events.records import FORMAT_LEVEL, LogTooNew

APPLICATION_ID = 0x4D555354  # "MUST"
TABLES_VERSION = 1
DEFAULT_PARTITIONS = 8
DEFAULT_AUDIT_WINDOW_MS = 7 * 24 * 3600 * 1000

WAL_BYTES_KEPT = 64 * 1024 * 1024
"""The size to which a write-ahead log is truncated after a large transition."""

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    """CREATE TABLE records (
        partition INTEGER NOT NULL, offset INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL,
        key BLOB NOT NULL, value BLOB, PRIMARY KEY (partition, offset)) WITHOUT ROWID""",
    "CREATE TABLE owners (partition INTEGER PRIMARY KEY, epoch INTEGER NOT NULL)",
    "CREATE TABLE trimmed (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL)",
    """CREATE TABLE kept (
        partition INTEGER NOT NULL, key BLOB NOT NULL, offset INTEGER NOT NULL,
        PRIMARY KEY (partition, key)) WITHOUT ROWID""",
)


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a file, from its table `meta`."""

    log_id: str
    partitions: int
    format_level: int
    audit_window_ms: int


def prepare(
    connection: sqlite3.Connection, location: str, *, partitions: int | None, audit_window_ms: int | None
) -> Meta:
    """Create the tables in an empty file; set the audit window if one is given. Raises like `check`."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # each commit is on the disk when it returns
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls everything back
        if is_empty(connection):
            _make(connection, partitions or DEFAULT_PARTITIONS)
        meta = check(connection, location, partitions=partitions)
        if audit_window_ms is not None:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'audit_window_ms'", (audit_window_ms,))
            meta = msgspec.structs.replace(meta, audit_window_ms=audit_window_ms)
    return meta


def check(connection: sqlite3.Connection, location: str, *, partitions: int | None) -> Meta:
    """Read the file's settings.

    Raises LogMismatch if it is not ours or has another number of partitions than requested, LogTooNew if a newer
    version wrote it.
    """
    if is_empty(connection):
        raise LogMismatch(f"{location} is empty and holds no event log")
    refuse_foreign(connection, location)
    tables_version = _pragma(connection, "user_version")
    if tables_version > TABLES_VERSION:
        raise LogTooNew(
            f"{location} has tables of version {tables_version}, this version of Muster knows {TABLES_VERSION}; "
            "use a newer Muster"
        )
    meta = _meta(connection)
    if meta.format_level > FORMAT_LEVEL:
        raise LogTooNew(
            f"{location} has format level {meta.format_level}, this version of Muster knows {FORMAT_LEVEL}; "
            "use a newer Muster"
        )
    if partitions is not None and partitions != meta.partitions:
        raise LogMismatch(
            f"{location} has {meta.partitions} partitions, the settings say {partitions}; the number is fixed "
            "when the log is created: leave the setting out, or use another file"
        )
    return meta


def _meta(connection: sqlite3.Connection) -> Meta:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is None:
        raise corruption_error("it has no table `meta`")
    try:
        return msgspec.convert(dict(connection.execute("SELECT name, value FROM meta")), Meta)
    except msgspec.ValidationError as error:
        raise corruption_error(f"its table `meta`: {error}") from error


def upgrade(connection: sqlite3.Connection) -> None:
    """Raise the format level to the highest, permanently."""
    connection.execute("UPDATE meta SET value = ? WHERE name = 'format_level'", (FORMAT_LEVEL,))


def refuse_foreign(connection: sqlite3.Connection, location: str) -> None:
    """Check the file's application id. Raises LogMismatch if another program has created the file."""
    if not is_empty(connection) and _pragma(connection, "application_id") != APPLICATION_ID:
        raise LogMismatch(
            f"{location} is a SQLite file of another program, not an event log of Muster. It was left as it is; give"
            " --log another name (muster serve creates what does not exist yet)"
        )


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was created in the file yet."""
    if _pragma(connection, "application_id") != 0:
        return False
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _make(connection: sqlite3.Connection, partitions: int) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    meta = Meta(
        log_id=str(uuid.uuid4()),
        partitions=partitions,
        format_level=FORMAT_LEVEL,
        audit_window_ms=DEFAULT_AUDIT_WINDOW_MS,
    )
    connection.executemany("INSERT INTO meta VALUES (?, ?)", msgspec.to_builtins(meta).items())
    connection.execute(f"PRAGMA user_version = {TABLES_VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
