"""Decodes the subscriptions and assignments of protocol type `consumer`, the only opaque fields that we decode.

They are displayed, and, as in Kafka, show whether a group subscribes to a topic whose offsets are to be deleted (S17).
Bytes that cannot be decoded give None, not an error (known bug R16).

Both messages begin with a 16-bit version. All versions begin with the fields of version 0, which are all that the
coordinator needs, so everything is read as version 0, as in Kafka (S17): later fields, unknown versions and fields that
a client omitted do not matter. To explain rebalances, the partitions that members own are read, too (version 1).
"""

import io
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from struct import Struct
from typing import TypeVar

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment, TopicPartition
from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_subscription.v1 import (
    ConsumerProtocolSubscription as ConsumerProtocolSubscriptionV1,
)
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import Reader
from kio.static.primitive import i32

CONSUMER_PROTOCOL_TYPE = "consumer"

TOPICS_LOOKED_AT_MAX = 50_000
"""The limit of topics read from all subscriptions of a group together: about 10 ms of work."""

KINDS_MAX = 4
"""How many topic lists of each length are cached, so that equal ones are decoded once; with more, comparing would cost
too much.
"""

_VERSION_0 = b"\x00\x00"
_COUNT = Struct(">i")
_TOPICS_AT = len(_VERSION_0) + _COUNT.size
_LENGTH_BYTES = 2

_read_subscription = entity_reader(ConsumerProtocolSubscription)
_read_owned = entity_reader(ConsumerProtocolSubscriptionV1)
_read_assignment = entity_reader(ConsumerProtocolAssignment)
_write_subscription = entity_writer(ConsumerProtocolSubscription)
_write_assignment = entity_writer(ConsumerProtocolAssignment)

_Message = TypeVar("_Message")
_Decoded = TypeVar("_Decoded")

REMEMBERED_MAX = 1_024
REMEMBERED_BYTES_MAX = 1_024
"""Limits of the cache of decoded messages: a history repeats few messages very often."""


def _remembering(decode: Callable[[bytes], _Decoded]) -> Callable[[bytes], _Decoded]:
    """Return the same function with a cache for short messages."""
    remembered = lru_cache(maxsize=REMEMBERED_MAX)(decode)

    @wraps(decode)
    def decode_or_remember(data: bytes) -> _Decoded:
        return remembered(data) if len(data) <= REMEMBERED_BYTES_MAX else decode(data)

    return decode_or_remember


@_remembering
def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Decode the topics of a ConsumerProtocolSubscription; None if the bytes are not one."""
    listed = _listed_topics(metadata)
    return None if listed is None else frozenset(listed)


@_remembering
def owned_partitions(metadata: bytes) -> frozenset[tuple[str, int]] | None:
    """Decode the (topic, partition) pairs that a member reports as owned (KIP-429); None if it reports none.

    Subscriptions have them from version 1 on.
    """
    if int.from_bytes(metadata[: len(_VERSION_0)], signed=True) < 1:
        return None
    read = _read(_read_owned, metadata)
    if read is None:
        return None
    return frozenset((str(of.topic), int(number)) for of in read.owned_partitions for number in of.partitions)


def subscribed_by_any(subscriptions: Iterable[bytes], topics_max: int = TOPICS_LOOKED_AT_MAX) -> frozenset[str] | None:
    """Decode the topics of all subscriptions; None if one cannot be decoded, or if they have more than `topics_max`.

    A list of topics that several members share, as in most groups, is read and counted once.
    """
    topics: set[str] = set()
    read: defaultdict[bytes, deque[bytes]] = defaultdict(lambda: deque(maxlen=KINDS_MAX))  # by their number of topics
    left = topics_max
    for metadata in subscriptions:
        count = metadata[len(_VERSION_0) : _TOPICS_AT]
        known = next((each for each in read[count] if metadata.startswith(each, len(_VERSION_0))), None)
        if known is not None:
            if not _has_user_data(metadata, len(_VERSION_0) + len(known)):
                return None
            continue
        if len(count) < _COUNT.size or _COUNT.unpack(count)[0] > left:
            return None
        listed = _listed_topics(metadata)
        if listed is None:
            return None
        left -= len(listed)
        topics.update(listed)
        read[count].append(metadata[len(_VERSION_0) : _end_of_topics(listed)])
    return frozenset(topics)


@_remembering
def _listed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Decode the topics in their order; None if the bytes are no subscription. Cached, since a takeover decodes the
    subscriptions of many groups.
    """
    subscription = _read(_read_subscription, metadata)
    return None if subscription is None else tuple(subscription.topics)


def _end_of_topics(listed: Sequence[str]) -> int:
    return _TOPICS_AT + _LENGTH_BYTES * len(listed) + len("".join(listed).encode())


def _has_user_data(metadata: bytes, at: int) -> bool:
    """Return whether the rest of a subscription's fields is present, as the reader expects it."""
    if len(metadata) < at + _COUNT.size:
        return False
    size: int = _COUNT.unpack_from(metadata, at)[0]
    return -1 <= size <= len(metadata) - at - _COUNT.size


@_remembering
def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Decode the (topic, partition) pairs of a ConsumerProtocolAssignment, sorted; None if the bytes are not one.

    Empty bytes mean no partitions: members that the leader left out get them.
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
    except (SerialError, ValueError):  # kio raises ValueError for a negative count
        return None
    return None if _has_null_array(message) else message


def _has_null_array(message: object) -> bool:
    """Return whether an array has the count -1: kio reads it as None, but Kafka refuses it, as none is nullable."""
    match message:
        case ConsumerProtocolSubscription(topics=topics):
            return _is_null(topics)
        case ConsumerProtocolSubscriptionV1(topics=topics, owned_partitions=owned):
            return _is_null(topics) or _is_null(owned) or any(_is_null(of.partitions) for of in owned)
        case ConsumerProtocolAssignment(assigned_partitions=assigned):
            return _is_null(assigned) or any(_is_null(of.partitions) for of in assigned)
    return False


def _is_null(array: tuple[object, ...] | None) -> bool:
    return array is None


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a ConsumerProtocolSubscription of version 0."""
    buffer = io.BytesIO()
    _write_subscription(buffer, ConsumerProtocolSubscription(topics=tuple(topics)))
    return _VERSION_0 + buffer.getvalue()


def encode_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode a ConsumerProtocolAssignment of version 0: topics with their partition numbers."""
    assigned = tuple(
        TopicPartition(topic=TopicName(topic), partitions=tuple(i32(number) for number in numbers))
        for topic, numbers in partitions.items()
    )
    buffer = io.BytesIO()
    _write_assignment(buffer, ConsumerProtocolAssignment(assigned_partitions=assigned))
    return _VERSION_0 + buffer.getvalue()
