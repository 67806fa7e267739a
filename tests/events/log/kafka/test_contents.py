"""Finding out which program wrote the records of an existing topic."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.events.events import CoordinatorStopped
from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.keys import encode_key, key_of
from muster.events.log.base import LogMismatch
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.origin import Contents, contents_of, refuse_foreign
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.records import Record
from tests.events.log.kafka.foreign_batches import at_offset
from tests.events.log.kafka.kafka_messages import (
    LIST_OFFSETS,
    fetch_response,
    offset_response,
    request_in,
    timestamp_of,
)
from tests.events.log.kafka.stored_partition import StoredPartition

STAMP = Stamp(producer_id=7, producer_epoch=3, epoch_base=0)
_EARLIEST = -2
_GZIP = 1


class StoredBatches(KafkaLink):
    """The leader of partitions that hold one batch each; an empty one holds none."""

    def __init__(self, *batches: bytes) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self._batches = batches
        self.fetched: list[int] = []

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Any:
        batch = self._batches[partition]
        end = 1 if batch else 0
        requested = request_in(request)
        if requested.__api_key__ == LIST_OFFSETS:
            return offset_response(topic, partition, 0 if timestamp_of(requested) == _EARLIEST else end)
        self.fetched.append(partition)
        return fetch_response(topic, partition, end, batch)


def batch_of(key: bytes, stamp: Stamp) -> bytes:
    return encode_batch([(Record(key, b"value"),)], stamp, base_sequence=0, timestamp_ms=1)


def unmarked(key: bytes, headers: tuple[tuple[str, bytes], ...] = (), *, codec: int = 0) -> bytes:
    """As another producer writes it, or an owner did before owners marked their records."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, 7, 3, 0, 10_000)
    builder.append(0, 1, key, b"value" * 100, list(headers))
    return bytes(builder.build())


async def found(*batches: bytes) -> Contents:
    return await contents_of(StoredBatches(*batches), "users", len(batches), timeout_ms=1_000)


OUR_KEY = encode_key(key_of(CoordinatorStopped(partition=0, owner_epoch=1, owner="a:1", stopped_ms=1)))


async def test_an_empty_topic_belongs_to_no_log() -> None:
    """The first to come gets it."""
    assert await found(b"", b"") is Contents.NOTHING


@pytest.mark.parametrize("batch", [unmarked(b"user-17"), unmarked(b""), unmarked(b"user-17", codec=_GZIP)])
async def test_foreign_records_belong_to_another_program(batch: bytes) -> None:
    """With any compression, and also beside empty partitions."""
    assert await found(b"", batch, b"") is Contents.FOREIGN


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(b"any", STAMP),
        unmarked(b"any", (("muster.origin", b"2 cluster"),)),
        unmarked(b"any", (("muster.epoch-base", b"9"),)),
        unmarked(OUR_KEY),
        unmarked(OUR_KEY, codec=_GZIP),
    ],
    ids=["mark", "origin", "epoch base", "key", "compressed by the broker"],
)
async def test_one_record_of_an_owner_is_enough(batch: bytes) -> None:
    """It is known by its headers, or by its key if it was written before there were any."""
    assert await found(unmarked(b"user-17"), b"", batch) is Contents.OURS


async def keys_of_offsets() -> AsyncIterator[bytes]:
    storage = MemoryStorage(partitions=1)
    store = TopicOffsetStore(lambda: MemoryEventLog(storage))
    await store.open()
    await store.claim(0)
    commit = OffsetToCommit(
        topic="orders", partition=0, offset=1, leader_epoch=-1, metadata="", commit_ms=1, expire_ms=None
    )
    await store.write([OffsetsChange(group_id=GroupId("a group"), committed=(commit,))])
    for record in storage.records[0]:
        yield record.key


async def test_offsets_are_recognized_by_their_keys_too() -> None:
    """They are in a separate topic, which is opened in the same way."""
    keys = [key async for key in keys_of_offsets()]
    assert len(keys) == 2
    for key in keys:
        assert await found(unmarked(key)) is Contents.OURS


async def test_known_contents_are_not_looked_up_again() -> None:
    """The newest record of the first partition settles it nearly always."""
    link = StoredBatches(unmarked(OUR_KEY), unmarked(OUR_KEY))
    await contents_of(link, "events", 2, timeout_ms=1_000)
    assert link.fetched == [0]


@pytest.mark.parametrize("was_opened", [False, True])
async def test_owners_are_looked_for_in_all_of_a_topic_only_where_a_log_was_opened(*, was_opened: bool) -> None:
    """A large topic of another application is refused immediately."""

    async def requested() -> bool:
        return was_opened

    link = StoredBatches(unmarked(b"user-17"))
    with pytest.raises(LogMismatch, match="topic users is a foreign topic"):
        await refuse_foreign(link, "users", 1, was_opened=requested, timeout_ms=1_000)
    assert len(link.fetched) == 1 + was_opened


@pytest.mark.parametrize("ours_at", [300, None])
async def test_an_owners_record_in_the_middle_is_found_where_a_log_was_opened(ours_at: int | None) -> None:
    """Another producer has written much before and after it."""

    async def requested() -> bool:
        return True

    theirs = [(at, at_offset(unmarked(b"user-17"), at)) for at in (0, 1_500, 1_999)]
    ours = [(at, at_offset(batch_of(b"any", STAMP), at)) for at in (ours_at,) if at is not None]
    link = StoredPartition(*sorted(theirs + ours), end=2_000)
    if ours_at is None:
        with pytest.raises(LogMismatch, match="topic users is a foreign topic"):
            await refuse_foreign(link, "users", 1, was_opened=requested, timeout_ms=1_000)
    else:
        assert await refuse_foreign(link, "users", 1, was_opened=requested, timeout_ms=1_000) is Contents.OURS
