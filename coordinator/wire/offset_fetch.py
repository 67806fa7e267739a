"""OffsetFetch (key 9).

Offered from v1 on, as Kafka 4 does. v2 takes null for all topics, and adds a top-level error; v1 has none, so that a
group's error stands on each partition (W18). v3 adds the throttle time. v5 adds the leader epoch. v6 is flexible. v7
adds RequireStable, which changes nothing here: there are no transactions, and what is told is durable. v8 asks for many
groups. v9 adds the member id and epoch of the newer protocol, which mean nothing for classic groups (W7). v10 names
topics by id alone.
"""

from collections.abc import Callable, Mapping, Sequence

from kio.schema.errors import ErrorCode

from coordinator.cluster import Cluster
from coordinator.service import CommittedOffset, Service
from coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from events.ids import GroupId

Committed = Mapping[tuple[str, int], CommittedOffset]

_NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="")


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    version = context.api_version

    def asked(group_id: GroupId, topics: Body | None) -> Fields:
        committed = service.groups.committed_offsets(group_id)
        return {"group_id": group_id, **_group(topics, committed, version, service.cluster)}

    if version < 8:
        answer(asked(body.group_id, body.topics))
    else:
        answer({"groups": [asked(group.group_id, group.topics) for group in body.groups]})


def _group(topics: Body | None, committed: Committed | ErrorCode, version: int, cluster: Cluster) -> Fields:
    """One group's fields; `topics` of None asks for all that is committed (OF8)."""
    if isinstance(committed, ErrorCode):
        named = _named(topics, _failed(committed)) if version < 2 else []
        return {"error_code": committed, "topics": named}
    if topics is None:
        found = _all(committed, cluster, by_id=version >= 10)
    elif version >= 10:
        found = [_by_id(topic, committed, cluster) for topic in topics]
    else:
        found = _named(topics, lambda name, index: _partition(index, committed.get((name, index), _NOTHING)))
    return {"error_code": ErrorCode.none, "topics": found}


def _named(topics: Body, partition: Callable[[str, int], Fields]) -> Sequence[Fields]:
    return [
        {"name": topic.name, "partitions": [partition(topic.name, index) for index in topic.partition_indexes]}
        for topic in topics
    ]


def _by_id(topic: Body, committed: Committed, cluster: Cluster) -> Fields:
    declared = cluster.topics_by_id.get(topic.topic_id)
    if declared is None:
        failed = _failed(ErrorCode.unknown_topic_id)
        return {"topic_id": topic.topic_id, "partitions": [failed("", index) for index in topic.partition_indexes]}
    return {
        "topic_id": topic.topic_id,
        "partitions": [
            _partition(index, committed.get((declared.name, index), _NOTHING)) for index in topic.partition_indexes
        ],
    }


def _all(committed: Committed, cluster: Cluster, *, by_id: bool) -> Sequence[Fields]:
    """Everything that is committed; asked for by id, without the topics that are no longer declared."""
    partitions: dict[str, list[Fields]] = {}
    for (name, index), offset in committed.items():
        if not by_id or name in cluster.topics:
            partitions.setdefault(name, []).append(_partition(index, offset))
    return [
        {
            "name": name,
            "topic_id": cluster.topics[name].topic_id if by_id else None,
            "partitions": each,
        }
        for name, each in partitions.items()
    ]


def _partition(index: int, committed: CommittedOffset) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": ErrorCode.none,
    }


def _failed(error: ErrorCode) -> Callable[[str, int], Fields]:
    return lambda _name, index: {**_partition(index, _NOTHING), "error_code": error}


API = Api(key=9, name="OffsetFetch", versions=range(1, 11), handle=handle)
