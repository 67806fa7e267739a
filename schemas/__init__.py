"""Avro schemas of the events. Data only: this package reads its own files and does not know how they are used.

`v1/`, `v2/`, ... hold the schemas that each format level of the log introduced, one file per event type, named after
it. A schema never changes once released: a new form of an event goes into the next level's folder, and the old file
stays, because logs written with it stay readable. `RecordKey.avsc` is the key of every record and never changes at all:
compaction compares the bytes of keys.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

Schema = dict[str, Any]


def levels() -> list[int]:
    """Return the existing format levels, lowest first."""
    folders = (entry.name for entry in files(__name__).iterdir() if entry.is_dir())
    return sorted(int(name[1:]) for name in folders if name.startswith("v") and name[1:].isdigit())


def event_schemas(level: int) -> Iterator[Schema]:
    """Yield the schemas introduced at a format level, sorted by name."""
    folder = files(__name__) / f"v{level}"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".avsc"):
            yield json.loads(entry.read_text(encoding="utf-8"))


def record_key_schema() -> Schema:
    """Return the schema of every record's key."""
    schema: Schema = json.loads((files(__name__) / "RecordKey.avsc").read_text(encoding="utf-8"))
    return schema
