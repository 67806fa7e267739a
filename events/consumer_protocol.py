"""The two opaque fields that we look into, for people and for OffsetDelete: a consumer's subscription and assignment.

Metadata is opaque: what cannot be decoded is shown as that (None), and stops nobody (known bug R16).
"""

from kio.serial import entity_reader
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment

_read_subscription = entity_reader(ConsumerProtocolSubscription)
_read_assignment = entity_reader(ConsumerProtocolAssignment)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    try:
        entity, _ = _read_subscription(metadata, 2)
    except Exception:
        return None
    return frozenset(entity.topics)


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    if not assignment:
        return ()
    try:
        entity, _ = _read_assignment(assignment, 2)
    except Exception:
        return None
    return tuple(sorted((a.topic, p) for a in entity.assigned_partitions for p in a.partitions))
