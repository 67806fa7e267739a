"""Topics that an event log cannot be kept in, on a real broker: one clear line, and nothing is changed."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from muster import cli
from muster.events.log.base import LogMismatch, LogUnavailable
from muster.events.log.kafka.batches import Stamp
from muster.events.log.kafka.client.link import Timeouts
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.marks import Origin, decode_origin
from muster.events.log.kafka.producer import KafkaWriter, WriterConfig
from muster.events.log.kafka.reader import end_offset, newest_stamp
from muster.events.records import LogTooNew
from tests.brokers.broker import Broker
from tests.events.log.kafka_proxy import ApiKey
from tests.events.log.on_broker.proxied import OpenKafkaLog, ProxiedKafkaEventLog, followed
from tests.events.log.on_broker.topics import create_topic
from tests.events.log.storage import MIB
from tests.events.log.transitions import read_all, records_of, transition

pytestmark = pytest.mark.broker


async def mirrored(broker: Broker, topic: str, origin: Origin) -> None:
    """A record in partition 1, with the headers it was written with, as a mirroring tool leaves it."""
    async with followed(broker, topic) as link:
        config = WriterConfig(topic=topic, partition=1, limit_bytes=MIB, delivery_timeout_ms=10_000)
        stamp = Stamp(producer_id=10**12, producer_epoch=0, epoch_base=0, origin=origin.encode())
        await KafkaWriter(link, config, stamp).append([transition("mirrored")])


async def noted(broker: Broker, topic: str, partition: int) -> Origin | None:
    async with followed(broker, topic) as link:
        newest = await newest_stamp(link, topic, partition, home=None, timeout_ms=10_000)
        return decode_origin(newest.origin) if newest else None


async def test_an_owner_notes_the_cluster_and_finds_its_own_note_again(
    open_log: OpenKafkaLog, kafka_broker: Broker, topic: str
) -> None:
    """With each append; so a restart is let in."""
    log = await open_log(partitions=2)
    await (await log.claim(1)).append([transition("a"), transition("b")])
    origin = await noted(kafka_broker, topic, 1)
    assert origin is not None
    assert origin.cluster_id
    await open_log(partitions=2)


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin(cluster_id="there", format_level=1), "was written on cluster there, and this is cluster "),
        (Origin(cluster_id="", format_level=99), "has format level 99, this version of Muster knows "),
    ],
)
async def test_a_topic_of_another_cluster_or_of_a_newer_version_is_refused_untouched(
    kafka_broker: Broker, admin: AIOKafkaAdminClient, topic: str, origin: Origin, said: str
) -> None:
    """Nothing is written or claimed in it, and no other topic is created; it can still be read."""
    await create_topic(admin, topic, {})
    await mirrored(kafka_broker, topic, origin)
    with pytest.raises((LogMismatch, LogTooNew), match=f"topic {topic} {said}"):
        await KafkaEventLog([kafka_broker.bootstrap], topic).open()

    assert f"{topic}_fencing_probe" not in await admin.list_topics()
    reader = KafkaEventLog([kafka_broker.bootstrap], topic, read_only=True)
    await reader.open()
    assert records_of(await read_all(reader, 1)) == list(transition("mirrored"))
    assert await reader.end_offset(0) == 0
    await reader.close()


async def test_an_empty_topic_of_another_program_is_reported_as_such(
    kafka_broker: Broker, admin: AIOKafkaAdminClient, topic: str
) -> None:
    """Replay used to report no groups, as for an empty log."""
    await create_topic(admin, topic, {"cleanup.policy": "delete"})
    command = ["replay", "groups", "--log", f"kafka://{kafka_broker.bootstrap}/{topic}"]
    result = await asyncio.to_thread(CliRunner().invoke, cli.app, command)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert f"topic {topic} is empty, and no Muster has opened it as its event log" in " ".join(result.stderr.split())


async def write_application_records(broker: Broker, topic: str) -> None:
    """Records as an application writes them, in both partitions."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip") as producer:
        for partition in (0, 1):
            await producer.send_and_wait(topic, b'{"name": "ann"}', key=b"user-17", partition=partition)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_topic_of_another_program_is_left_unchanged(
    kafka_broker: Broker, admin: AIOKafkaAdminClient, topic: str, read_only: bool
) -> None:
    """Even if its settings would be valid: nothing is written to it, no other topic is created, and it is not read."""
    await create_topic(admin, topic, {})
    await write_application_records(kafka_broker, topic)
    log = KafkaEventLog([kafka_broker.bootstrap], topic, read_only=read_only)
    with pytest.raises(LogMismatch, match=f"topic {topic} is a foreign topic, not an event log: Muster wrote none"):
        await log.open()

    assert [name for name in await admin.list_topics() if name.startswith(topic)] == [topic]
    async with followed(kafka_broker, topic) as link:
        assert [await end_offset(link, topic, partition, timeout_ms=10_000) for partition in (0, 1)] == [1, 1]


async def test_foreign_records_among_ours_do_not_make_a_topic_foreign(
    open_log: OpenKafkaLog, kafka_broker: Broker, topic: str
) -> None:
    """Also when each partition ends with one of theirs."""
    log = await open_log(partitions=2)
    await (await log.claim(1)).append([transition("a")])
    await write_application_records(kafka_broker, topic)
    await open_log(partitions=2)


async def test_more_in_sync_replicas_than_replicas_is_refused(
    kafka_broker: Broker, admin: AIOKafkaAdminClient, topic: str
) -> None:
    """Immediately, instead of after the first append has been retried for long enough."""
    await create_topic(admin, topic, {"min.insync.replicas": "2"})
    with pytest.raises(LogMismatch, match=f"topic {topic} has 1 replicas and min.insync.replicas=2, so nothing can"):
        await KafkaEventLog([kafka_broker.bootstrap], topic).open()


async def test_too_few_in_sync_replicas_are_named_when_an_append_fails(kafka_broker: Broker, topic: str) -> None:
    """Brokers may return, so it is retried up to the limit; then the message says what to check."""
    log = ProxiedKafkaEventLog(kafka_broker, topic, partitions=1, timeouts=Timeouts(delivery_timeout_ms=1_000))
    await log.open()
    writer = await log.claim(0)
    log.proxy.forge_errors(ApiKey.PRODUCE, *[ErrorCode.not_enough_replicas.value] * 1_000)
    with pytest.raises(LogUnavailable, match=r"NOT_ENOUGH_REPLICAS \(19\): fewer replicas .* min\.insync\.replicas"):
        await writer.append([transition("a")])
    await log.close()
