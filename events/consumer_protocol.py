"""The one opaque field we look into: subscriptions and assignments of members of protocol type `consumer`.

For people only: what is shown, and which topics a group reads. No rule of the coordinator depends on it, because what a
client puts there is its own business; bytes that cannot be read are None and harm no one (known bug R16).

Both messages begin with a version of 16 bits. As Kafka does (ConsumerProtocol.java), a version above those known is
read as the highest known, a negative one cannot be read, and what follows the last field is left alone.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment as AssignmentV0
from kio.schema.consumer_protocol_assignment.v0.data import TopicPartition
from kio.schema.consumer_protocol_assignment.v1 import ConsumerProtocolAssignment as AssignmentV1
from kio.schema.consumer_protocol_assignment.v2 import ConsumerProtocolAssignment as AssignmentV2
from kio.schema.consumer_protocol_assignment.v3 import ConsumerProtocolAssignment as AssignmentV3
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription as SubscriptionV0
from kio.schema.consumer_protocol_subscription.v1 import ConsumerProtocolSubscription as SubscriptionV1
from kio.schema.consumer_protocol_subscription.v2 import ConsumerProtocolSubscription as SubscriptionV2
from kio.schema.consumer_protocol_subscription.v3 import ConsumerProtocolSubscription as SubscriptionV3
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import Reader
from kio.static.primitive import i32

Subscription = SubscriptionV0 | SubscriptionV1 | SubscriptionV2 | SubscriptionV3
Assignment = AssignmentV0 | AssignmentV1 | AssignmentV2 | AssignmentV3
Message = TypeVar("Message")

_VERSION_BYTES = 2
_VERSION_0 = bytes(_VERSION_BYTES)

_SUBSCRIPTIONS: tuple[Reader[Subscription], ...] = (
    entity_reader(SubscriptionV0),
    entity_reader(SubscriptionV1),
    entity_reader(SubscriptionV2),
    entity_reader(SubscriptionV3),
)
_ASSIGNMENTS: tuple[Reader[Assignment], ...] = (
    entity_reader(AssignmentV0),
    entity_reader(AssignmentV1),
    entity_reader(AssignmentV2),
    entity_reader(AssignmentV3),
)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription; None when the bytes are none."""
    subscription = _read(metadata, _SUBSCRIPTIONS)
    return None if subscription is None else frozenset(subscription.topics)


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """The (topic, partition) pairs of a ConsumerProtocolAssignment, sorted; None when the bytes are none.

    No bytes at all are no partitions: so a member is answered that the leader left out (classic SyncGroup).
    """
    if not assignment:
        return ()
    read = _read(assignment, _ASSIGNMENTS)
    if read is None:
        return None
    return tuple(sorted((str(of.topic), int(number)) for of in read.assigned_partitions for number in of.partitions))


def _read(data: bytes, readers: Sequence[Reader[Message]]) -> Message | None:
    if len(data) < _VERSION_BYTES:
        return None
    version = int.from_bytes(data[:_VERSION_BYTES], signed=True)
    if version < 0:
        return None
    try:
        message, _ = readers[min(version, len(readers) - 1)](data, _VERSION_BYTES)
    except (SerialError, ValueError):  # ValueError: kio's for a negative count
        return None
    return message


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    buffer = io.BytesIO()
    entity_writer(SubscriptionV0)(buffer, SubscriptionV0(topics=tuple(topics)))
    return _VERSION_0 + buffer.getvalue()


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """A ConsumerProtocolAssignment of version 0, of topics and the numbers of their partitions."""
    assigned = tuple(
        TopicPartition(topic=TopicName(topic), partitions=tuple(i32(number) for number in numbers))
        for topic, numbers in partitions.items()
    )
    buffer = io.BytesIO()
    entity_writer(AssignmentV0)(buffer, AssignmentV0(assigned_partitions=assigned))
    return _VERSION_0 + buffer.getvalue()
