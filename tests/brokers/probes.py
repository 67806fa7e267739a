"""Requests with which tests try a broker through a client, however it was started, and their time limits."""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so
from confluent_kafka.admin._config import ConfigResource

ROOT = Path(__file__).parents[2]
WITHIN_S = 60


def produced_and_consumed(bootstrap: str) -> bytes | None:
    """Send one record, and return what a consumer group receives."""
    name = f"round-trip-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"hello")
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([name])
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return message.value()
    finally:
        consumer.close()
    return None


def make_topics(properties: Mapping[str, Any], *names: str, partitions: int = 1) -> None:
    """Create topics, as a client with these properties; they can be used when this returns."""
    admin = AdminClient(dict(properties))  # kept in a variable: otherwise the result is destroyed with the client
    for made in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        made.result(WITHIN_S)


def broker_setting(bootstrap: str, name: str) -> str | None:
    """The broker's value of one of its settings."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    value: str | None = admin.describe_configs([resource])[resource].result(WITHIN_S)[name].value
    return value
