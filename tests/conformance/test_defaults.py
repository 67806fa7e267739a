"""Muster's settings with Kafka's names have Kafka's defaults (K1, K3, K4, K5), compared with a real broker."""

import asyncio
from typing import Final

import pytest

from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.settings import Settings
from tests.brokers.broker import Broker
from tests.conformance.wire import Connection

BROKER: Final = 4
"""The resource type, and further down the source of a value, as numbered by DescribeConfigs."""
DEFAULT: Final = 5


async def defaults_of(bootstrap: str) -> dict[str, str]:
    """The broker's defaults, by name."""
    connection = await Connection.open(bootstrap)
    metadata = await connection.ask(
        "Metadata", 12, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    node_id = metadata["brokers"][0]["node_id"]
    answer = await connection.ask(
        "DescribeConfigs",
        2,
        resources=[{"resource_type": BROKER, "resource_name": str(node_id), "configuration_keys": [*KAFKA_SETTINGS]}],
        include_synonyms=True,
    )
    connection.close()
    (result,) = answer["results"]
    assert result["error_code"] == 0, result
    return {
        config["name"]: synonym["value"]
        for config in result["configs"]
        for synonym in config["synonyms"]
        if synonym["source"] == DEFAULT
    }


@pytest.mark.broker
def test_defaults_are_those_of_a_real_broker(kafka_broker: Broker) -> None:
    """Every setting with one of Kafka's names has the broker's default."""
    ours = {name: str(Settings.model_fields[field].default) for name, field in KAFKA_SETTINGS.items()}
    assert asyncio.run(defaults_of(kafka_broker.bootstrap)) == ours
