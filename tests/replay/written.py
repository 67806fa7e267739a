"""Writes scripts to real logs as a coordinator does, and breaks records of a log."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from muster.events.avro.codec import records_of
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import EventLog
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.log.url import open_log
from muster.events.partitioner import partition_for
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord
from muster.replay.history.items import Broken, Gap, Item
from tests.replay.histories import Script

PARTITIONS = 8


def script(group_id: str) -> Script:
    """Return a script for the partition that the group really belongs to."""
    return Script(group_id, partition=partition_for(group_id, PARTITIONS))


async def write(log: EventLog, scripts: Iterable[Script]) -> None:
    """Append the transitions of each script to its partition."""
    for reported in scripts:
        writer = await log.claim(reported.partition)
        verdicts = await writer.append(reported.stored_transitions())
        assert not any(verdicts)


def stored_items(items: Iterable[Item], partition: int) -> list[StoredRecord]:
    """Return records that would be read as these items; an unreadable one has any other value."""
    records: list[StoredRecord] = []
    for item in items:
        if isinstance(item, Gap):
            continue
        reported = [broken_value("orders")] if isinstance(item, Broken) else records_of([item.event], FORMAT_LEVEL)
        for record in reported:
            at_ms = item.position.timestamp_ms
            records.append(StoredRecord(partition, len(records), at_ms, record.key, record.value))
    return records


async def sqlite_log(path: Path, *scripts: Script) -> str:
    """Return the URL of a SQLite log with the scripts."""
    url = f"sqlite:///{path}"
    log = open_log(url, partitions=PARTITIONS)
    await log.open()
    await write(log, scripts)
    await log.close()
    return url


async def append(tmp_path: Path, partition: int, *transitions: tuple[Record, ...]) -> str:
    """Append to the file in a folder, which is created if it is missing; returns its URL."""
    url = f"sqlite:///{tmp_path / 'muster.db'}"
    log = open_log(url, partitions=PARTITIONS)
    await log.open()
    writer = await log.claim(partition)
    await writer.append(list(transitions))
    await log.close()
    return url


async def memory_log(records: Iterable[StoredRecord]) -> MemoryEventLog:
    """Return a memory log with exactly these records, including gaps in their offsets."""
    storage = MemoryStorage(PARTITIONS)
    for record in records:
        storage.records[record.partition].append(record)
    log = MemoryEventLog(storage)
    await log.open()
    return log


def broken_value(group_id: str) -> Record:
    """Return a record of the group with a value that is not an event."""
    return Record(encode_key(RecordKey(group_id, EntityKind.GROUP, "")), b"\xc3\x01garbage")


def unknown_type(group_id: str) -> Record:
    """Return a record of the group with an unknown schema."""
    return Record(encode_key(RecordKey(group_id, EntityKind.GROUP, "")), b"\xc3\x01" + bytes(8) + b"\x00")


BROKEN_KEY = Record(b"not a key", b"\x00")


class CountedValue(bytes):
    """A record's value that is counted while it is kept."""

    kept = 0

    def __init__(self, _: bytes) -> None:
        type(self).kept += 1

    def __del__(self) -> None:
        type(self).kept -= 1


def counted(record: StoredRecord) -> StoredRecord:
    """Return the record, for tests of how many are kept."""
    return msgspec.structs.replace(record, value=CountedValue(record.value or b""))
