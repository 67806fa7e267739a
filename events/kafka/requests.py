"""The requests of Kafka that an event log needs, each in the versions that Muster uses.

Builds the requests, and extracts plain values from the responses. A broker gets the newest of these versions that it
offers (`Question`); one that offers none cannot have an event log (log/kafka/client/versions.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from kio.schema.api_versions import v0 as api_versions_v0
from kio.schema.create_topics import v2 as create_topics_v2
from kio.schema.create_topics import v3 as create_topics_v3
from kio.schema.describe_configs import v1 as describe_configs_v1
from kio.schema.describe_configs import v2 as describe_configs_v2
from kio.schema.errors import ErrorCode
from kio.schema.fetch import v7 as fetch_v7
from kio.schema.fetch import v11 as fetch_v11
from kio.schema.find_coordinator import v1 as find_coordinator_v1
from kio.schema.init_producer_id import v0 as init_producer_id_v0
from kio.schema.list_offsets import v1 as list_offsets_v1
from kio.schema.list_offsets import v3 as list_offsets_v3
from kio.schema.produce import v3 as produce_v3
from kio.schema.produce import v7 as produce_v7

from muster.events.kafka.exchange import Exchange, Question, SupportedApi

PRODUCE: Final = SupportedApi("Produce", 0, {7: produce_v7, 3: produce_v3})
"""v3: the first with a producer's epoch; v7: with zstd."""
FETCH: Final = SupportedApi("Fetch", 1, {11: fetch_v11, 7: fetch_v7})
"""v7: the first with a top-level error; v10: with zstd."""
LIST_OFFSETS: Final = SupportedApi("ListOffsets", 2, {3: list_offsets_v3, 1: list_offsets_v1})
"""v1: the first with one offset for a timestamp."""
FIND_COORDINATOR: Final = SupportedApi("FindCoordinator", 10, {1: find_coordinator_v1})
"""v1: the first for a transactional.id."""
API_VERSIONS: Final = SupportedApi("ApiVersions", 18, {0: api_versions_v0})
CREATE_TOPICS: Final = SupportedApi("CreateTopics", 19, {3: create_topics_v3, 2: create_topics_v2})
INIT_PRODUCER_ID: Final = SupportedApi("InitProducerId", 22, {0: init_producer_id_v0})
DESCRIBE_CONFIGS: Final = SupportedApi("DescribeConfigs", 32, {2: describe_configs_v2, 1: describe_configs_v1})

_CONSUMER: Final = -1
"""The replica id in requests of clients, which are not brokers."""
_TRANSACTION: Final = 1
"""The key type of FindCoordinator for transactional ids."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A response to Fetch about one partition. `batches`: as they are stored."""

    error: ErrorCode
    high_watermark: int
    batches: bytes


def produce(topic: str, batches: Iterable[tuple[int, bytes | None]], *, acks: int, timeout_ms: int) -> Question:
    """Append these batches, by partition."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401 -- one of kio's modules, here and below
        messages = version.request
        data = tuple(messages.PartitionProduceData(index=partition, records=batch) for partition, batch in batches)
        request = messages.ProduceRequest(
            acks=acks,
            timeout=timedelta(milliseconds=timeout_ms),
            topic_data=(messages.TopicProduceData(name=topic, partition_data=data),),
        )
        return Exchange(request, version.response.ProduceResponse)

    batches = tuple(batches)
    return Question(PRODUCE, build)


def produced(response: Any) -> dict[int, tuple[ErrorCode, int]]:  # noqa: ANN401 -- ProduceResponse, in a version
    """Return the error and the first offset of the batch, by partition."""
    return {
        partition.index: (partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    }


def list_offsets(topic: str, partitions: Sequence[int], timestamp: int) -> Question:
    """Request the offsets of these partitions at a timestamp, or at Kafka's constants for earliest and latest."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        messages = version.request
        wanted = tuple(
            messages.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions
        )
        topics = (messages.ListOffsetsTopic(name=topic, partitions=wanted),)
        of_version = {"isolation_level": 0} if version is list_offsets_v3 else {}  # also open transactions' records
        request = messages.ListOffsetsRequest(replica_id=_CONSUMER, topics=topics, **of_version)
        return Exchange(request, version.response.ListOffsetsResponse)

    return Question(LIST_OFFSETS, build)


def listed_offsets(response: Any) -> dict[int, tuple[ErrorCode, int]]:  # noqa: ANN401 -- ListOffsetsResponse
    """Return the error and the offset, by partition."""
    return {
        partition.partition_index: (partition.error_code, partition.offset)
        for topic in response.topics
        for partition in topic.partitions
    }


def fetch(topic: str, partition: int, offset: int, *, bytes_max: int, wait_ms: int) -> Question:
    """Read the batches of one partition from an offset onwards, including those of open transactions."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        messages = version.request
        wanted = messages.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = messages.FetchRequest(
            max_wait=timedelta(milliseconds=wait_ms),
            min_bytes=1,
            max_bytes=bytes_max,
            topics=(messages.FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        return Exchange(request, version.response.FetchResponse)

    return Question(FETCH, build)


def fetched_partition(response: Any) -> Fetched | None:  # noqa: ANN401 -- FetchResponse, in a version
    """Return the response's only partition; None if a quota throttled the response."""
    for topic in response.responses:
        for partition in topic.partitions:
            return Fetched(
                error=partition.error_code,
                high_watermark=partition.high_watermark,
                batches=partition.records or b"",
            )
    return None


def find_transaction_coordinator(transactional_id: str) -> Question:
    """Request the coordinator of a transactional id."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        request = version.request.FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
        return Exchange(request, version.response.FindCoordinatorResponse)

    return Question(FIND_COORDINATOR, build)


def init_producer_id(transactional_id: str, *, transaction_timeout_ms: int) -> Question:
    """Request the producer id of a transactional id, with its next epoch."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        request = version.request.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout=timedelta(milliseconds=transaction_timeout_ms)
        )
        return Exchange(request, version.response.InitProducerIdResponse)

    return Question(INIT_PRODUCER_ID, build)


def api_versions() -> Question:
    """Request the versions that a broker offers."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        return Exchange(version.request.ApiVersionsRequest(), version.response.ApiVersionsResponse)

    return Question(API_VERSIONS, build)


def create_topic(
    name: str, *, partitions: int, replication: int, configs: Mapping[str, str], timeout_ms: int
) -> Question:
    """Create a topic; the response has one topic."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        messages = version.request
        topic = messages.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            assignments=(),
            configs=tuple(messages.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        request = messages.CreateTopicsRequest(topics=(topic,), timeout=timedelta(milliseconds=timeout_ms))
        return Exchange(request, version.response.CreateTopicsResponse)

    return Question(CREATE_TOPICS, build)


def describe_configs(kind: int, name: str, keys: Sequence[str] | None = None) -> Question:
    """Request the configs of a resource: all, or those with these keys; the response has one result."""

    def build(version: Any) -> Exchange[Any]:  # noqa: ANN401
        messages = version.request
        resource = messages.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else tuple(keys)
        )
        request = messages.DescribeConfigsRequest(resources=(resource,))
        return Exchange(request, version.response.DescribeConfigsResponse)

    return Question(DESCRIBE_CONFIGS, build)
