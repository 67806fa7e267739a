"""OffsetDelete (key 47), v0 alone, not flexible (KIP-496).

The group is asked also when none of the partitions exists, and its error replaces all results (G8).
"""

from kio.schema.errors import ErrorCode

from coordinator.cluster import Cluster
from coordinator.group.commands import Caller, DeleteOffsets
from coordinator.group.outcomes import DeleteOffsetsOutcome, Outcome
from coordinator.service import Service
from coordinator.wire.api import Answer, Api, Body, Fields, RequestContext


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    def reply(outcome: Outcome) -> None:
        assert isinstance(outcome, DeleteOffsetsOutcome)
        answer(encode(body, service.cluster, outcome))

    service.groups.submit(decode(body, context.caller(service), service.cluster), reply)


def decode(body: Body, caller: Caller, cluster: Cluster) -> DeleteOffsets:
    """The command, with those partitions alone that exist."""
    return DeleteOffsets(
        caller=caller,
        group_id=body.group_id,
        partitions=tuple(
            (topic.name, partition.partition_index)
            for topic in body.topics
            for partition in topic.partitions
            if cluster.has_partition(topic.name, partition.partition_index)
        ),
    )


def encode(body: Body, cluster: Cluster, outcome: DeleteOffsetsOutcome) -> Fields:
    if outcome.error is not ErrorCode.none:
        return {"error_code": outcome.error, "topics": []}

    def error(topic: str, partition: int) -> ErrorCode:
        if not cluster.has_partition(topic, partition):
            return ErrorCode.unknown_topic_or_partition
        return outcome.refused.get((topic, partition), ErrorCode.none)

    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": error(topic.name, each.partition_index)}
                    for each in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


API = Api(key=47, name="OffsetDelete", versions=range(1), handle=handle)
