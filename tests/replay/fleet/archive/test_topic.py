"""The archive of a topic on a real broker, by this process."""

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.records import Record
from muster.replay.archive.verify import verify
from tests.brokers.broker import Broker
from tests.events.log.kafka.proxied import new_topic_name
from tests.events.log.transitions import read_all
from tests.replay.archive.logs import archived, digests, digests_in, opened

pytestmark = pytest.mark.broker


async def test_an_archive_has_the_topic_byte_by_byte(kafka_broker: Broker, tmp_path: Path) -> None:
    """Strangers' records among them, which both skip; headers, tombstones, large batches that are compressed."""
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
    assert [record.offset for record in await read_all(archive, 1) if record.stranger] == [2]
    found = await verify(tmp_path, log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared) == ((), 303)
    await log.close()
