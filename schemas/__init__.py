"""Avro schemas of the events. Data only: this package reads its own files and knows nothing of their use.

`v1/`, `v2/`, ... hold what was introduced at each format level of the log, one file per event type, named after it.
A schema is never changed once released: a new form of an event goes into the next level's folder, and the old file
stays, because logs written with it stay readable. `RecordKey.avsc` is the key of every record and never changes at
all: compaction compares the bytes of keys.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

Schema = dict[str, Any]


def levels() -> list[int]:
    """The format levels there are, lowest first."""
    folders = (entry.name for entry in files(__name__).iterdir() if entry.is_dir())
    return sorted(int(name[1:]) for name in folders if name.startswith("v") and name[1:].isdigit())


def event_schemas(level: int) -> Iterator[Schema]:
    """The schemas introduced at a format level, in order of their names."""
    folder = files(__name__) / f"v{level}"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".avsc"):
            yield json.loads(entry.read_text(encoding="utf-8"))


def record_key_schema() -> Schema:
    """The schema of every record's key."""
    schema: Schema = json.loads((files(__name__) / "RecordKey.avsc").read_text(encoding="utf-8"))
    return schema
