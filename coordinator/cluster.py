"""The cluster that a standalone coordinator shows to clients: one node, and topics that were declared, not created.

Pure: no sockets, no clock.
"""

from collections.abc import Iterable
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.topics import BadTopic, Topic


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of Metadata, FindCoordinator and DescribeCluster. `host` and `port` are the advertised ones."""

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
        """Return the name of a requested topic, "" for an unknown id, and the error for partitions it lacks."""
        if name is not None:
            return name, ErrorCode.unknown_topic_or_partition
        declared = None if topic_id is None else self.topics_by_id.get(topic_id)
        if declared is None:
            return "", ErrorCode.unknown_topic_id
        return declared.name, ErrorCode.unknown_topic_or_partition

    def advertised_at(self, host: str, port: int) -> "Cluster":
        """Return the cluster with another address, as when the port is known only after it was bound."""
        return msgspec.structs.replace(self, host=host, port=port)


def new_cluster(*, cluster_id: str, node_id: int, host: str, port: int, topics: Iterable[Topic]) -> Cluster:
    """Make a cluster with these topics. Raises BadTopic when two of them have one name."""
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
