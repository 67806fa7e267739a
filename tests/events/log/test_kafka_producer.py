"""Claiming a partition: the next epoch, and from where on owners mark their records; an append that is sent again."""

import pytest
from kio.schema.errors import ErrorCode

from muster.events.log.base import Deposed
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.decoding import writers_of
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.marks import KEY_PREFIXES
from muster.events.log.kafka.producer import WriterConfig, claim
from muster.events.records import Record
from tests.events.log.foreign_batches import at_offset, batch
from tests.events.log.repeating import repeated
from tests.events.log.stored_partition import StoredPartition
from tests.events.log.transitions import incompressible, read_all
from tests.faults.cluster import FakeCluster
from tests.faults.process import story

ONE = Record(b"key", b"value")
CONFIG = WriterConfig(topic="events", partition=0, limit_bytes=1_000, delivery_timeout_ms=50)


def owners(offset: int, stamp: Stamp) -> tuple[int, bytes]:
    return offset, at_offset(encode_batch([(ONE,)], stamp, base_sequence=0, timestamp_ms=1), offset)


@pytest.mark.parametrize("batches", [(), ((4, batch([ONE], base_offset=4)),)], ids=["nothing", "a stranger's"])
async def test_where_no_owner_wrote_all_that_has_no_mark_is_a_strangers(batches: tuple[tuple[int, bytes], ...]) -> None:
    """From the first offset on."""
    writer = await claim(StoredPartition(*batches, end=5), CONFIG)
    assert (writer._stamp.marked_from, writer._stamp.native_from) == (0, 0)
    assert writer.epoch == 3


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 10 + 3), (6, 10 + 2 + 1 + 3)])
async def test_where_owners_began_to_mark_is_noted_on(producer_id: int, epoch: int) -> None:
    """With another producer id, which begins at 0 again, epochs go on above those of the last owner."""
    former = Stamp(producer_id=producer_id, producer_epoch=2, epoch_base=10, marked_from=3)
    writer = await claim(StoredPartition(owners(4, former), end=5), CONFIG)
    assert writer._stamp.marked_from == 3
    assert writer.epoch == epoch


@story
async def test_an_owner_of_a_log_without_marks_notes_where_its_own_begin() -> None:
    """Its first batch cannot tell where it will stand; each later one does, whatever is between."""
    cluster = FakeCluster()
    cluster.create("events", 1)
    partition = cluster.partition("events", 0)
    partition.append(batch([Record(KEY_PREFIXES[0], b"an owner's that did not mark")] * 5))
    log = KafkaEventLog(cluster.bootstrap, "events", audit_window_ms=0)
    await log.open()
    writer = await log.claim(0)
    positions = [writer.next_offset]
    for _ in range(2):
        await writer.append([(ONE, ONE)])
        positions.append(writer.next_offset)
    partition.batches.append((9, 10, batch([ONE], base_offset=9)))  # a stranger's
    await writer.append([(ONE,)])
    positions.append(writer.next_offset)
    written = [found for _, _, each in partition.batches for found, _ in writers_of(each, end=99)]
    noted = [(each.base_offset, each.stamp.marked_from, each.stamp.native_from) for each in written if each is not None]
    assert noted == [(0, None, None), (5, None, None), (7, 5, 5), (9, None, None), (10, 5, 5)]
    assert positions == [None, 7, 9, 11]
    await log.close()


@story
async def test_a_batch_that_the_broker_finds_too_large_is_over_its_limit() -> None:
    """It was lowered; what it is now is not told, but less than that batch."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    cluster.produce_error = ErrorCode.message_too_large
    (refused,) = await writer.append([(ONE,)])
    assert refused is not None
    assert refused.limit_bytes == refused.size_bytes - 1
    cluster.produce_error = None
    assert list(await writer.append([(ONE,)])) == [None]
    await log.close()


@story
async def test_an_append_that_is_sent_again_appends_nothing_and_tells_who_was_deposed() -> None:
    """Nothing was appended before it, or a batch that is too large to be kept: it says so, and goes on."""
    log = KafkaEventLog(FakeCluster().bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    assert await repeated(log, writer) == {0: False}
    await writer.append([(ONE,)])
    assert await repeated(log, writer) == {0: True}
    await writer.append([(Record(b"large", incompressible(40_000, "large")),)])
    assert await repeated(log, writer) == {0: False}
    await writer.append([(ONE,)])
    assert len(await read_all(log)) == 3
    await (await log.claim(0)).append([(ONE,)])
    assert isinstance((await repeated(log, writer))[0], Deposed)
    assert len(await read_all(log)) == 4
    await log.close()


@story
async def test_what_is_durable_is_on_all_replicas_in_sync() -> None:
    """An append, and one that is sent again: the leader alone may lose it with its disk."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    await writer.append([(ONE,)])
    assert await repeated(log, writer) == {0: True}
    assert cluster.acks["events"] == {-1}
    await log.close()
