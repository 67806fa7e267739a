"""Reads the evidence in the cluster: the events of the log, and every stored commit, in order. Uses replay's own
readers for Muster's data, and judges nothing.
"""

import json
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final

import confluent_kafka
import msgspec

from muster.events.events import Event
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.replay.history.items import Broken, Happened, LogPosition
from muster.replay.logs.opening import open_for_reading
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import read_record
from tests.forked import run_muster

BROKERS_OFFSETS: Final = "__consumer_offsets"
READ_WITHIN_S: Final = 300.0
VERIFIED_WITHIN_S: Final = 300.0

_VERSION: Final = struct.Struct(">h")
_COMMIT_KEYS: Final = (0, 1)
"""The versions of the keys of commits in the brokers' own topic; 2 is a group's."""
_FLEXIBLE_FROM: Final = 4
"""The version from which values have compact strings; from 3 on the metadata follows an offset and an epoch."""


class Recorded(msgspec.Struct, frozen=True):
    """An event of a group, and where it is."""

    event: Event
    at: LogPosition


class StoredCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A stored commit; `place`: where. `metadata`: the generation, for members that put it there."""

    group_id: str
    partition: int
    offset: int
    metadata: str
    place: str


class LogRead(msgspec.Struct, frozen=True):
    """The events of all groups, each group's in its order, and the records that cannot be read, in words."""

    events: Sequence[Recorded]
    broken: Sequence[str]


async def events_in(url: str) -> LogRead:
    """Read the whole log. Raises LogError and EventsError."""
    events, broken = [], []
    log = open_for_reading(url, security=NOT_SECURED)
    await log.open()
    try:
        async for chunk in Reading(log=log).chunks(range(log.partitions)):
            for _, read in filter(None, map(read_record, chunk)):
                if isinstance(read, Happened):
                    events.append(Recorded(read.event, read.position))
                elif isinstance(read, Broken):
                    broken.append(f"partition {read.position.partition}, offset {read.position.offset}: {read.reason}")
    finally:
        await log.close()
    return LogRead(events, broken)


def verified(url: str) -> Sequence[str]:
    """The findings of `muster replay verify`, in words."""
    ran = run_muster("replay", "verify", "--log", url, "--format", "json", within_s=VERIFIED_WITHIN_S)
    try:
        output = json.loads(ran.stdout)
    except json.JSONDecodeError:
        return [f"verify ended with {ran.returncode}: {ran.stderr[-500:]}"]
    return [json.dumps(each) for each in output["findings"]] + [str(each) for each in output["unread"]]


class StoredCommits:
    """The commits stored in a cluster since this was created; `topic`: the offsets topic. The topic keeps all of them
    for long enough: records in the active segment are not compacted.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._read: list[StoredCommit] = []
        self._next: dict[int, int] = {}

    @classmethod
    def beside(cls, bootstrap: str, log_topic: str) -> "StoredCommits":
        """Those of standalone Musters."""
        return cls(bootstrap, log_topic + OFFSETS_SUFFIX)

    def read(self) -> Sequence[StoredCommit]:
        """All, those of one partition in their order. Raises KafkaException, TimeoutError."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.partition.eof": True, "log_level": 0}
        )
        try:
            self._read_with(consumer)
        finally:
            consumer.close()
        return self._read

    def _read_with(self, consumer: confluent_kafka.Consumer) -> None:
        partitions = consumer.list_topics(self._topic, READ_WITHIN_S).topics[self._topic].partitions
        begin = [confluent_kafka.TopicPartition(self._topic, each, self._next.get(each, 0)) for each in partitions]
        consumer.assign(begin)
        unread, deadline_s = set(partitions), time.monotonic() + READ_WITHIN_S
        while unread:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._topic} could not be read to its end within {READ_WITHIN_S:g} s")
            for message in consumer.consume(500, 0.2):
                if (error := message.error()) is not None:
                    if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        unread.discard(message.partition())
                    continue
                self._next[message.partition() or 0] = (message.offset() or 0) + 1
                self._read += _commits_of(message)


def _commits_of(message: confluent_kafka.Message) -> Iterator[StoredCommit]:
    key, value = message.key(), message.value()
    if key is None or value is None:
        return
    place = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
    if message.topic() != BROKERS_OFFSETS:
        named, reported = json.loads(key), json.loads(value)
        if "group" in named:
            yield StoredCommit(
                group_id=named["group"],
                partition=named["partition"],
                offset=reported["offset"],
                metadata=reported["metadata"] or "",
                place=place,
            )
        return
    if _VERSION.unpack_from(key)[0] in _COMMIT_KEYS:
        group_id, at = _text(key, 2)
        _, at = _text(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        version, offset = struct.unpack_from(">hq", value)
        metadata = _compact_text(value, 14) if version >= _FLEXIBLE_FROM else _text(value, 14)[0]
        yield StoredCommit(group_id=group_id, partition=partition, offset=offset, metadata=metadata, place=place)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _VERSION.unpack_from(data, at)
    begin = at + _VERSION.size
    return data[begin : begin + size].decode(), begin + size


def _compact_text(data: bytes, at: int) -> str:
    """A short one: its size, with one more, is one byte."""
    return data[at + 1 : at + data[at]].decode()
