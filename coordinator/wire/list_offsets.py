"""ListOffsets (key 2).

Offered from v1 on, as in Kafka 4. v2 adds isolation and the throttle time, v4 leader epochs. v6 is flexible. v7 can
ask for the greatest timestamp, v8 for the earliest local offset, v9 for the latest tiered one, v10 adds a time limit,
v11 the earliest offset to be tiered.

A declared topic is an empty log: it starts and ends at offset 0, and has no timestamps. A negative timestamp that the
version does not know is answered 35, whether the partition exists or not, as in Kafka.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each

_LATEST, _EARLIEST, _GREATEST, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING = range(-1, -7, -1)
_SINCE_VERSION = {
    _LATEST: 1,
    _EARLIEST: 1,
    _GREATEST: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING: 11,
}
_NEVER = 2**15


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    cluster, version = service.cluster, context.api_version

    def topic_of(topic: Body) -> Fields:
        partitions = Each(lambda asked: _partition(topic.name, asked, cluster, version), topic.partitions)
        return {"name": topic.name, "partitions": partitions}

    answer({"topics": Each(topic_of, body.topics)})


def _partition(topic: str, asked: Body, cluster: Cluster, api_version: int) -> Fields:
    error, offset = ErrorCode.none, -1
    if asked.timestamp < 0 and api_version < _SINCE_VERSION.get(asked.timestamp, _NEVER):
        error = ErrorCode.unsupported_version
    elif not cluster.has_partition(topic, asked.partition_index):
        error = ErrorCode.unknown_topic_or_partition
    elif not cluster.leads(asked.partition_index):
        error = ErrorCode.not_leader_or_follower
    elif asked.timestamp in {_LATEST, _EARLIEST, _EARLIEST_LOCAL}:
        offset = 0
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "timestamp": -1,
        "offset": offset,
        "leader_epoch": 0 if offset == 0 else -1,
    }


API = Api(key=2, name="ListOffsets", versions=range(1, 12), handle=handle)
