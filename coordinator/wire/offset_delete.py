"""OffsetDelete (key 47), only v0, not flexible (KIP-496).

The command is submitted to the group even if none of the partitions exists, and its error replaces all results (G8).
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.group.commands import Caller, DeleteOffsets
from muster.coordinator.group.outcomes import DeleteOffsetsOutcome, Outcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each, Steps, collected


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    def reply(outcome: Outcome) -> None:
        assert isinstance(outcome, DeleteOffsetsOutcome)
        answer(encode(body, service.cluster, outcome))

    def submit() -> Steps[None]:
        command = yield from decode(body, context.caller(service), service.cluster)
        service.groups.submit(command, reply)

    return context.work(submit())


def decode(body: Body, caller: Caller, cluster: Cluster) -> Steps[DeleteOffsets]:
    """Decode the command, without partitions that do not exist, each once."""
    partitions = yield from collected(
        (topic.name, partition.partition_index)
        if cluster.has_partition(topic.name, partition.partition_index)
        else None
        for topic in body.topics
        for partition in topic.partitions
    )
    return DeleteOffsets(caller=caller, group_id=body.group_id, partitions=tuple(dict.fromkeys(partitions)))


def encode(body: Body, cluster: Cluster, outcome: DeleteOffsetsOutcome) -> Fields:
    if outcome.error is not ErrorCode.none:
        return {"error_code": outcome.error, "topics": []}

    def error(topic: str, partition: int) -> ErrorCode:
        if not cluster.has_partition(topic, partition):
            return ErrorCode.unknown_topic_or_partition
        return outcome.refused.get((topic, partition), ErrorCode.none)

    def topic_of(topic: Body) -> Fields:
        return {
            "name": topic.name,
            "partitions": Each(
                lambda each: {
                    "partition_index": each.partition_index,
                    "error_code": error(topic.name, each.partition_index),
                },
                topic.partitions,
            ),
        }

    return {"error_code": ErrorCode.none, "topics": Each(topic_of, body.topics)}


API = Api(key=47, name="OffsetDelete", versions=range(1), handle=handle)
