"""Fetch (key 1).

Offered from v4 on, as in Kafka 4. v5 adds the start of the log, v7 sessions and a top-level error (KIP-227), v9
leader epochs, v11 racks. v12 is flexible. v13 names topics by id. v15 to v18 change what replicas send.

There is never anything to fetch: a request waits for as long as it allows, and gets an empty response. No session is
ever created: its id is 0 in every response, so each request is a full one. A partition's high watermark is always the
client's position, since a declared topic has no end that a position could be beyond. A node that does not lead a
partition answers with that error, as in Kafka, so that clients request Metadata and learn which nodes exist.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each, Steps

_NO_RECORDS = b""


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    if getattr(body, "session_id", 0) != 0 or getattr(body, "session_epoch", -1) > 0:
        answer({"error_code": ErrorCode.fetch_session_id_not_found, "session_id": 0, "responses": ()})
        return None
    topics = Each(lambda topic: _topic(topic, service.cluster), body.topics)
    response = {"error_code": ErrorCode.none, "session_id": 0, "responses": topics}

    def wait() -> Steps[Cancel | None]:
        is_there = yield from _only_what_exists(body, service.cluster)
        if is_there and body.min_bytes > 0 and body.max_wait > 0:
            return service.call_later(body.max_wait, lambda: answer(response))
        answer(response)
        return None

    return context.work(wait())


def _only_what_exists(body: Body, cluster: Cluster) -> Steps[bool]:
    """Return whether the request names partitions, and all of them exist and are led here."""
    partitions = 0
    for topic in body.topics:
        name, _ = cluster.name_and_error(getattr(topic, "topic", None), getattr(topic, "topic_id", None))
        for asked in topic.partitions:
            if not cluster.has_partition(name, asked.partition) or not cluster.leads(asked.partition):
                return False
            partitions += 1
            yield 1
        yield 1
    return partitions > 0


def _topic(topic: Body, cluster: Cluster) -> Fields:
    name, unknown = cluster.name_and_error(getattr(topic, "topic", None), getattr(topic, "topic_id", None))
    return {
        "topic": name,
        "topic_id": getattr(topic, "topic_id", None),
        "partitions": Each(lambda asked: _partition(name, asked, cluster, unknown), topic.partitions),
    }


def _partition(name: str, asked: Body, cluster: Cluster, unknown: ErrorCode) -> Fields:
    exists = cluster.has_partition(name, asked.partition)
    error = ErrorCode.none if cluster.leads(asked.partition) else ErrorCode.not_leader_or_follower
    return {
        "partition_index": asked.partition,
        "error_code": error if exists else unknown,
        "high_watermark": asked.fetch_offset if exists else -1,
        "last_stable_offset": asked.fetch_offset if exists else -1,
        "log_start_offset": 0 if exists else -1,
        "aborted_transactions": (),
        "records": _NO_RECORDS,
    }


API = Api(key=1, name="Fetch", versions=range(4, 19), handle=handle)
