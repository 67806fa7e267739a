"""OffsetCommit (key 8).

Offered from v2 on, as in Kafka 4. v2 to v4 carry a retention time (OC18). v3 adds the throttle time. v6 adds the
leader epoch. v7 adds the group instance id (KIP-345). v8 is flexible. From v9 on a commit for an unknown group is
answered 69 (OC2). v10 names topics only by id.

Topics and partitions that do not exist are removed before the command is submitted to the group (G4); if none is left,
no command is submitted (G5). If a partition is named many times, its last offset is kept, as in Kafka.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.group.commands import Caller, CommitOffsets, OffsetToCommit
from muster.coordinator.group.outcomes import CommitOffsetsOutcome, Outcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.ids import MemberId
from muster.events.steps import Each, Steps, collected

_NO_RETENTION = -1
_EXPIRE_MS_MAX = 2**63 - 1


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    def reply(outcome: Outcome) -> None:
        assert isinstance(outcome, CommitOffsetsOutcome)
        answer(_encode(body, service.cluster, outcome))

    def submit() -> Steps[None]:
        command = yield from decode(body, context, context.caller(service), service.cluster)
        if command.offsets:
            service.groups.submit(command, reply)
        else:
            reply(CommitOffsetsOutcome(error=ErrorCode.none))

    return context.work(submit())


def decode(body: Body, context: RequestContext, caller: Caller, cluster: Cluster) -> Steps[CommitOffsets]:
    """Decode the command, without partitions that do not exist."""
    now_ms = context.arrived_wall_ms
    retention_ms = getattr(body, "retention_time", _NO_RETENTION)
    expire_ms = None if retention_ms == _NO_RETENTION else min(now_ms + retention_ms, _EXPIRE_MS_MAX)

    def kept(name: str | None, partition: Body) -> OffsetToCommit | None:
        if name is None or not cluster.has_partition(name, partition.partition_index):
            return None
        return OffsetToCommit(
            topic=name,
            partition=partition.partition_index,
            offset=partition.committed_offset,
            leader_epoch=getattr(partition, "committed_leader_epoch", -1),
            metadata=partition.committed_metadata or "",
            commit_ms=now_ms,
            expire_ms=expire_ms,
        )

    partitions = ((_name(topic, cluster), each) for topic in body.topics for each in topic.partitions)
    offsets = yield from collected(kept(name, each) for name, each in partitions)
    return CommitOffsets(
        caller=caller,
        group_id=body.group_id,
        member_id=MemberId(body.member_id),
        group_instance_id=getattr(body, "group_instance_id", None),
        generation_id=body.generation_id_or_member_epoch,
        unknown_group_error=(
            ErrorCode.group_id_not_found if context.api_version >= 9 else ErrorCode.illegal_generation
        ),
        offsets=tuple({(each.topic, each.partition): each for each in offsets}.values()),
    )


def _name(topic: Body, cluster: Cluster) -> str | None:
    """Return the topic's name; None for an unknown id."""
    if hasattr(topic, "name"):
        name: str = topic.name
        return name
    declared = cluster.topics_by_id.get(topic.topic_id)
    return None if declared is None else declared.name


def _encode(body: Body, cluster: Cluster, outcome: CommitOffsetsOutcome) -> Fields:
    def error(name: str | None, partition: int) -> ErrorCode:
        if name is None:
            return ErrorCode.unknown_topic_id
        if not cluster.has_partition(name, partition):
            return ErrorCode.unknown_topic_or_partition
        if outcome.error is not ErrorCode.none:
            return outcome.error
        return outcome.refused.get((name, partition), ErrorCode.none)

    def topic_of(topic: Body) -> Fields:
        name = _name(topic, cluster)
        return {
            "name": name,
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": Each(
                lambda each: {
                    "partition_index": each.partition_index,
                    "error_code": error(name, each.partition_index),
                },
                topic.partitions,
            ),
        }

    return {"topics": Each(topic_of, body.topics)}


API = Api(key=8, name="OffsetCommit", versions=range(2, 11), handle=handle)
