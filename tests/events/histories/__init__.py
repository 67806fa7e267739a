"""Logs as each format level of `schemas/` wrote them, and their projections: they must stay readable for ever.

    v1.jsonl    one record a line: offset, timestamp_ms, key, value (both base64; null is a tombstone)
    v1.json     the projection: groups, incarnation_max, the partition's last event

`python -m tests.events.histories` records one for the newest level. A recording never changes once released; before
that, `--again` rewrites it.
"""

from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from muster.events.events import AnyPartitionEvent
from muster.events.ids import GroupId
from muster.events.projector import Projector
from muster.events.records import StoredRecord
from muster.events.state import Group
from muster.events.tables import Table

FOLDER = Path(__file__).parent
PARTITION = 3


class Line(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a projector at the end. The partition's event by its type's name and the fields that it has."""

    groups: dict[GroupId, Group]
    incarnation_max: int
    events_read: int
    last_partition_event: tuple[str, dict[str, Any]]


def log_path(level: int) -> Path:
    return FOLDER / f"v{level}.jsonl"


def projection_path(level: int) -> Path:
    return FOLDER / f"v{level}.json"


def recorded_levels() -> list[int]:
    return sorted(int(path.stem[1:]) for path in FOLDER.glob("v*.jsonl"))


def read_log(level: int) -> list[StoredRecord]:
    decoder = msgspec.json.Decoder(Line)
    lines = (decoder.decode(line) for line in log_path(level).read_text(encoding="utf-8").splitlines())
    return [
        StoredRecord(
            partition=PARTITION,
            offset=line.offset,
            timestamp_ms=line.timestamp_ms,
            key=line.key,
            value=line.value,
        )
        for line in lines
    ]


def read_projection(level: int) -> Projection:
    return msgspec.json.decode(projection_path(level).read_bytes(), type=Projection, dec_hook=_table)


def _table(kind: Any, entries: Any) -> Any:
    """In JSON a table is an object."""
    assert get_origin(kind) is Table
    return Table(msgspec.convert(entries, dict[get_args(kind)]))  # type: ignore[misc]  # the types of key and value


def project(records: list[StoredRecord]) -> Projection:
    projector = Projector()
    for record in records:
        projector.feed(record)
    assert not projector.quarantined
    assert projector.last_partition_event is not None
    return Projection(
        groups=projector.groups,
        incarnation_max=projector.incarnation_max,
        events_read=projector.events_read,
        last_partition_event=_named(projector.last_partition_event),
    )


def _named(event: AnyPartitionEvent) -> tuple[str, dict[str, Any]]:
    fields = msgspec.to_builtins(event)
    return type(event).__name__, {name: value for name, value in fields.items() if value is not None}


def write(level: int, records: list[StoredRecord]) -> None:
    """Record a log and its projection."""
    lines = [Line(offset=r.offset, timestamp_ms=r.timestamp_ms, key=r.key, value=r.value) for r in records]
    log_path(level).write_text("".join(msgspec.json.encode(line).decode() + "\n" for line in lines), encoding="utf-8")
    projection = msgspec.json.encode(project(records), order="sorted", enc_hook=dict)
    projection_path(level).write_bytes(msgspec.json.format(projection, indent=2) + b"\n")
