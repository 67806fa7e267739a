"""Asking whether a Muster answers where a Kafka cluster is wanted."""

from typing import Any

import pytest

from muster.events.kafka.muster_check import CONFIG_OF_A_MUSTER, is_muster
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.client.link import KafkaLink, Timeouts

GROUP = 32


class Described:
    """Aiokafka's response to DescribeConfigs."""

    def __init__(self, entries: list[tuple[str, str]] | None) -> None:
        self.resources = [(0, "", GROUP, "muster", entries)]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (None, False),
        ([], False),
        ([("consumer.session.timeout.ms", "45000")], False),
        ([("consumer.session.timeout.ms", "45000"), (CONFIG_OF_A_MUSTER, "muster")], True),
    ],
)
async def test_a_muster_is_known_by_a_config_of_groups_that_no_broker_has(
    entries: list[tuple[str, str]] | None, expected: bool
) -> None:
    """It alone is asked for, of a group."""

    class Link(KafkaLink):
        async def ask_any(self, request: Any) -> Any:
            assert request._resources == [(GROUP, "muster", [CONFIG_OF_A_MUSTER])]
            return Described(entries)

    assert await is_muster(Link([], NOT_SECURED, Timeouts())) is expected
