"""The cluster that a standalone coordinator shows to clients: one node, and topics that were declared, not created.

A declared topic exists in Metadata, holds no data and can be fetched from for ever. Its topic id is derived from its
name, so that it is the same after every restart and on every machine. Pure: no sockets, no clock.
"""

from collections.abc import Iterable
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from kio.schema.errors import ErrorCode

_TOPIC_IDS = uuid5(NAMESPACE_URL, "muster:declared-topics")
_NAME_LENGTH_MAX = 249  # Kafka's own limit, from the length of file names
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_PARTITIONS_MAX = 100_000


class BadTopic(ValueError):
    """A declaration of a topic that cannot be understood; the text says why."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A declared topic; its partitions are 0 to `partitions` - 1."""

    name: str
    topic_id: UUID
    partitions: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What Metadata, FindCoordinator and DescribeCluster say. `host` and `port` are the advertised ones."""

    cluster_id: str
    node_id: int
    host: str
    port: int
    topics: dict[str, Topic]
    topics_by_id: dict[UUID, Topic]

    def has_partition(self, topic: str, partition: int) -> bool:
        declared = self.topics.get(topic)
        return declared is not None and 0 <= partition < declared.partitions

    def name_and_error(self, name: str | None, topic_id: UUID | None) -> tuple[str, ErrorCode]:
        """Of a topic asked for by name, or by id where names are no longer sent: its name, "" when the id is unknown,
        and the error for a partition that it does not have.
        """
        if name is not None:
            return name, ErrorCode.unknown_topic_or_partition
        declared = None if topic_id is None else self.topics_by_id.get(topic_id)
        if declared is None:
            return "", ErrorCode.unknown_topic_id
        return declared.name, ErrorCode.unknown_topic_or_partition

    def advertised_at(self, host: str, port: int) -> "Cluster":
        """The same cluster under another address, as when the port is known only after it was bound."""
        return msgspec.structs.replace(self, host=host, port=port)


def new_cluster(*, cluster_id: str, node_id: int, host: str, port: int, topics: Iterable[Topic]) -> Cluster:
    """A cluster with these topics. Raises BadTopic when two of them have one name."""
    by_name: dict[str, Topic] = {}
    for topic in topics:
        if topic.name in by_name:
            raise BadTopic(f"topic {topic.name!r} is declared twice")
        by_name[topic.name] = topic
    return Cluster(
        cluster_id=cluster_id,
        node_id=node_id,
        host=host,
        port=port,
        topics=by_name,
        topics_by_id={topic.topic_id: topic for topic in by_name.values()},
    )


def declare_topic(text: str) -> Topic:
    """`orders:12` as a topic of 12 partitions, `orders` as one of a single partition. Raises BadTopic."""
    name, colon, count = text.strip().partition(":")
    if not is_topic_name(name):
        raise BadTopic(f"{name!r} is no topic name: 1 to {_NAME_LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_' and '-'")
    if not colon:
        return Topic(name=name, topic_id=topic_id(name), partitions=1)
    if not (count.isascii() and count.isdecimal() and 1 <= int(count) <= _PARTITIONS_MAX):
        raise BadTopic(f"{text!r} should be NAME:PARTITIONS with 1 to {_PARTITIONS_MAX} partitions")
    return Topic(name=name, topic_id=topic_id(name), partitions=int(count))


def is_topic_name(name: str) -> bool:
    """Whether Kafka would let a topic be called this."""
    return 0 < len(name) <= _NAME_LENGTH_MAX and name not in {".", ".."} and _NAME_CHARACTERS.issuperset(name)


def topic_id(name: str) -> UUID:
    """The id of a declared topic, for ever the same for one name."""
    return uuid5(_TOPIC_IDS, name)
