"""Whether `--log` names a Kafka cluster, or by mistake a Muster in front of it.

A Muster describes a config of its own for every group; a Kafka broker has none of that name.
"""

from typing import Final

from aiokafka.protocol.admin import DescribeConfigsRequest

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.errors import retried
from muster.events.log.kafka.client.link import KafkaLink

CONFIG_OF_A_MUSTER: Final = "members.coordinator"
_GROUP: Final = 32
_ANY_GROUP: Final = "muster"


async def refuse_muster(link: KafkaLink, *, timeout_ms: int) -> None:
    """Raise LogMismatch if a Muster answers, and LogUnavailable if nobody does.

    Brokers before Kafka 4.0, and those at which our principal may not describe configs of groups, answer an error, and
    pass: so would a sidecar in front of them.
    """

    async def attempt() -> bool:
        response = await link.ask_any(DescribeConfigsRequest([(_GROUP, _ANY_GROUP, [CONFIG_OF_A_MUSTER])]))
        return any(
            name == CONFIG_OF_A_MUSTER for _, _, _, _, entries in response.resources for name, *_ in entries or ()
        )

    if await retried(attempt, timeout_ms=timeout_ms):
        raise LogMismatch(f"{link.asked_at} is a Muster, not a broker; name the brokers of the Kafka cluster behind it")
