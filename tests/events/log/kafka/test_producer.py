"""Claiming a partition: the next epoch, and from where on owners mark their records; an append that is sent again."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.events.log.base import AppendRefused, Deposed, LogDenied, LogError, LogMismatch, LogUnavailable
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.decoding import writers_of
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.marks import KEY_PREFIXES
from muster.events.log.kafka.producer import KafkaWriter, WriterConfig, claim
from muster.events.records import Record
from tests.events.log.kafka.foreign_batches import at_offset, batch
from tests.events.log.kafka.kafka_messages import produce_response
from tests.events.log.kafka.stored_partition import StoredPartition
from tests.events.log.repeating import repeated
from tests.events.log.transitions import incompressible, read_all
from tests.faults.cluster import PRODUCE, FakeCluster
from tests.faults.process import story

ONE = Record(b"key", b"value")
CONFIG = WriterConfig(topic="events", partition=0, limit_bytes=1_000, delivery_timeout_ms=50)


def owners(offset: int, stamp: Stamp) -> tuple[int, bytes]:
    return offset, at_offset(encode_batch([(ONE,)], stamp, base_sequence=0, timestamp_ms=1), offset)


@pytest.mark.parametrize("batches", [(), ((4, batch([ONE], base_offset=4)),)], ids=["nothing", "a stranger's"])
async def test_without_owner_records_all_unmarked_records_are_foreign(batches: tuple[tuple[int, bytes], ...]) -> None:
    """From the first offset on."""
    writer = await claim(StoredPartition(*batches, end=5), CONFIG)
    assert (writer._stamp.marked_from, writer._stamp.native_from) == (0, 0)
    assert writer.epoch == 3


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, 10 + 3), (6, 10 + 2 + 1 + 3)])
async def test_the_beginning_of_marking_is_noted_again(producer_id: int, epoch: int) -> None:
    """With another producer id, which starts at 0 again, epochs continue above those of the last owner."""
    former = Stamp(producer_id=producer_id, producer_epoch=2, epoch_base=10, marked_from=3)
    writer = await claim(StoredPartition(owners(4, former), end=5), CONFIG)
    assert writer._stamp.marked_from == 3
    assert writer.epoch == epoch


@story
async def test_an_owner_of_a_log_without_marks_notes_where_its_own_begin() -> None:
    """Its first batch cannot contain its own offset; each later one does, whatever is in between."""
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
    partition.batches.append((9, 10, batch([ONE], base_offset=9)))  # another producer's
    await writer.append([(ONE,)])
    positions.append(writer.next_offset)
    written = [found for _, _, each in partition.batches for found, _ in writers_of(each, end=99)]
    noted = [(each.base_offset, each.stamp.marked_from, each.stamp.native_from) for each in written if each is not None]
    assert noted == [(0, None, None), (5, None, None), (7, 5, 5), (9, None, None), (10, 5, 5)]
    assert positions == [None, 7, 9, 11]
    await log.close()


@story
async def test_a_batch_that_the_broker_finds_too_large_is_over_its_limit() -> None:
    """It was lowered; the current limit is not reported, but is less than that batch."""
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
async def test_a_batch_that_is_too_large_only_when_it_is_sent_again_is_not_taken_for_missing() -> None:
    """The first one may be there: what became of it is not known."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)

    def loses(api_key: int) -> bool:
        is_first = api_key == PRODUCE and cluster.produce_error is None
        if is_first:
            cluster.produce_error = ErrorCode.message_too_large
        return is_first

    cluster.loses = loses  # type: ignore[method-assign]
    with pytest.raises(LogUnavailable, match="partition 0 of events: the broker refuses the batch: MESSAGE_TOO_LARGE"):
        await writer.append([(ONE,)])
    assert cluster.partition("events", 0).end == 1
    await log.close()


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (ErrorCode.invalid_producer_epoch, Deposed, "partition 0"),
        (ErrorCode.producer_fenced, Deposed, "partition 0"),
        (ErrorCode.invalid_topic_exception, LogMismatch, "broker:1 is a sidecar, not a broker"),
        (
            ErrorCode.invalid_timestamp,
            LogUnavailable,
            r"by the clock of this machine it is 1970-01-01T00:00:17\+00:00, and topic events does not allow this",
        ),
        (ErrorCode.topic_authorization_failed, LogDenied, "lacks the ACL Allow WRITE on TOPIC events"),
        (ErrorCode.out_of_order_sequence_number, LogUnavailable, "the batch: OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ],
)
@story
async def test_a_refused_append_gives_the_reason(error: ErrorCode, kind: type[LogError], told: str) -> None:
    """The writer is dead from then on, and repeats the error."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1, wall_ms=lambda: 17_000)
    await log.open()
    writer = await log.claim(0)
    cluster.produce_error = error
    for _ in range(2):
        with pytest.raises(kind, match=told):
            await writer.append([(ONE,)])
        cluster.produce_error = None
    await log.close()


@story
async def test_a_batch_that_was_appended_already_is_durable() -> None:
    """The broker that remembers it reports that, but not its offset."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    assert isinstance(writer, KafkaWriter)
    await writer.append([(ONE,)])
    cluster.produce_error = ErrorCode.duplicate_sequence_number
    assert list(await writer.append([(ONE, ONE)])) == [None]
    assert (writer.next_offset, writer._sequence) == (None, 3)
    cluster.produce_error = None
    await log.close()


