"""OffsetFetch (key 9).

Offered from v1 on, as in Kafka 4. v2 takes null for all topics, and adds a top-level error; v1 has none, so a group's
error is repeated for each partition (W18). v3 adds the throttle time. v5 adds the leader epoch. v6 is flexible. v7 adds
RequireStable, which has no effect here: there are no transactions, and all offsets are durable. v8 takes many groups.
v9 adds the member id and epoch of the newer protocol, which have no meaning for classic groups (W7). v10 names topics
only by id.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.service import Cancel, CommittedOffset, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.ids import GroupId
from muster.events.steps import Each, Steps, entries_of

Committed = Mapping[tuple[str, int], CommittedOffset]

_NOTHING = CommittedOffset(offset=-1, leader_epoch=-1, metadata="")


_Asked = dict[Any, dict[int, None]]
"""The requested partitions by topic, each once: by the topic's name, or its id from v10 on."""


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    version = context.api_version

    def fetch() -> Steps[None]:
        if version < 8:
            topics = yield from _each_once(body.topics, version)
            answer((yield from _group(body.group_id, topics, version, service)))
            return
        asked: dict[GroupId, list[Body] | None] = {}
        for group in body.groups:
            named = asked.setdefault(group.group_id, [])
            if group.topics is None:
                asked[group.group_id] = None
            elif named is not None:
                named.extend(group.topics)
            yield 1
        groups = []
        for group_id, named in asked.items():
            topics = yield from _each_once(named, version)
            groups.append((yield from _group(group_id, topics, version, service)))
            yield entries_of(group_id)
        answer({"groups": groups})

    return context.work(fetch())


def _each_once(topics: Sequence[Body] | None, version: int) -> Steps[_Asked | None]:
    """Collect the requested partitions; None for all committed ones (OF8)."""
    if topics is None:
        return None
    asked: _Asked = {}
    for topic in topics:
        indexes = asked.setdefault(topic.topic_id if version >= 10 else topic.name, {})
        indexes.update(dict.fromkeys(topic.partition_indexes))
        yield 1
    return asked


def _group(group_id: GroupId, topics: _Asked | None, version: int, service: Service) -> Steps[Fields]:
    """Encode one group."""
    committed, cluster = service.groups.committed_offsets(group_id), service.cluster
    if isinstance(committed, ErrorCode):
        named = _named(topics, _failed(committed)) if version < 2 and topics is not None else ()
        return {"group_id": group_id, "error_code": committed, "topics": named}
    if topics is None:
        found = yield from _all(committed, cluster, by_id=version >= 10)
    elif version >= 10:
        found = Each(lambda asked: _by_id(asked[0], asked[1], committed, cluster), topics.items())
    else:
        found = _named(topics, lambda name, index: _partition(index, committed.get((name, index), _NOTHING)))
    return {"group_id": group_id, "error_code": ErrorCode.none, "topics": found}


def _named(topics: _Asked, partition: Callable[[str, int], Fields]) -> Collection[Fields]:
    def topic_of(asked: tuple[str, dict[int, None]]) -> Fields:
        name, indexes = asked
        return {"name": name, "partitions": Each(lambda index: partition(name, index), indexes)}

    return Each(topic_of, topics.items())


def _by_id(topic_id: UUID, indexes: dict[int, None], committed: Committed, cluster: Cluster) -> Fields:
    declared = cluster.topics_by_id.get(topic_id)
    if declared is None:
        failed = _failed(ErrorCode.unknown_topic_id)
        return {"topic_id": topic_id, "partitions": Each(lambda index: failed("", index), indexes)}
    name = declared.name
    return {
        "topic_id": topic_id,
        "partitions": Each(lambda index: _partition(index, committed.get((name, index), _NOTHING)), indexes),
    }


def _all(committed: Committed, cluster: Cluster, *, by_id: bool) -> Steps[Collection[Fields]]:
    """Encode all committed offsets; by id without topics that are no longer declared."""
    partitions: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for (name, index), offset in committed.items():
        if not by_id or name in cluster.topics:
            partitions.setdefault(name, []).append((index, offset))
        yield 1

    def topic_of(found: tuple[str, list[tuple[int, CommittedOffset]]]) -> Fields:
        name, offsets = found
        return {
            "name": name,
            "topic_id": cluster.topics[name].topic_id if by_id else None,
            "partitions": Each(lambda each: _partition(*each), offsets),
        }

    return Each(topic_of, partitions.items())


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
