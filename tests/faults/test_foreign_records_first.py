"""Other producers write into a newly created topic of the log, before its owners do."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode

from muster.coordinator.offsets.base import StoredOffset
from muster.coordinator.offsets.codec import _key, _value
from muster.events.ids import GroupId
from muster.events.log.base import LogMismatch
from muster.events.log.kafka.names import PROBE_SUFFIX
from tests.faults.cluster import FakeCluster
from tests.faults.process import TOPIC, ProcessOnKafka, groups_in, story

OFFSETS = f"{TOPIC}_offsets"
FORGED_KEY = _key(GroupId("g"), "orders", 0)
FORGED_VALUE = _value(StoredOffset(offset=666, leader_epoch=-1, metadata="", commit_ms=0, expire_ms=None))


def foreign_producer_writes(
    cluster: FakeCluster, topic: str, *, records: int = 1, key: bytes = b"theirs", value: bytes = b"theirs"
) -> None:
    """Into each partition, as a producer without idempotence."""
    for partition in cluster.topics[topic].partitions:
        for _ in range(records):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
            builder.append(0, 0, key, value, [])
            batch = bytes(builder.build())
            end = partition.end
            partition.batches.append((end, end + 1, struct.pack(">q", end) + batch[8:]))


def process_on(cluster: FakeCluster) -> ProcessOnKafka:
    return ProcessOnKafka(cluster.bootstrap, with_offsets=True)


async def begun(process: ProcessOnKafka, cluster: FakeCluster, *topics: str) -> ProcessOnKafka:
    """Started, where other producers write before the first owner of each partition."""
    await process.kafka.open()
    await process.offsets.open()
    for topic in topics:
        foreign_producer_writes(cluster, topic)
    await process.runtime.start()
    return process


@story
async def test_foreign_records_before_the_first_owner_are_skipped_and_every_start_succeeds() -> None:
    """Even if hundreds of foreign records follow: then ours are neither the first nor the last ones."""
    cluster = FakeCluster()
    process = await begun(process_on(cluster), cluster, TOPIC, OFFSETS)
    joined = await process.stable_group("a", "b")
    assert (await process.commit(100, joined["a"])).error is ErrorCode.none
    await process.stop()
    for topic in (TOPIC, OFFSETS):
        foreign_producer_writes(cluster, topic, records=600)
    for _ in range(2):
        process = await process_on(cluster).start()
        assert (await process.heartbeat(joined["a"])).error is ErrorCode.none
        assert [each.offset for each in process.offsets.committed(process.group_id).values()] == [100]
        await process.stop()


@story
async def test_a_topic_with_only_foreign_records_is_left_unchanged() -> None:
    """It may be another application's data, if the topic was misconfigured."""
    cluster = FakeCluster()
    cluster.create(TOPIC, 3)
    foreign_producer_writes(cluster, TOPIC)
    with pytest.raises(LogMismatch, match=f"topic {TOPIC} is a foreign topic, not an event log"):
        await ProcessOnKafka(cluster.bootstrap).start()
    assert [partition.end for partition in cluster.topics[TOPIC].partitions] == [1, 1, 1]


@story
async def test_foreign_records_are_not_taken_for_those_of_an_earlier_version() -> None:
    """Though their records have the form that those had."""
    cluster = FakeCluster()
    process = process_on(cluster)
    await process.kafka.open()
    await process.offsets.open()
    foreign_producer_writes(cluster, OFFSETS, key=FORGED_KEY, value=FORGED_VALUE)
    await process.runtime.start()
    assert process.runtime.not_ready is None
    assert not process.offsets.committed(GroupId("g"))
    await process.stop()
    process = await process_on(cluster).start()
    assert process.runtime.not_ready is None
    assert not process.offsets.committed(GroupId("g"))
    await process.stop()


@story
async def test_foreign_records_do_not_hide_a_recreated_event_topic() -> None:
    """The offsets that are left would be taken for those of deleted groups."""
    cluster = FakeCluster()
    process = await process_on(cluster).start()
    assert (await process.commit(777)).error is ErrorCode.none
    await process.stop()
    was = cluster.topics[TOPIC]
    cluster.delete(TOPIC)
    process = process_on(cluster)
    with pytest.raises(LogMismatch, match=rf"topic {TOPIC} .*, but that of {OFFSETS} .* Restore {TOPIC}, or start"):
        await begun(process, cluster, TOPIC)
    await process.stop()
    cluster.topics[TOPIC] = was
    process = await process_on(cluster).start()
    assert [each.offset for each in process.offsets.committed(process.group_id).values()] == [777]
    await process.stop()


@story
async def test_foreign_records_do_not_hide_a_recreated_offsets_topic() -> None:
    """If one of its partitions was claimed since, the topic is Muster's."""
    cluster = FakeCluster()
    process = await process_on(cluster).start()
    group = next(groups_in(2, 3))
    assert (await process.commit(777, group_id=group)).error is ErrorCode.none
    await process.stop()
    cluster.recreate(OFFSETS)
    process = process_on(cluster)
    await process.offsets.open()
    await process.offsets.claim(0)
    await process.offsets.close()
    for _ in range(2):
        process = process_on(cluster)
        with pytest.raises(LogMismatch, match=rf"topic {TOPIC} has groups, but that of {OFFSETS} .* Restore {OFFSETS}"):
            await process.start()
        await process.stop()
        foreign_producer_writes(cluster, OFFSETS)


@story
async def test_a_reader_needs_no_permission_for_the_probe() -> None:
    """Then a topic without an owner's record near its ends belongs to another application, as if no log was opened
    there.
    """
    cluster = FakeCluster()
    cluster.create(TOPIC, 3)
    foreign_producer_writes(cluster, TOPIC)
    cluster.may_not_describe.add(TOPIC + PROBE_SUFFIX)
    process = ProcessOnKafka(cluster.bootstrap, read_only=True)
    with pytest.raises(LogMismatch, match=f"topic {TOPIC} is a foreign topic, not an event log"):
        await process.kafka.open()
    await process.kafka.close()
