"""Exports: a log's records in a file that `--log` reads again. The file's suffix selects one of two formats:

    NAME.jsonl  JSON lines. The first line describes the export; then there is a line for each record: the event as
                JSON, for programs and people. Of a record that is not a known event the line has key and value in
                base64.
    NAME.avro   an Avro container file: the records byte by byte, as they are in the log.

Both have one partition after another, each in offset order. This module writes them; `exported.py` reads them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Protocol

import msgspec

from muster.events.avro.codec import decode, encode, level_of
from muster.events.causes import Cause
from muster.events.events import EVENT_TYPES, AnyRecordedEvent, PartitionEvent
from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key, encode_key, key_of
from muster.events.records import FORMAT_LEVEL, BrokenRecord, StoredRecord, UndecodableKey
from muster.replay.history.items import Coordinated, Happened
from muster.replay.history.window import Window, wall_ms_in
from muster.replay.history.wrong_times import AS_RECORDED, Times, times_of_partition
from muster.replay.logs.pseudonyms import Pseudonyms
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import read_record

FORM: Final = "muster-export-1"
TYPES: Final[dict[str, type[AnyRecordedEvent]]] = {each.__name__: each for each in EVENT_TYPES}
SYNC_EVERY_BYTES: Final = 256 * 1024
"""The size of a container's blocks, which are read one at a time."""

RECORD_SCHEMA: Final = {
    "type": "record",
    "name": "ExportedRecord",
    "namespace": "muster.export",
    "doc": "A record of an event log, byte by byte. Key and value are Avro's single-object encoding.",
    "fields": [
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "timestamp_ms", "type": "long", "doc": "Wall clock of its append."},
        {"name": "key", "type": "bytes"},
        {"name": "value", "type": ["null", "bytes"], "doc": "null: a tombstone."},
    ],
}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The exported log: the first line of the file, or the container's metadata.

    `records`: how many were written, so that a reader notices missing ones; None: written by an older version.
    """

    form: str
    log: str
    identity: str
    partitions: int
    records: int | None = None


class ExportedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as a line. An event has `type` and `event`; anything else has `key` and, unless it is a tombstone,
    `value`.

    `level`: the format level at which the event was written.
    """

    partition: int
    offset: int
    timestamp_ms: int
    type: str | None = None
    level: int = 0
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key: bytes | None = None
    value: bytes | None = None

    def record(self) -> StoredRecord:
        """Return the record. Raises BrokenRecord, msgspec.ValidationError."""
        place = (self.partition, self.offset, self.timestamp_ms)
        if self.type is None or self.event is msgspec.UNSET:
            if self.key is None:
                raise BrokenRecord("the line has neither an event nor a key")
            return StoredRecord(*place, self.key, self.value)
        if self.type not in TYPES:
            raise BrokenRecord(f"the line has an event of an unknown type: {self.type!r}")
        if not 1 <= self.level <= FORMAT_LEVEL:
            raise BrokenRecord(
                f"the line has an event of format level {self.level}, and this version knows 1 to {FORMAT_LEVEL}:"
                " a newer Muster reads newer levels"
            )
        event: AnyRecordedEvent = msgspec.json.decode(self.event, type=TYPES[self.type])
        try:
            return StoredRecord(*place, encode_key(key_of(event)), encode(event, self.level))
        except OverflowError as error:
            raise BrokenRecord(f"the line has an event with a number that is too large: {error}") from error


def line_of(record: StoredRecord) -> ExportedLine:
    """Return the line of a record: its event if that encodes to the identical record, else its bytes."""
    line = ExportedLine(partition=record.partition, offset=record.offset, timestamp_ms=record.timestamp_ms)
    if record.value is not None:
        try:
            event = decode(record.value)
        except BrokenRecord:
            event = None
        if event is not None and _is_known_whole(event) and encode_key(key_of(event)) == record.key:
            told = msgspec.Raw(msgspec.json.encode(event))
            return msgspec.structs.replace(line, type=type(event).__name__, level=level_of(record.value), event=told)
    return msgspec.structs.replace(line, key=record.key, value=record.value)


def _is_known_whole(event: AnyRecordedEvent) -> bool:
    """Return False if decoding lost a part of the record, e.g. a cause that only newer versions know."""
    return isinstance(event, PartitionEvent) or event.why.cause is not Cause.UNKNOWN


class Export(Protocol):
    """Writes the records of a log."""

    def write(self, record: StoredRecord) -> None: ...

    def close(self) -> None:
        """Write what is still buffered."""
        ...


def export_to(path: Path, file: IO[bytes], head: Head) -> Export:
    """Return the export for the path's suffix. Raises ValueError for any other suffix."""
    if path.suffix == ".jsonl":
        return _JsonLines(file, head)
    if path.suffix == ".avro":
        return _Container(file, head)
    raise ValueError(f"{path} is neither NAME.jsonl nor NAME.avro")


_NOT_COUNTED: Final = 10**17
"""A placeholder in the head until the number of records is known; it has as many digits as are reserved for it."""


class _JsonLines:
    def __init__(self, file: IO[bytes], head: Head) -> None:
        self._file = file
        self._head = head
        self._encoder = msgspec.json.Encoder()
        self._head_bytes = len(self._head_line(_NOT_COUNTED))
        self._written = 0
        self._write(self._head_line(_NOT_COUNTED))

    def write(self, record: StoredRecord) -> None:
        self._write(self._encoder.encode(line_of(record)))
        self._written += 1

    def _head_line(self, records: int) -> bytes:
        return self._encoder.encode(msgspec.structs.replace(self._head, records=records))

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")

    def close(self) -> None:
        _write_at(self._file, 0, self._head_line(self._written).ljust(self._head_bytes))


