"""The cluster that a standalone coordinator shows to clients: its nodes, and topics that were declared, not created.

Pure: no sockets, no clock.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.topics import BadTopic, Topic
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node as clients see it: `host` and `port` are the advertised ones."""

    node_id: int
    host: str
    port: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of Metadata, FindCoordinator and DescribeCluster. `node`: this process."""

    cluster_id: str
    node: Node
    topics: dict[str, Topic]
    topics_by_id: dict[UUID, Topic]
    nodes: Sequence[Node]
    """All live nodes, by node id."""
    owners: Sequence[Node | None] | None = None
    """The owner of each partition of the event log, which coordinates its groups; None: this node owns all."""

    def coordinator_of(self, group_id: str) -> Node | None:
        """Return the node that coordinates the group; None if there is none now."""
        if self.owners is None:
            return self.node
        partition = self.partition_of(group_id)
        return None if partition is None else self.owners[partition]

    def partition_of(self, group_id: str) -> int | None:
        """Return the group's partition of the event log; None if the owners of partitions are unknown."""
        return partition_for(GroupId(group_id), len(self.owners)) if self.owners else None

    @property
    def controller(self) -> Node:
        """The node shown to clients as the controller; all nodes return the same one."""
        return self.nodes[0]

    def leader_of(self, partition: int) -> Node:
        """Return the node shown to clients as the leader of a topic partition; all nodes return the same one."""
        return self.nodes[partition % len(self.nodes)]

    def leads(self, partition: int) -> bool:
        """Return whether this node leads a topic partition: clients that ask another node have stale metadata."""
        return self.leader_of(partition).node_id == self.node.node_id

    def shared(self, nodes: Sequence[Node], owners: Sequence[Node | None]) -> "Cluster":
        """Return the cluster with these nodes, by node id, and owners of the log's partitions."""
        return msgspec.structs.replace(self, nodes=nodes or (self.node,), owners=owners)

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
        """Return the cluster with another address of this node, e.g. when the port is only known after binding."""
        node = Node(node_id=self.node.node_id, host=host, port=port)
        return msgspec.structs.replace(self, node=node, nodes=(node,))


def new_cluster(*, cluster_id: str, node_id: int, host: str, port: int, topics: Iterable[Topic]) -> Cluster:
    """Create a cluster with these topics. Raises BadTopic if two of them have the same name."""
    by_name: dict[str, Topic] = {}
    for topic in topics:
        if topic.name in by_name:
            raise BadTopic(f"topic {topic.name!r} is declared twice")
        by_name[topic.name] = topic
    node = Node(node_id=node_id, host=host, port=port)
    return Cluster(
        cluster_id=cluster_id,
        node=node,
        nodes=(node,),
        topics=by_name,
        topics_by_id={topic.topic_id: topic for topic in by_name.values()},
    )
