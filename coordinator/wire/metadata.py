"""Metadata (key 3).

v0 requests all topics with an empty list, later versions with null. v1 adds the controller, racks and internal topics,
v2 the cluster id, v3 the throttle time, v5 offline replicas, v7 leader epochs. v8 adds authorized operations; those of
the cluster only up to v10. v9 is flexible. v10 adds topic ids, v12 accepts them instead of names. v13 adds a top-level
error. Topics are declared, so none is ever created, regardless of what v4 and later ask for.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.service import Service
from muster.coordinator.topics import Topic, is_topic_name
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.authorized_operations import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CLUSTER_OPERATIONS,
    TOPIC_OPERATIONS,
)
from muster.events.steps import Each


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    cluster, version = service.cluster, context.api_version
    operations = (
        TOPIC_OPERATIONS
        if getattr(body, "include_topic_authorized_operations", False)
        else AUTHORIZED_OPERATIONS_OMITTED
    )
    if body.topics is None or (version == 0 and not body.topics):
        topics = Each(lambda topic: _declared(topic, cluster, operations), cluster.topics.values())
    else:
        # A topic that is named many times is answered once: its entry is a hundred times as long as its name.
        once = {(topic.name, getattr(topic, "topic_id", None)): topic for topic in body.topics}
        topics = Each(lambda topic: _asked(topic, context, service, operations), once.values())
    answer(
        {
            "brokers": [
                {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": None} for each in cluster.nodes
            ],
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller.node_id,
            "topics": topics,
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS
                if getattr(body, "include_cluster_authorized_operations", False)
                else AUTHORIZED_OPERATIONS_OMITTED
            ),
            "error_code": ErrorCode.none,
        }
    )


def _asked(asked: Body, context: RequestContext, service: Service, operations: int) -> Fields:
    cluster, version = service.cluster, context.api_version
    topic_id = getattr(asked, "topic_id", None)
    if version < 12 and (asked.name is None or topic_id is not None):
        return _missing(ErrorCode.invalid_request, asked.name or "", topic_id)
    if topic_id is not None:
        declared = cluster.topics_by_id.get(topic_id)
        return (
            _missing(ErrorCode.unknown_topic_id, None, topic_id)
            if declared is None
            else _declared(declared, cluster, operations)
        )
    declared = cluster.topics.get(asked.name)
    if declared is not None:
        return _declared(declared, cluster, operations)
    known_form = asked.name is not None and is_topic_name(asked.name)
    if known_form:
        service.missing_topic(asked.name, context.client_id, context.client_host)
    error = ErrorCode.unknown_topic_or_partition if known_form else ErrorCode.invalid_topic_exception
    return _missing(error, asked.name or "", None, operations)


def _declared(topic: Topic, cluster: Cluster, operations: int) -> Fields:
    def partition(index: int) -> Fields:
        leader = cluster.leader_of(index).node_id
        return {
            "error_code": ErrorCode.none,
            "partition_index": index,
            "leader_id": leader,
            "leader_epoch": 0,
            "replica_nodes": (leader,),
            "isr_nodes": (leader,),
            "offline_replicas": (),
        }

    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": False,
        "partitions": Each(partition, range(topic.partitions)),
        "topic_authorized_operations": operations,
    }


def _missing(
    error: ErrorCode, name: str | None, topic_id: object, operations: int = AUTHORIZED_OPERATIONS_OMITTED
) -> Fields:
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
        "topic_authorized_operations": operations,
    }


API = Api(key=3, name="Metadata", versions=range(14), handle=handle)
