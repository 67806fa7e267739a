"""Reading a partition with scripted responses of its leader: gaps, refusals, and the order of searching it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.events.kafka.errors import TryAgain
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogDenied, LogUnavailable
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.link import KafkaLink, PartitionLane, Timeouts
from muster.events.log.kafka.reader import begin_offsets, end_offset, newest_stamp, read, sample_batches
from muster.events.records import BrokenBatch, Record
from tests.events.log.kafka.foreign_batches import at_offset
from tests.events.log.kafka.kafka_messages import offset_response, place_of, request_in, timestamp_of
from tests.events.log.kafka.stored_partition import StoredPartition

STAMP = Stamp(producer_id=7, producer_epoch=3, epoch_base=0, marked_from=0)


def batch(offset: int, *, epoch: int = 3) -> tuple[int, bytes]:
    stamp = Stamp(producer_id=7, producer_epoch=epoch, epoch_base=0, marked_from=0)
    encoded = encode_batch([(Record(b"key", b"%d" % offset),)], stamp, base_sequence=0, timestamp_ms=1)
    return offset, at_offset(encoded, offset)


async def offsets_of(link: StoredPartition, *, start: int = 0, end: int | None = None) -> list[int]:
    chunks = read(link, "events", 0, start=start, end=link.end if end is None else end, timeout_ms=50)
    return [record.offset async for chunk in chunks for record in chunk]


async def test_after_a_gap_left_by_compaction_there_is_nothing() -> None:
    """An empty response of a leader that knows the end shows that."""
    link = StoredPartition(batch(0), batch(3), end=9)
    assert await offsets_of(link) == [0, 3]
    stamp = await newest_stamp(link, "events", 0, home=None, timeout_ms=50)
    assert stamp is not None
    assert stamp.producer_id == STAMP.producer_id


async def test_a_log_that_ends_too_early_is_not_taken_for_one_with_a_gap() -> None:
    """A new leader may not know of the end yet; if it does not learn of it, records were lost."""
    link = StoredPartition(batch(0), end=1)
    chunks = read(link, "events", 0, start=0, end=5, timeout_ms=50)
    assert [record.offset for record in await anext(chunks)] == [0]
    with pytest.raises(LogUnavailable, match="ends at 1, before 5"):
        await anext(chunks)


async def test_records_before_a_broken_batch_are_returned_first() -> None:
    """Though one fetch brought both."""
    offset, encoded = batch(1)
    link = StoredPartition(batch(0), (offset, encoded[:-1] + bytes([encoded[-1] ^ 1])), end=2)
    chunks = read(link, "events", 0, start=0, end=2, timeout_ms=50)
    assert [record.offset for record in await anext(chunks)] == [0]
    with pytest.raises(BrokenBatch, match="partition 0, offset 1: the checksum"):
        await anext(chunks)
    assert link.fetched == [0]


async def test_a_permanently_refused_fetch_is_not_retried() -> None:
    """Nor taken for an empty partition; the error names the missing permission."""
    link = StoredPartition(batch(0), end=1)
    link.fetch_errors = [ErrorCode.topic_authorization_failed]
    with pytest.raises(LogDenied, match="Allow READ on TOPIC events"):
        await offsets_of(link)
    assert link.fetched == [0]


async def test_records_removed_at_the_front_are_skipped() -> None:
    """Another cleanup policy removed them, or an administrator deleted records."""
    link = StoredPartition(batch(4), batch(5), end=6, start=4)
    link.fetch_errors = [ErrorCode.offset_out_of_range]
    assert await offsets_of(link) == [4, 5]
    assert link.fetched == [0, 4]


async def test_an_offset_beyond_the_end_is_not_the_front() -> None:
    """Otherwise the request would be read from the beginning."""
    link = StoredPartition(batch(4), end=5)
    link.fetch_errors = [ErrorCode.offset_out_of_range]
    with pytest.raises(LogUnavailable, match="partition 0 of events ends before offset 5"):
        await offsets_of(link, start=5, end=9)


async def test_the_newest_records_are_looked_into_first() -> None:
    """They nearly always show which log the topic belongs to; then some earlier ones follow, then the oldest."""
    link = StoredPartition(batch(0), batch(999), end=1_000)
    assert [len(each) > 0 async for each in sample_batches(link, "events", 0, timeout_ms=50)] == [True, True, True]
    assert link.fetched == [999, 500, 0]


@pytest.mark.parametrize(
    ("start", "end", "fetched"),
    [(5, 5, []), (4, 5, [4]), (3, 5, [4, 3]), (700, 1_000, [999, 700]), (500, 1_000, [999, 500])],
)
async def test_a_sparse_partition_is_searched_at_most_once_at_each_position(
    start: int, end: int, fetched: list[int]
) -> None:
    link = StoredPartition(*(batch(at) for at in {start, end - 1} if at < end), end=end, start=start)
    assert len([each async for each in sample_batches(link, "events", 0, timeout_ms=50)]) == len(fetched)
    assert link.fetched == fetched


async def test_the_last_owner_is_looked_for_in_steps_that_grow_up_to_a_limit() -> None:
    """One fetch nearly always finds it; after many foreign records, or a gap, it takes few."""
    link = StoredPartition(end=300_000)
    assert await newest_stamp(link, "events", 0, home=None, timeout_ms=50) is None
    near = [299_999, 299_991, 299_927, 299_415, 295_319]
    assert link.fetched == [*near, 262_551, 212_551, 162_551, 112_551, 62_551, 12_551, 0]


async def test_the_last_owner_is_looked_for_no_further_than_the_first_record() -> None:
    """Nothing is left before it, and would be looked for in vain."""
    link = StoredPartition(end=300_000, start=299_500)
    link.fetch_errors = [ErrorCode.none] * 3 + [ErrorCode.offset_out_of_range]
    assert await newest_stamp(link, "events", 0, home=None, timeout_ms=50) is None
    assert link.fetched == [299_999, 299_991, 299_927, 299_415, 299_500]


async def test_fetches_and_list_offsets_are_sent_like_a_consumers() -> None:
    """Foreign transactions are read too, and reported as foreign; no fetch waits for records that may not exist."""
    requests: list[Any] = []

    class Noting(StoredPartition):
        async def ask_leader(
            self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
        ) -> Any:
            requests.append((request_in(request), lane, timeout_ms))
            return await super().ask_leader(topic, partition, request, lane=lane, timeout_ms=timeout_ms)

    link = Noting(batch(4), end=5)
    assert await end_offset(link, "events", 0, timeout_ms=50) == 5
    assert await offsets_of(link, start=4) == [4]
    lane = PartitionLane("read", "events", 0)
    (end, *of_end), (fetch, *of_fetch) = requests
    assert (of_end, of_fetch) == ([lane, None], [lane, 20_000])
    assert (end.replica_id, end.isolation_level, timestamp_of(end)) == (-1, 0, -1)
    assert (fetch.replica_id, fetch.isolation_level, fetch.rack_id) == (-1, 0, "")
    assert (fetch.max_wait, fetch.min_bytes, fetch.max_bytes) == (timedelta(milliseconds=200), 1, 2**20)
    assert place_of(fetch) == (4, 2**20)


async def test_a_chunk_is_given_when_it_has_2000_records_or_more() -> None:
    """A batch is returned whole, if it is no larger than that."""
    records = [(Record(b"key", b""),) * 1_500 for _ in range(3)]
    batches = [
        (
            1_500 * number + 1_499,
            at_offset(encode_batch([each], STAMP, base_sequence=0, timestamp_ms=1), 1_500 * number),
        )
        for number, each in enumerate(records)
    ]
    chunks = read(StoredPartition(*batches, end=4_500), "events", 0, start=0, end=4_500, timeout_ms=50)
    assert [len(chunk) async for chunk in chunks] == [3_000, 1_500]


class ManyPartitions(KafkaLink):
    """Two brokers that lead the even and the odd partitions, each of which begins at its own number."""

    def __init__(self, *, silent: tuple[int, ...] = ()) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self.asked: list[tuple[int, Any, int]] = []
        """The broker, the lane and the number of partitions of each request."""
        self._hung = list(silent)

    def leader(self, topic: str, partition: int) -> int | None:
        return partition % 2

    async def ask(self, node_id: int, request: Any, *, lane: object = 0, timeout_ms: int | None = None) -> Any:
        (wanted,) = request_in(request).topics
        assert {each.timestamp for each in wanted.partitions} == {-2}
        partitions = [each.partition_index for each in wanted.partitions]
        self.asked.append((node_id, lane, len(partitions)))
        if node_id in self._hung:
            self._hung.remove(node_id)
            raise TryAgain("it hangs")
        response = offset_response(wanted.name, 0, 0)
        (answered,) = response.topics
        (found,) = answered.partitions
        offsets = tuple(replace(found, partition_index=each, offset=each) for each in partitions)
        return replace(response, topics=(replace(answered, partitions=offsets),))

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Any:
        return await self.ask(partition % 2, request, lane=lane)


async def test_finding_the_start_of_a_thousand_partitions_takes_a_request_per_broker() -> None:
    """The requests are not sent one after another, each on its own connection."""
    link = ManyPartitions()
    assert await begin_offsets(link, "events", range(1_000), timeout_ms=30_000) == {each: each for each in range(1_000)}
    assert sorted(link.asked) == [(0, "ends", 500), (1, "ends", 500)]


async def test_a_broker_that_does_not_respond_is_retried_and_no_other() -> None:
    link = ManyPartitions(silent=(1, 1))
    assert len(await begin_offsets(link, "events", range(100), timeout_ms=5_000)) == 100
    assert [(node, requested) for node, lane, requested in link.asked if lane == "ends"].count((0, 50)) == 1
