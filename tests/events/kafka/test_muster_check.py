"""Asking whether a Muster answers where a Kafka cluster is wanted."""

from types import SimpleNamespace
from typing import Any

import pytest

from muster.events.kafka.link import CONFIG_OF_A_MUSTER, is_muster
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from tests.events.log.kafka.kafka_messages import request_in

GROUP = 32


def described(names: list[str]) -> Any:
    """A response to DescribeConfigs."""
    return SimpleNamespace(results=[SimpleNamespace(configs=[SimpleNamespace(name=name) for name in names])])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], False),
        (["consumer.session.timeout.ms"], False),
        (["consumer.session.timeout.ms", CONFIG_OF_A_MUSTER], True),
    ],
)
async def test_a_muster_is_recognized_by_a_group_config_that_no_broker_has(names: list[str], expected: bool) -> None:
    """Only that config is requested, for a group."""

    class Link(KafkaLink):
        async def ask_any(self, request: Any) -> Any:
            (resource,) = request_in(request).resources
            assert (resource.resource_type, resource.resource_name) == (GROUP, "muster")
            assert resource.configuration_keys == (CONFIG_OF_A_MUSTER,)
            return described(names)

    assert await is_muster(Link([], NOT_SECURED, Timeouts())) is expected
