"""Creates and changes topics like an operator, through another client than the log."""

from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

DAY_MS = 24 * 60 * 60 * 1000
EVENT_TOPIC_CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * DAY_MS)}


async def create_topic(
    admin: AIOKafkaAdminClient, topic: str, configs: Mapping[str, str], *, partitions: int = 2
) -> None:
    """Create a topic like an event topic, except for the given `configs`."""
    settings = {**EVENT_TOPIC_CONFIGS, **configs}
    response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
    assert [code for _, code, *_ in response.topic_errors] == [0]


async def set_configs(admin: AIOKafkaAdminClient, topic: str, configs: Mapping[str, str]) -> None:
    """The topic's configs from now on, over those of an event topic."""
    settings = {**EVENT_TOPIC_CONFIGS, **configs}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)])


async def configs_of(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((*_, entries),) = response.resources
    return {name: value for name, value, *_ in entries}
