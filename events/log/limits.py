"""The limits of the logs without a broker, so that they refuse and chunk as a Kafka topic does."""

from muster.events.log.base import AppendRefused
from muster.events.records import Transition

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""The limit on one transition: Muster's `max.message.bytes` on a Kafka topic, which limits a batch."""

CHUNK_RECORDS_MAX = 2_000
CHUNK_BYTES_MAX = 4 * 1024 * 1024
"""The limits of a chunk for readers, whichever is reached first; a single record may be larger."""


def verdict_on(transition: Transition, limit_bytes: int) -> AppendRefused | None:
    """Check the transition against the limit; its size is that of its keys and values."""
    size_bytes = sum(len(record.key) + len(record.value or b"") for record in transition)
    if size_bytes > limit_bytes:
        return AppendRefused(size_bytes=size_bytes, limit_bytes=limit_bytes)
    return None
