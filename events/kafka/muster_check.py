"""Checks if a Muster answers where a Kafka cluster is wanted: a sidecar, or a standalone one.

A Muster describes a config of its own for every group; a Kafka broker has none of that name.
"""

from typing import Final

from muster.events.kafka.link import ClusterLink
from muster.events.kafka.requests import describe_configs

CONFIG_OF_A_MUSTER: Final = "members.coordinator"
_GROUP: Final = 32
_ANY_GROUP: Final = "muster"


async def is_muster(link: ClusterLink) -> bool:
    """Ask any broker. Raises as `link.ask_any`.

    Brokers before Kafka 4.0, and those at which our principal may not describe configs of groups, answer an error, and
    pass: so would a sidecar in front of them.
    """
    response = await link.ask_any(describe_configs(_GROUP, _ANY_GROUP, [CONFIG_OF_A_MUSTER]))
    return any(config.name == CONFIG_OF_A_MUSTER for result in response.results for config in result.configs)
