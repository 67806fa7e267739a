"""Reading a topic that has gaps, and reading it with another client, on a real broker."""

import asyncio
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import PolicyViolationError

from muster.events.log.base import EventLog
from muster.events.records import Record, StoredRecord
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import OpenKafkaLog, ProxiedKafkaEventLog
from tests.events.log.on_broker.topics import create_topic, set_configs
from tests.events.log.transitions import read_all, transition
from tests.waiting import until

pytestmark = pytest.mark.broker


async def compacted(log: EventLog, *, records_max: int) -> list[StoredRecord]:
    """Return the log once compaction has left no more than that; the broker decides when compaction runs."""
    async with asyncio.timeout(120):
        while len(stored := await read_all(log)) > records_max:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return stored


async def records_deleted(admin: AIOKafkaAdminClient, topic: str, before_offset: int) -> bool:
    """Delete them; False while the broker still has the policy by which a topic is only compacted."""
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=before_offset)})
    except PolicyViolationError:
        return False
    return True


class TestCompaction:
    @pytest.mark.parametrize(("deleted", "left"), [(3, [3, 4]), (5, [])])
    async def test_reading_begins_where_the_log_begins(
        self, log: ProxiedKafkaEventLog, admin: AIOKafkaAdminClient, topic: str, *, deleted: int, left: list[int]
    ) -> None:
        """Records deleted by an operator are a gap like any other; a log emptied like that can be claimed, and
        continues.
        """
        await (await log.claim(0)).append([transition("a", records=5)])
        await set_configs(admin, topic, {"cleanup.policy": "delete"})
        await until(partial(records_deleted, admin, topic, deleted))

        assert [one.offset for one in await read_all(log)] == left
        await (await log.claim(0)).append([transition("b", records=1)])
        assert [one.offset for one in await read_all(log)] == [*left, 5]

    async def test_reading_passes_over_the_gaps_that_compaction_leaves(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """The last value of each key is there, at its old offset; the end is where it was."""
        compacted_at_once = {
            "min.compaction.lag.ms": "0",
            "segment.ms": "1",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        }
        await create_topic(admin, topic, compacted_at_once, partitions=1)
        log = await open_log(audit_window_ms=0)
        writer = await log.claim(0)
        for number in range(20):
            await writer.append(
                [(Record(b"key", b"%d" % number), Record(b"gone", b"%d" % number), Record(b"gone", None))]
            )
        end = await log.end_offset(0)

        first = await compacted(log, records_max=20)
        part = await read_all(log, start=1, end=50)
        last = await read_all(log)  # compaction may have gone on meanwhile

        assert await log.end_offset(0) == end == 60
        assert [(one.offset, one.value) for one in last if one.key == b"key"][-1] == (57, b"19")
        assert {one.offset for one in last} <= {one.offset for one in first} < set(range(60))
        assert {one.offset for one in last} & set(range(1, 50)) <= {one.offset for one in part} <= set(range(1, 50))


async def test_another_client_reads_the_same(log: ProxiedKafkaEventLog, kafka_broker: Broker, topic: str) -> None:
    """Our batches are plain Kafka: compressed and small ones, tombstones, empty values, times."""
    writer = await log.claim(1)
    large = tuple(Record(b"%d" % n, b"value" * 100) for n in range(100))
    await writer.append([transition("a"), (Record(b"gone", None), Record(b"empty", b""))])
    await writer.append([large])
    ours = [(one.offset, one.timestamp_ms, one.key, one.value) for one in await read_all(log, 1)]

    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, isolation_level="read_committed")
    await consumer.start()
    partition = TopicPartition(topic, 1)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    theirs: list[Any] = []
    while len(theirs) < len(ours):
        fetched = await consumer.getmany(partition, timeout_ms=10_000)
        assert fetched, "nothing more came"
        theirs += [(one.offset, one.timestamp, one.key, one.value) for one in fetched[partition]]
    await consumer.stop()

    assert theirs == ours
