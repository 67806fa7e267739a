"""Foreign records in the topics of a service on a real broker: from a plain producer, with all codecs, in
transactions.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner, Result

from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import EventLog
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.replay.cli import app
from tests.brokers.broker import Broker
from tests.events.histories import read_log, read_projection
from tests.events.log.on_broker.proxied import new_topic_name
from tests.events.log.on_broker.topics import create_topic
from tests.events.log.transitions import read_all
from tests.faults.process import ProcessOnKafka
from tests.simulation.process import GROUP

pytestmark = pytest.mark.broker

MEMBER = encode_key(RecordKey(GROUP, EntityKind.STATIC_MEMBER, "a"))
GROUPS_OWN = encode_key(RecordKey(GROUP, EntityKind.GROUP, ""))
ELECTED = encode_key(RecordKey("0", EntityKind.PARTITION, "coordinator"))
OFFSET = b'{"version":1,"group":"orders","topic":"orders","partition":0}'
PATIENT_MS = 300_000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
Sent = tuple[bytes, bytes | None]

WRITTEN: Sequence[Sent] = (
    (b"their own key", b"their own value" * 100),
    (b"", b"with an empty key; without one a compacted topic takes none"),
    (MEMBER, b"no event"),
    (GROUPS_OWN, None),
    (MEMBER, None),
    (ELECTED, None),
    (OFFSET, None),
)


@pytest.fixture
async def admin(kafka_broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    yield admin
    await admin.close()


@asynccontextmanager
async def producer(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    started = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    await started.start()
    yield started
    await started.stop()


async def write(broker: Broker, topic: str) -> None:
    """Write the records with each codec, in a transaction that commits, and in one that aborts."""
    for codec in CODECS:
        async with producer(broker, compression_type=codec) as plain:
            for key, value in WRITTEN:
                await plain.send_and_wait(topic, value, key, partition=0)
    async with producer(broker, transactional_id=f"strangers-{topic}") as transactional:
        for commits in (True, False):
            await transactional.begin_transaction()
            for key, value in WRITTEN:
                await transactional.send_and_wait(topic, value, key, partition=0)
            await (transactional.commit_transaction() if commits else transactional.abort_transaction())


async def last_of(log: EventLog, key: bytes) -> StoredRecord:
    return [record for record in await read_all(log) if record.key == key][-1]


async def rewritten(log: EventLog, *keys: bytes) -> None:
    async with asyncio.timeout(60):
        while any([(await last_of(log, key)).is_foreign for key in keys]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # nothing signals its arrival


def replayed(url: str) -> Result:
    return CliRunner().invoke(app, ["groups", "--log", url])


def process_on(broker: Broker, topic: str) -> ProcessOnKafka:
    return ProcessOnKafka([broker.bootstrap], topic=topic, partitions=1, with_offsets=True)


async def member(process: ProcessOnKafka) -> JoinGroupOutcome:
    """The only member of a stable group, with an offset committed."""
    joined = await process.join("a", session_timeout_ms=PATIENT_MS)
    assert (await process.sync(joined)).error is ErrorCode.none
    assert (await process.commit(7, joined)).error is ErrorCode.none
    return joined


async def test_foreign_records_disturb_no_owner_and_no_restart(kafka_broker: Broker) -> None:
    """With foreign keys and with ours, as tombstones too; in the end our records follow theirs."""
    topic = new_topic_name()
    first = await process_on(kafka_broker, topic).start()
    joined = await member(first)

    await write(kafka_broker, topic)
    assert (await first.heartbeat(joined)).error is ErrorCode.none
    again = await first.join("a", joined.member_id, metadata=b"others", session_timeout_ms=PATIENT_MS)
    assert (await first.sync(again)).error is ErrorCode.none
    await rewritten(first.kafka, MEMBER, GROUPS_OWN)
    await first.stop()
    await write(kafka_broker, topic)
    await write(kafka_broker, f"{topic}_offsets")

    second = await process_on(kafka_broker, topic).start()
    assert second.runtime.ready
    assert (await second.heartbeat(again)).error is ErrorCode.none
    assert second.offsets.committed(GROUP)["orders", 0].offset == 7
    await rewritten(second.kafka, MEMBER, GROUPS_OWN, ELECTED)
    await second.stop()

    third = await process_on(kafka_broker, topic).start()
    assert (await third.heartbeat(again)).error is ErrorCode.none
    assert third.offsets.committed(GROUP)["orders", 0].offset == 7
    assert [*first.lost, *second.lost, *third.lost] == []
    result = await asyncio.to_thread(replayed, f"kafka://{kafka_broker.bootstrap}/{topic}")
    assert result.exit_code == 0, result.output
    assert GROUP in result.stdout
    assert f"muster replay: {topic}: records that this cluster's Muster did not write were skipped (" in result.stderr
    assert "the first is in partition 0 at offset " in result.stderr
    await third.stop()


async def test_a_log_of_an_earlier_version_continues_and_marks_from_there(
    kafka_broker: Broker, admin: AIOKafkaAdminClient
) -> None:
    """Its records have no mark and count as an owner's; after the first mark, records without one are foreign."""
    topic = new_topic_name()
    await create_topic(admin, topic, {}, partitions=1)
    recorded = read_log(2)
    async with producer(kafka_broker) as earlier:
        for record in recorded:
            await earlier.send_and_wait(topic, record.value, record.key, partition=0)
    groups = read_projection(2).groups

    for _ in range(2):
        process = await ProcessOnKafka([kafka_broker.bootstrap], topic=topic, partitions=1).start()
        listed = process.runtime.list_groups()
        assert not isinstance(listed, ErrorCode)
        assert {group.group_id for group in listed} == groups.keys()
        assert [record.is_foreign for record in await read_all(process.kafka)][: len(recorded)] == [False] * len(
            recorded
        )
        await process.stop()
        await write(kafka_broker, topic)


async def test_any_consumer_sees_the_mark(kafka_broker: Broker) -> None:
    """It is a record header, which Spark shows with `includeHeaders`."""
    topic = new_topic_name()
    process = await process_on(kafka_broker, topic).start()
    await member(process)
    await process.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_broker.bootstrap)
    await consumer.start()
    mark = f"{FORMAT_LEVEL} {process.kafka.cluster_id}".encode()
    for name in (topic, f"{topic}_offsets"):
        partition = TopicPartition(name, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        seen: list[Any] = []
        while len(seen) < end:
            seen += (await consumer.getmany(partition, timeout_ms=10_000)).get(partition, [])
        assert {record.headers[0][0] for record in seen} == {"muster"}
        assert {record.headers[0][1].rpartition(b" ")[0] for record in seen} == {mark}
    await consumer.stop()
