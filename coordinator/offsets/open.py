"""The offset store that belongs to an event log."""

from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.offsets.sqlite import SqliteOffsetStore
from muster.coordinator.offsets.topic import TopicOffsetStore
from muster.events.kafka.addresses import KnownBrokers
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.log.base import EventLog
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import open_log


def offset_store_for(
    event_log: EventLog,
    url: str,
    *,
    replication: int | None,
    security: KafkaSecurity = NOT_SECURED,
    known_brokers: KnownBrokers | None = None,
) -> OffsetStore:
    """Create the store: in the same file, in a topic alongside the event topic, or in memory. `event_log` opens first.

    `known_brokers`: shared with other links of the process.
    """
    if isinstance(event_log, SqliteEventLog):
        return SqliteOffsetStore(event_log.file)
    if url.startswith("kafka:"):
        # Only the last commit of an offset matters, so this topic keeps no history.
        return TopicOffsetStore(
            lambda: open_log(
                url + OFFSETS_SUFFIX,
                partitions=event_log.partitions,
                replication=replication,
                audit_window_ms=0,
                security=security,
                known_brokers=known_brokers,
                new_format_level=event_log.format_level,  # so that the same versions can use both
            )
        )
    return MemoryOffsetStore()
