"""The cluster of a local drill: its brokers, and the topic that members of sidecars' groups subscribe."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from muster.drills.errors import ServiceFailed
from muster.events.kafka.security import KafkaSecurity

TIMEOUT_MS: Final = 10_000
REPLICATION: Final = 3


@asynccontextmanager
async def cluster_admin(bootstrap: str, security: KafkaSecurity) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client for the cluster's administration. Raises KafkaError and OSError."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap,
        client_id="muster-drill",
        request_timeout_ms=TIMEOUT_MS,
        **security.client_arguments(),
    )
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def node_ids(bootstrap: str, security: KafkaSecurity) -> list[int]:
    """The ids of all brokers. Raises ServiceFailed."""
    try:
        async with cluster_admin(bootstrap, security) as admin:
            return [int(broker["node_id"]) for broker in (await admin.describe_cluster())["brokers"]]
    except (KafkaError, OSError) as error:
        raise ServiceFailed(f"--kafka {bootstrap} does not name its brokers: {error}") from error


async def make_topic(bootstrap: str, name: str, partitions: int, security: KafkaSecurity, *, brokers: int) -> None:
    """Make a topic. Raises ServiceFailed."""
    topic = NewTopic(name, partitions, min(REPLICATION, brokers))
    try:
        async with cluster_admin(bootstrap, security) as admin:
            answer = await admin.create_topics([topic])
    except (KafkaError, OSError) as error:
        raise ServiceFailed(f"topic {name} cannot be made at {bootstrap}: {error}") from error
    for _, code, *_ in answer.topic_errors:
        if code:
            raise ServiceFailed(f"topic {name} cannot be made at {bootstrap}: {for_code(code).__name__}")
