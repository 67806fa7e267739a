"""This process's archive of a topic on a real broker."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from muster.events.keys import EntityKind, decode_key
from muster.events.log.base import LogMismatch, LogWriter
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import Record, StoredRecord
from muster.replay.archive.verify import verify
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import new_topic_name
from tests.events.log.transitions import read_all
from tests.forked import run_muster
from tests.replay.archive.logs import archived, digests, digests_in, opened
from tests.replay.fleet.fleets import judged
from tests.waiting import until

pytestmark = pytest.mark.broker

COMPACTED_AT_ONCE = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "200",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
}


async def test_an_archive_has_the_topic_byte_by_byte(kafka_broker: Broker, tmp_path: Path) -> None:
    """Including foreign records, which both skip; headers, tombstones, and large compressed batches."""
    topic = new_topic_name()
    log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=2)
    await log.open()
    writer = await log.claim(1)
    await writer.append([(Record(b"a", b"1"), Record(b"a", None))])
    producer = AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    await producer.start()
    await producer.send_and_wait(topic, b"strange", b"key", partition=1, headers=[("h", b"1")])
    await producer.stop()
    await writer.append([tuple(Record(b"%d" % n, b"value" * 100) for n in range(300))])
    await archived(log, tmp_path, now_ms=None)

    archive = await opened(tmp_path)
    assert await digests_in(tmp_path) == await digests(log)
    assert archive.identity == log.identity
    for partition in range(2):
        assert await read_all(archive, partition) == await read_all(log, partition)
    assert [record.offset for record in await read_all(archive, 1) if record.is_foreign] == [2]
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared) == ((), 303)
    await log.close()


async def test_foreign_transactions_do_not_block_reading(kafka_broker: Broker, tmp_path: Path) -> None:
    """Open, aborted and committed ones are archived as they come; their end markers take an offset without a record."""
    topic = new_topic_name()
    log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=1)
    await log.open()
    writer = await log.claim(0)
    producer = AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap, transactional_id=topic)
    await producer.start()
    for ends in (producer.commit_transaction, producer.abort_transaction):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"strange", b"key", partition=0)
        await ends()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"not committed", b"key", partition=0)
    await writer.append([(Record(b"a", b"1"),)])
    await archived(log, tmp_path, now_ms=None)  # while the last one is open
    await producer.abort_transaction()
    await producer.stop()
    await writer.append([(Record(b"a", b"2"),)])
    await archived(log, tmp_path, now_ms=None)

    assert await digests_in(tmp_path) == await digests(log)
    stored = await read_all(await opened(tmp_path), 0)
    assert [(record.value, record.is_foreign) for record in stored] == [
        (None, True), (None, True), (None, True), (b"1", False), (b"2", False)
    ]  # fmt: skip
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared) == ((), 5)
    assert found.partitions[0].missing in {2, 3}  # the broker may write the last marker after our record
    await log.close()


async def test_a_recreated_topic_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """It has the same name and partitions, but its offsets are other records."""
    topic = new_topic_name()
    for number in range(2):
        log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=1)
        await log.open()
        writer = await log.claim(0)
        await writer.append([(Record(b"a", b"1"), Record(b"b", b"2"))])
        if number:
            with pytest.raises(LogMismatch, match="deleted and recreated is another one"):
                await archived(log, tmp_path, now_ms=None)
        else:
            await archived(log, tmp_path, now_ms=None)
            admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
            await admin.start()
            await admin.delete_topics([topic])
            async with asyncio.timeout(30):
                while topic in await admin.list_topics():  # noqa: ASYNC110 -- another process is asked
                    await asyncio.sleep(0.01)
            await admin.close()
        await log.close()
    assert len(await read_all(await opened(tmp_path))) == 2


async def test_events_compacted_before_archiving_are_named(kafka_broker: Broker, tmp_path: Path) -> None:
    """Only the offsets and the seqs of the group's events show it."""
    topic = new_topic_name()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=COMPACTED_AT_ONCE)])
    await admin.close()
    log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=1, audit_window_ms=0)
    await log.open()
    writer = await log.claim(0)
    records = [Record(record.key, record.value) for record in judged((8,)).records[0]]
    for record in records:
        await writer.append([(record,)])
    await until(lambda: was_compacted(log, writer, records[0]), within_s=120)

    await archived(log, tmp_path, now_ms=None)
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    (part,) = found.partitions
    assert found.damage == ()
    left = [record for record in await read_all(log, 0) if is_of_group(record)]
    gone = sum(map(is_of_group, records)) - len(left)
    assert gone > 0
    assert part.events_compacted == gone
    assert part.missing >= gone
    assert part.holes[0][0] == 0
    await log.close()


def is_of_group(record: Record | StoredRecord) -> bool:
    """Return whether it is an event of a group: neither a tombstone nor one of the partition's own."""
    return record.value is not None and decode_key(record.key).kind is not EntityKind.PARTITION


async def was_compacted(log: KafkaEventLog, writer: LogWriter, again: Record) -> bool:
    """Return whether the first events are gone; an append closes their segment once it is old enough."""
    await writer.append([(again,)])
    return (await read_all(log, 0))[0].offset > 0


async def test_a_beginning_deleted_before_archiving_is_always_reported(kafka_broker: Broker, tmp_path: Path) -> None:
    """The run that finds it, `fleet verify` and each reader say so; what is deleted later the archive has."""
    topic = new_topic_name()
    log = KafkaEventLog([kafka_broker.bootstrap], topic, partitions=2)
    await log.open()
    writer = await log.claim(1)
    for _ in range(4):
        await writer.append([(Record(b"k", b"v"),)] * 5)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "delete"})])
    await admin.delete_records({TopicPartition(topic, 1): RecordsToDelete(before_offset=7)})
    text = f"records of {topic} were deleted before they were archived (partition 1 offsets 0 to 6)"
    assert [text in damage for damage in (await archived(log, tmp_path, now_ms=None)).damage] == [True]
    await admin.delete_records({TopicPartition(topic, 1): RecordsToDelete(before_offset=15)})
    assert (await archived(log, tmp_path, now_ms=None)).damage == ()
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert ([text in damage for damage in found.damage], found.partitions[1].deleted) == ([True], 7)
    for command in (["replay", "why", "orders", "--log"], ["replay", "verify", "--log"]):
        ran = await asyncio.to_thread(run_muster, *command, f"archive:{tmp_path}")
        assert (ran.returncode, text in ran.stderr) == (3, True), ran
    await admin.close()
    await log.close()
