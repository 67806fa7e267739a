"""A Kafka log behind a proxy, on the test's topic; shared by several modules of these tests."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from muster.events.kafka.security import KafkaSecurity
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.log import KafkaEventLog
from tests.brokers.broker import Broker
from tests.events.log.kafka_proxy import BrokerProxy


class ProxiedKafkaEventLog(KafkaEventLog):
    """A Kafka log whose connections each go through their own proxy."""

    def __init__(self, broker: Broker, topic: str, **settings: Any) -> None:
        self.proxy = BrokerProxy(broker.bootstrap)
        super().__init__([self.proxy.address], topic, **settings)

    async def open(self) -> None:
        await self.proxy.start()
        await super().open()

    async def close(self) -> None:
        await super().close()
        await self.proxy.stop()


def new_topic_name() -> str:
    return f"events-{uuid.uuid4().hex[:12]}"


OpenKafkaLog = Callable[..., Awaitable[ProxiedKafkaEventLog]]


@asynccontextmanager
async def followed(broker: Broker, topic: str) -> AsyncIterator[KafkaLink]:
    """A link that knows the topic's leaders."""
    link = KafkaLink([broker.bootstrap], KafkaSecurity(), Timeouts())
    await link.open()
    await link.follow([topic])
    yield link
    await link.close()