@pytest.mark.parametrize("limit_over", [0, -1])
async def test_a_batch_is_taken_up_to_the_limit_of_its_size(limit_over: int) -> None:
    """One byte over it, and it is refused without being sent."""
    stamp = Stamp(producer_id=7, producer_epoch=3, epoch_base=0, marked_from=0, native_from=0)
    transition = (Record(b"key", incompressible(2_000, "x")),)
    size = len(encode_batch([transition], stamp, base_sequence=0, timestamp_ms=1))
    config = msgspec.structs.replace(CONFIG, limit_bytes=size + limit_over)
    sent: list[bytes] = []

    class Link(StoredPartition):
        async def ask_leader(self, *_: Any, **__: Any) -> Any:
            sent.append(b"")
            return produce_response("events", 0, base_offset=4)

    verdicts = await KafkaWriter(Link(end=4), config, stamp).append([transition])
    refused = [] if limit_over == 0 else [AppendRefused(size_bytes=size, limit_bytes=size - 1)]
    assert [each for each in verdicts if each] == refused
    assert len(sent) == (limit_over == 0)


@story
async def test_sequence_numbers_begin_again_at_nought_behind_the_last() -> None:
    """They have 31 bits; the broker counts on like this, and refuses all others."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    assert isinstance(writer, KafkaWriter)
    writer._sequence = 2**31 - 3
    for number in range(1, 4):
        assert list(await writer.append([(ONE,) * number])) == [None]
    assert (cluster.partition("events", 0).end, writer._sequence) == (6, 3)
    await log.close()


@story
async def test_a_large_batch_is_encoded_in_a_thread() -> None:
    """Otherwise it would delay everything else; for a small one a thread takes longer than it saves."""
    in_threads: list[int] = []

    async def to_thread(encode: Callable[[], bytes]) -> bytes:
        in_threads.append(len(encode()))
        return encode()

    log = KafkaEventLog(FakeCluster().bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "to_thread", to_thread)
        for kib, threads in ((200, 0), (300, 1)):
            await writer.append([(Record(b"k", incompressible(kib * 1024, "x")),)])
            assert len(in_threads) == threads
    await log.close()


@pytest.mark.parametrize(("stops", "unknown"), [(False, set()), (True, {0, 2, 4})])
@story
async def test_appends_are_sent_again_in_one_request_to_each_leader(stops: bool, unknown: set[int]) -> None:
    """The partitions of a broker that is down are not proven; those of the others are."""
    cluster = FakeCluster(2)
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=6)
    await log.open()
    writers = [await log.claim(partition) for partition in range(5)]
    for writer in writers:
        await writer.append([(ONE,)])
    fresh = await log.claim(5)
    if stops:
        cluster.stop(1)
    requested = cluster.asked[PRODUCE]
    answers = [dict(some) async for some in log.repeat([*writers, fresh], timeout_ms=1_000)]
    assert answers[0] == {5: False}
    assert {partition for some in answers[1:] for partition, is_one in some.items() if is_one is True} == (
        {0, 1, 2, 3, 4} - unknown
    )
    assert {partition for some in answers[1:] for partition, is_one in some.items() if is_one is False} == unknown
    assert cluster.asked[PRODUCE] - requested == (1 if stops else 2)
    await log.close()


@story
async def test_a_repeated_append_appends_nothing_and_reports_a_deposed_writer() -> None:
    """Nothing was appended before it, or a batch that is too large to keep: that is reported, and the writer
    continues.
    """
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
async def test_durable_records_are_on_all_in_sync_replicas() -> None:
    """For an append and for its repetition: the leader alone may lose it with its disk."""
    cluster = FakeCluster()
    log = KafkaEventLog(cluster.bootstrap, "events", partitions=1)
    await log.open()
    writer = await log.claim(0)
    await writer.append([(ONE,)])
    assert await repeated(log, writer) == {0: True}
    assert cluster.acks["events"] == {-1}
    await log.close()
