"""The event topic itself: finding it, creating it if it is missing, reading its configs.

client/settings.py decides which configs are right.
"""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from muster.events.kafka import requests
from muster.events.kafka.errors import TryAgain
from muster.events.kafka.metadata import topic_id_of, topic_id_text
from muster.events.log.base import LogMismatch, LogUnavailable, OddAnswer
from muster.events.log.kafka.client.errors import describe_error, retry
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.client.settings import (
    BROKER_CONFIGS,
    Configs,
    Guarantees,
    TopicFacts,
    TopicPlan,
    flaws,
    guarantees,
)

PARTITIONS_DEFAULT = 8
REPLICATION_DEFAULT = 3

_TOLD_CHARS_MAX = 80
_TOPIC = 2
_BROKER = 4
_NOT_FOR_US = frozenset({ErrorCode.cluster_authorization_failed, ErrorCode.topic_authorization_failed})


async def topic_facts(link: KafkaLink, name: str, *, timeout_ms: int) -> TopicFacts | None:
    """Describe the topic, without creating it; None if it does not exist. Raises LogUnavailable."""

    async def attempt() -> TopicFacts | None:
        topic = _only(response := await link.metadata([name]), "topics", f"Metadata of topic {name}")
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            return None
        if (error := link.settled(topic.error_code, f"looking up topic {name}")) is not ErrorCode.none:
            raise LogMismatch(
                f"topic {name} cannot be looked up: {describe_error(error, 'DESCRIBE', name, who=link.who)}"
            )
        if not topic.partitions or any(partition.leader_id < 0 for partition in topic.partitions):
            raise TryAgain(f"a partition of topic {name} has no leader")
        replication = min(len(partition.replica_nodes) for partition in topic.partitions)
        topic_id = topic_id_of(topic)
        return TopicFacts(
            partitions=len(topic.partitions),
            replication=replication,
            cluster_id=response.cluster_id,
            topic_id=None if topic_id is None else topic_id_text(topic_id),
        )

    return await retry(attempt, timeout_ms=timeout_ms)


async def create_topic(
    link: KafkaLink, name: str, configs: Configs, *, partitions: int | None, replication: int | None, timeout_ms: int
) -> bool:
    """Create the topic; return False if another process has. Raises LogMismatch, LogUnavailable."""
    replication = replication or min(REPLICATION_DEFAULT, len(link.brokers()))
    configs = {"min.insync.replicas": str(max(1, replication - 1)), **configs}
    request = requests.create_topic(
        name,
        partitions=partitions or PARTITIONS_DEFAULT,
        replication=replication,
        configs=configs,
        timeout_ms=timeout_ms,
    )

    async def create() -> bool:
        created = _only(await link.ask_any(request), "topics", f"CreateTopics of {name}")
        error = link.settled(created.error_code, f"creating topic {name}")
        if error not in {ErrorCode.none, ErrorCode.topic_already_exists}:
            said = describe_error(error, "CREATE", name, who=link.who)
            raise LogMismatch(f"topic {name} cannot be created: {said}: {created.error_message}")
        return error is ErrorCode.none

    return await retry(create, timeout_ms=timeout_ms)


async def created_topic_facts(link: KafkaLink, name: str, *, timeout_ms: int) -> TopicFacts:
    """Describe the topic once a broker knows it. Raises LogMismatch, LogUnavailable."""

    async def known() -> TopicFacts:
        made = await topic_facts(link, name, timeout_ms=timeout_ms)
        if made is None:
            raise TryAgain(f"topic {name} was created, but a broker does not know it yet")
        return made

    return await retry(known, timeout_ms=timeout_ms)


async def check_topic(
    link: KafkaLink, plan: TopicPlan, facts: TopicFacts, *, is_ours: bool, timeout_ms: int
) -> Guarantees:
    """Read the configs and derive the `guarantees`. Raises LogMismatch, LogUnavailable."""
    topic, brokers = await _all_configs(link, plan.name, timeout_ms)
    bootstrap = link.asked_at
    return guarantees(plan, facts, topic, brokers, bootstrap=bootstrap, is_ours=is_ours, who=link.who)


async def topic_flaws(link: KafkaLink, plan: TopicPlan, facts: TopicFacts, *, timeout_ms: int) -> list[str]:
    """Read the configs of the topic again while it is in use, and return the problems. Raises LogMismatch,
    LogUnavailable.

    `facts`: the topic's current state.
    """
    topic, brokers = await _all_configs(link, plan.name, timeout_ms)
    return flaws(plan, facts, topic, brokers, bootstrap=link.asked_at, who=link.who)


async def _all_configs(link: KafkaLink, name: str, timeout_ms: int) -> tuple[dict[str, str], list[dict[str, str]]]:
    topic = await _topic_configs(link, name, timeout_ms)
    brokers = [await _broker_configs(link, node_id, timeout_ms) for node_id in link.brokers()]
    return topic, [configs for configs in brokers if configs is not None]


def _only(response: Any, field: str, what: str) -> Any:  # noqa: ANN401 -- a response of kio's
    """Return the only element of a response to a single question. Raises OddAnswer for more, or none."""
    found: Sequence[Any] = getattr(response, field) or ()
    if len(found) != 1:
        raise OddAnswer(f"{what} was answered with {len(found)} {field} instead of one")
    return found[0]


async def cleanup_policy(link: KafkaLink, name: str, *, timeout_ms: int) -> str | None:
    """Read the topic's cleanup.policy; None if we may not. Raises LogUnavailable."""
    return (await _topic_configs(link, name, timeout_ms)).get("cleanup.policy")


async def _topic_configs(link: KafkaLink, name: str, timeout_ms: int) -> dict[str, str]:
    """Ask any broker, so that a broker that hangs delays nothing."""
    request = requests.describe_configs(_TOPIC, name, None)

    async def attempt() -> dict[str, str]:
        return _described(link, await link.ask_any(request), _TOPIC, name)

    return await retry(attempt, timeout_ms=timeout_ms)


async def _broker_configs(link: KafkaLink, node_id: int, timeout_ms: int) -> dict[str, str] | None:
    """Read a broker's own configs; None for one that the cluster no longer names."""
    name = str(node_id)
    request = requests.describe_configs(_BROKER, name, list(BROKER_CONFIGS))

    async def attempt() -> dict[str, str]:
        return _described(link, await link.ask(node_id, request), _BROKER, name)

    return await link.ask_while_named(node_id, attempt, timeout_ms=timeout_ms)


def _described(link: KafkaLink, response: Any, kind: int, name: str) -> dict[str, str]:  # noqa: ANN401 -- as above
    what = f"DescribeConfigs of {name}"
    result = _only(response, "results", what)
    error = link.settled(result.error_code, f"reading the configs of {name}")
    if error in _NOT_FOR_US:
        return {}
    if error is not ErrorCode.none:
        raise LogUnavailable(f"the configs of {name} cannot be read: {error.name.upper()}: {result.error_message}")
    if (result.resource_type, result.resource_name) != (kind, name):
        of_name = str(result.resource_name)[:_TOLD_CHARS_MAX]
        raise OddAnswer(f"a broker answered {what} with those of {of_name!r}")
    return {config.name: config.value for config in result.configs if config.value is not None}
