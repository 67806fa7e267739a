"""The one opaque field we look into: subscriptions and assignments of members of protocol type `consumer`.

For people, and for the one question that Kafka answers from them: whether a group reads a topic whose offsets are to be
deleted (S17). What a client puts there is its own business otherwise; bytes that cannot be read are None and harm no
one (known bug R16).

Both messages begin with a version of 16 bits. All versions begin with the fields of version 0, and those are all we
want, so everything is read as version 0, as Kafka's coordinator does (S17): later fields, unknown versions and fields
that a client forgot are no obstacle.
"""

import io
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment, TopicPartition
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import Reader
from kio.static.primitive import i32

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_0 = b"\x00\x00"

_read_subscription = entity_reader(ConsumerProtocolSubscription)
_read_assignment = entity_reader(ConsumerProtocolAssignment)
_write_subscription = entity_writer(ConsumerProtocolSubscription)
_write_assignment = entity_writer(ConsumerProtocolAssignment)

_Message = TypeVar("_Message")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription; None when the bytes are none."""
    subscription = _read(_read_subscription, metadata)
    return None if subscription is None else frozenset(subscription.topics)


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """The (topic, partition) pairs of a ConsumerProtocolAssignment, sorted; None when the bytes are none.

    No bytes at all are no partitions: that is what a member gets whom the leader left out.
    """
    if not assignment:
        return ()
    read = _read(_read_assignment, assignment)
    if read is None:
        return None
    return tuple(sorted((str(of.topic), int(number)) for of in read.assigned_partitions for number in of.partitions))


def _read(reader: Reader[_Message], data: bytes) -> _Message | None:
    try:
        message, _ = reader(data, len(_VERSION_0))
    except (SerialError, ValueError):  # a ValueError is kio's answer to a negative count
        return None
    return message


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    buffer = io.BytesIO()
    _write_subscription(buffer, ConsumerProtocolSubscription(topics=tuple(topics)))
    return _VERSION_0 + buffer.getvalue()


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """A ConsumerProtocolAssignment of version 0: topics, and the numbers of their partitions."""
    assigned = tuple(
        TopicPartition(topic=TopicName(topic), partitions=tuple(i32(number) for number in numbers))
        for topic, numbers in partitions.items()
    )
    buffer = io.BytesIO()
    _write_assignment(buffer, ConsumerProtocolAssignment(assigned_partitions=assigned))
    return _VERSION_0 + buffer.getvalue()
