"""The event log in Kafka keeps the contract of every event log, on a real broker."""

import math
from typing import Any

import pytest

from muster.events.log.base import EventLog
from muster.events.log.kafka.client.link import Timeouts
from muster.events.log.kafka.log import KafkaEventLog
from tests.brokers.broker import Broker
from tests.events.log.contract import EventLogContract
from tests.events.log.kafka_proxy import ApiKey
from tests.events.log.on_broker.proxied import ProxiedKafkaEventLog, new_topic_name
from tests.events.log.storage import BATCH_BYTES_MAX

pytestmark = pytest.mark.broker


class KafkaFaults:
    def lose_next_acknowledgement(self, log: EventLog) -> None:
        """And those of every repetition, until the writer times out."""
        assert isinstance(log, ProxiedKafkaEventLog)
        log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)


class KafkaLogStorage:
    def __init__(self, broker: Broker, delivery_timeout_ms: int) -> None:
        self.faults = KafkaFaults()
        self._broker = broker
        self._topic = new_topic_name()
        self._delivery_timeout_ms = delivery_timeout_ms

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> KafkaEventLog:
        return ProxiedKafkaEventLog(
            self._broker,
            self._topic,
            partitions=2,
            batch_bytes_max=batch_bytes_max,
            timeouts=Timeouts(delivery_timeout_ms=self._delivery_timeout_ms),
            read_only=read_only,
        )


class TestKafkaEventLog(EventLogContract):
    @pytest.fixture
    def delivery_timeout_ms(self) -> int:
        return 30_000

    @pytest.fixture
    def storage(self, kafka_broker: Broker, delivery_timeout_ms: int) -> KafkaLogStorage:
        return KafkaLogStorage(kafka_broker, delivery_timeout_ms)

    @pytest.mark.parametrize("delivery_timeout_ms", [1_000])
    async def test_an_unacknowledged_append_is_stored_once(
        self,
        log: EventLog,
        open_log: Any,
        storage: Any,
        delivery_timeout_ms: int,
    ) -> None:
        """The batch was sent several times before the writer gave up."""
        await super().test_an_unacknowledged_append_is_stored_once(log, open_log, storage)
        assert isinstance(log, ProxiedKafkaEventLog)
        assert log.proxy.requests.count(ApiKey.PRODUCE) > 4
