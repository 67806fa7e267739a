"""Two Muster processes, and a client that connects to their broker directly."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.brokers.broker import Broker
from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.brokers.restartable import RestartableBroker, restartable_broker
from tests.coordinator.upstream.stage import Direct, Process, process, speaking_directly


@pytest.fixture
async def ours(kafka_broker: Broker) -> AsyncIterator[Process]:
    """One of our processes."""
    async with process(kafka_broker.bootstrap) as started:
        yield started


@pytest.fixture
async def successor(kafka_broker: Broker) -> AsyncIterator[Process]:
    """The process that takes over."""
    async with process(kafka_broker.bootstrap) as started:
        yield started


@pytest.fixture
async def direct(kafka_broker: Broker) -> AsyncIterator[Direct]:
    """A client that bypasses Muster."""
    async with speaking_directly(kafka_broker.bootstrap) as speaker:
        yield speaker


@pytest.fixture(scope="module")
def slow_broker() -> Iterator[RestartableBroker]:
    """A broker that can be killed, parks first joins as long as Kafka does, and allows no long sessions."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    settings = {"group.initial.rebalance.delay.ms": "3000", "group.max.session.timeout.ms": "500000"}
    with restartable_broker(settings) as broker:
        yield broker


@pytest.fixture
async def slow(slow_broker: RestartableBroker) -> AsyncIterator[Process]:
    """One of our processes in front of it."""
    async with process(slow_broker.bootstrap, heartbeat_interval_ms=500) as started:
        yield started


@pytest.fixture
async def slow_direct(slow_broker: RestartableBroker) -> AsyncIterator[Direct]:
    """A client that bypasses Muster, at the same broker."""
    async with speaking_directly(slow_broker.bootstrap) as speaker:
        yield speaker
