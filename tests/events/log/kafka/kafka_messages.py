"""Kio's messages, as a link that a test has made sees the requests, and gives the responses."""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import response as fetch_v11
from kio.schema.init_producer_id.v0.response import InitProducerIdResponse
from kio.schema.list_offsets.v3 import response as list_offsets_v3
from kio.schema.produce.v7 import response as produce_v7

from muster.events.kafka.exchange import Preparable

_fetch: Any = fetch_v11
_offsets: Any = list_offsets_v3
_produce: Any = produce_v7
_init: Any = InitProducerIdResponse
_NO_TIME = timedelta(0)
_ANY_VERSIONS = dict.fromkeys(range(100), (0, 100))

LIST_OFFSETS, FETCH = 2, 1


def request_in(question: Preparable) -> Any:
    """Return the message in the newest version that is spoken here."""
    return question.prepare(_ANY_VERSIONS).request


def timestamp_of(request: Any) -> int:
    """Return the timestamp in a ListOffsets request about one partition."""
    ((partition,),) = (topic.partitions for topic in request.topics)
    return int(partition.timestamp)


def place_of(request: Any) -> tuple[int, int]:
    """Return the offset and the number of bytes in a Fetch request about one partition."""
    ((partition,),) = (topic.partitions for topic in request.topics)
    return int(partition.fetch_offset), int(partition.partition_max_bytes)


def offset_response(topic: str, partition: int, offset: int) -> Any:
    found = _offsets.ListOffsetsPartitionResponse(
        partition_index=partition, error_code=ErrorCode.none, timestamp=-1, offset=offset
    )
    topics = (_offsets.ListOffsetsTopicResponse(name=topic, partitions=(found,)),)
    return _offsets.ListOffsetsResponse(throttle_time=_NO_TIME, topics=topics)


def fetch_response(topic: str, partition: int, end: int, batches: bytes, error: ErrorCode = ErrorCode.none) -> Any:
    found = _fetch.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=(),
        records=batches,
    )
    return _fetch.FetchResponse(
        throttle_time=_NO_TIME,
        error_code=ErrorCode.none,
        responses=(_fetch.FetchableTopicResponse(topic=topic, partitions=(found,)),),
    )


def produce_response(topic: str, partition: int, *, base_offset: int) -> Any:
    appended = _produce.PartitionProduceResponse(index=partition, error_code=ErrorCode.none, base_offset=base_offset)
    of_topic = _produce.TopicProduceResponse(name=topic, partition_responses=(appended,))
    return _produce.ProduceResponse(responses=(of_topic,), throttle_time=_NO_TIME)


def producer_id_response(producer_id: int, producer_epoch: int) -> Any:
    return _init(
        throttle_time=_NO_TIME, error_code=ErrorCode.none, producer_id=producer_id, producer_epoch=producer_epoch
    )
