"""A topic for each test on the shared broker, logs on it, and an operator's client."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from muster.events.log.kafka.client.link import Timeouts
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import OpenKafkaLog, ProxiedKafkaEventLog, new_topic_name

pytest.register_assert_rewrite("tests.events.log.on_broker.topics")


@pytest.fixture
def topic() -> str:
    return new_topic_name()


@pytest.fixture
async def open_log(kafka_broker: Broker, topic: str) -> AsyncIterator[OpenKafkaLog]:
    """Opens a log on the test's topic, through a proxy; closed after the test."""
    opened: list[ProxiedKafkaEventLog] = []

    async def open_one(**settings: Any) -> ProxiedKafkaEventLog:
        log = ProxiedKafkaEventLog(kafka_broker, topic, **settings)
        opened.append(log)
        await log.open()
        return log

    yield open_one
    for log in opened:
        await log.close()


@pytest.fixture
async def log(open_log: OpenKafkaLog) -> ProxiedKafkaEventLog:
    return await open_log(partitions=2, timeouts=Timeouts(delivery_timeout_ms=10_000))


@pytest.fixture
async def admin(kafka_broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    yield admin
    await admin.close()