class _Container:
    """Writes blocks with records of one partition only, so that readers can skip the other partitions."""

    def __init__(self, file: IO[bytes], head: Head) -> None:
        counted = msgspec.structs.replace(head, records=_NOT_COUNTED)
        self._metadata = {f"muster.{name}": str(value) for name, value in msgspec.structs.asdict(counted).items()}
        self._file = file
        self._writer = self._writer_to(file)
        self._partition = -1
        self._written = 0

    def _writer_to(self, file: IO[bytes]) -> Any:  # noqa: ANN401 -- fastavro's
        from fastavro.write import Writer  # noqa: PLC0415 -- slow to import

        return Writer(
            file, RECORD_SCHEMA, codec="deflate", sync_interval=SYNC_EVERY_BYTES, metadata=dict(self._metadata)
        )

    def write(self, record: StoredRecord) -> None:
        if record.partition != self._partition:
            self._writer.flush()
            self._partition = record.partition
        self._writer.write(
            {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": record.key,
                "value": record.value,
            }
        )
        self._written += 1

    def close(self) -> None:
        self._writer.flush()
        self._writer_to(head := BytesIO())
        digits = str(_NOT_COUNTED).encode()
        _write_at(self._file, head.getvalue().index(digits), str(self._written).zfill(len(digits)).encode())


def _write_at(file: IO[bytes], at: int, content: bytes) -> None:
    """Overwrite content in the file, and return to its end."""
    file.seek(at)
    file.write(content)
    file.seek(0, os.SEEK_END)
    file.flush()


async def copy(
    reading: Reading,
    export: Export,
    window: Window,
    wanted: str | None,
    *,
    pseudonyms: Pseudonyms | None,
    times: Mapping[GroupId, Times] = MappingProxyType({}),
) -> tuple[int, bool]:
    """Write the records of matching groups whose events were decided within the time window.

    Returns how many were written, and whether any group matches. Records that concern whole partitions are always
    written. From before the window, the last record of each entity is written, so that the groups have their state; a
    reader shows the rest as a gap. `times`: the corrected times of groups.
    """
    written, is_any = 0, False

    def write(records: Iterable[StoredRecord]) -> None:
        nonlocal written
        for each in records:
            export.write(each if pseudonyms is None else pseudonyms.record(each))
            written += 1

    for partition in range(reading.log.partitions):
        of_partition = times_of_partition(times, partition, reading.log.partitions)
        selection = Selection(window, wanted, times, of_partition)
        async for chunk in reading.chunks([partition]):
            for record in chunk:
                write(selection.take(record))
        write(selection.end())
        is_any = is_any or selection.has_group
    export.close()
    return written, is_any


class Selection:
    """Selects the wanted records of one partition, in offset order.

    Until the window begins, the last record of each key is kept, unless it is a tombstone.
    """

    def __init__(
        self,
        window: Window,
        wanted: str | None,
        times: Mapping[GroupId, Times] = MappingProxyType({}),
        of_partition: Times = AS_RECORDED,
    ) -> None:
        self._since_ms, self._until_ms = wall_ms_in(window)
        self._times = times
        self._of_partition = of_partition
        self._wanted = wanted
        self._before: dict[bytes, StoredRecord] = {}
        self._has_begun = self._since_ms is None
        self._at_ms = 0
        self._over: set[GroupId] = set()
        """The groups whose window is over."""
        self.has_group = False
        """True if there was a record of a wanted group, at any time."""

    def end(self) -> Iterator[StoredRecord]:
        """Yield the remaining records: those of a partition in which nothing happened since the window began."""
        yield from self._before.values()

    def take(self, record: StoredRecord) -> Iterator[StoredRecord]:
        """Process the next record; yield those to write."""
        self._at_ms = self._time_of(record)
        if not self._note_wanted(record.key) or (self._until_ms is not None and self._at_ms > self._until_ms):
            return
        if not self._has_begun and self._since_ms is not None and self._at_ms < self._since_ms:
            self._before.pop(record.key, None)
            if record.value is not None:
                self._before[record.key] = record
            return
        if not self._has_begun:
            self._has_begun = True
            yield from self._before.values()
            self._before.clear()
        yield record

    def _time_of(self, record: StoredRecord) -> int:
        """Return the decision time; for a tombstone that of the record before it, for an unreadable record its append
        time.
        """
        if self._since_ms is None and self._until_ms is None:
            return 0
        if record.value is None:
            return self._at_ms
        found = read_record(record)
        if found is not None and isinstance(found[1], Happened | Coordinated):
            times = self._of_partition if found[0] is None else self._times.get(found[0], AS_RECORDED)
            return self._not_back_within(found[0], times.at_ms(found[1]))
        return record.timestamp_ms

    def _not_back_within(self, group_id: GroupId | None, at_ms: int) -> int:
        """Return the time, or one after the window if the group has had an event after it: owners' clocks differ a
        little, and what follows the end of a group's window is not in it.
        """
        until_ms = self._until_ms
        if until_ms is None or group_id is None or (at_ms <= until_ms and group_id not in self._over):
            return at_ms
        self._over.add(group_id)
        return max(at_ms, until_ms + 1)

    def _note_wanted(self, key: bytes) -> bool:
        if self._wanted is None:
            self.has_group = True
            return True
        try:
            decoded = decode_key(key)
        except UndecodableKey:
            return True
        if decoded.kind is EntityKind.PARTITION:
            return True
        is_wanted = fnmatchcase(decoded.group_id, self._wanted)
        self.has_group = self.has_group or is_wanted
        return is_wanted
