"""Signs of life in the topic of the fencing probe, on a real broker."""

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from muster.events.log.base import SignOfLife
from muster.events.log.kafka import signs
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import OpenKafkaLog
from tests.events.log.on_broker.topics import create_topic

pytestmark = pytest.mark.broker


async def test_two_owners_that_both_believe_to_live_are_distinguished(open_log: OpenKafkaLog) -> None:
    """One of them was deposed, and does not know it yet."""
    one, other = await open_log(partitions=2), await open_log(partitions=2)
    for wall_ms in (1, 2, 3):
        await one.leave_sign_of_life(SignOfLife(owner="one:1", wall_ms=wall_ms), timeout_ms=10_000)
        await other.leave_sign_of_life(SignOfLife(owner="other:1", wall_ms=wall_ms + 10), timeout_ms=10_000)
    assert await (await open_log()).last_signs_of_life(timeout_ms=10_000) == {"one:1": 3, "other:1": 13}


async def test_foreign_signs_are_skipped(open_log: OpenKafkaLog, kafka_broker: Broker, topic: str) -> None:
    """Any client with the right can."""
    log = await open_log(partitions=2)
    await log.leave_sign_of_life(SignOfLife(owner="one:1", wall_ms=7), timeout_ms=10_000)
    async with AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap) as producer:
        for value in (b"no json", b"\xff\xfe", b'{"owner": 7}', b"[]"):
            await producer.send_and_wait(f"{topic}_fencing_probe", value, key=signs.KEY)
    assert await log.last_signs_of_life(timeout_ms=10_000) == {"one:1": 7}


async def test_a_topic_with_a_retention_of_an_hour_is_logged(
    open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
) -> None:
    """As earlier versions created it; with the command that changes it."""
    await create_topic(admin, f"{topic}_fencing_probe", {"cleanup.policy": "delete", "retention.ms": "3600000"})
    (made_anew, reported) = (await open_log(partitions=2)).warnings
    assert "it was recreated" in made_anew
    assert f"--entity-name {topic}_fencing_probe --add-config cleanup.policy=compact" in reported


async def test_a_topic_that_we_make_keeps_the_last_one(open_log: OpenKafkaLog) -> None:
    """So nothing is reported."""
    assert (await open_log(partitions=2)).warnings == ()
    assert (await open_log(partitions=2)).warnings == ()
