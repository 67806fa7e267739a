"""The names reserved for Muster in the upstream cluster: its log's topics, its owners' transactional ids and group.

A client that could use them could forge a group's history, or depose or remove an owner, with one request. Brokers
without ACLs do not know which principal is Muster, so the sidecar refuses these names to all its clients. Nothing is
reserved if the log is in another cluster, or in a file. The log's cluster is known once the log is open; until then the
names are refused.
"""

from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.upstream_link import TopicIds
from muster.events.log.kafka.names import owner_ids_of, ownership_group, topics_of

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ReservedNames:
    """Names that clients may not use. `event_topic` is None if none is reserved."""

    def __init__(self, event_topic: str | None) -> None:
        self.topics: tuple[str, ...] = () if event_topic is None else topics_of(event_topic)
        self._group = None if event_topic is None else ownership_group(event_topic)
        self._keys: dict[bytes, str] = {name.encode(): name for name in self.topics}
        self._is_owner_id = owner_ids_of(self.topics)
        self._is_here = False
        self._was_there = False
        self._lacks_id_for: ErrorCode | None = None

    def settle(self, *, is_here: bool) -> None:
        """Note, once the log is open, whether it is in this cluster."""
        self._is_here = is_here
        if not is_here:
            self.topics, self._keys, self._is_owner_id, self._group = (), {}, owner_ids_of(()), None

    def update_ids(self, ids: TopicIds) -> None:
        """Update the topics' ids from Metadata: a topic may have been recreated."""
        found = {name: topic_id for name, topic_id in ids.items() if isinstance(topic_id, UUID) and name in self.topics}
        self._keys = {name.encode(): name for name in self.topics} | {
            topic_id.bytes: name for name, topic_id in found.items()
        }
        if not self._is_here:
            return
        event_topic = self.topics[0]
        self._was_there |= event_topic in found
        error = ids.get(event_topic)
        lacks_id_for = error if isinstance(error, ErrorCode) else None
        if lacks_id_for is not self._lacks_id_for:
            self._log_missing_id(event_topic, lacks_id_for)
        self._lacks_id_for = lacks_id_for

    def _log_missing_id(self, event_topic: str, error: ErrorCode | None) -> None:
        """Log why the event topic has no id, except for brokers without topic ids and while it is being created."""
        if error is ErrorCode.topic_authorization_failed:
            log.warning(
                "cannot keep clients that name topics by id (Produce v13) from writing to the event topic: its id "
                "is unknown",
                topic=event_topic,
                way_out="allow Muster's own principal DESCRIBE on this TOPIC",
            )
        elif error is ErrorCode.unknown_topic_or_partition and self._was_there:
            log.error(
                "the event topic was deleted: the next append stops this process",
                topic=event_topic,
                way_out="stop all processes that use it and restore it, or start with another --log",
            )

    def is_topic(self, key: bytes) -> bool:
        """Return whether this is the name or id of a reserved topic."""
        return key in self._keys

    def name_of(self, key: bytes) -> str:
        """Return the name of a reserved topic, by its name or id."""
        return self._keys[key]

    def is_transactional_id(self, encoded: bytes) -> bool:
        """Return whether an owner uses this transactional id."""
        return self._is_owner_id(encoded)

    def is_group(self, group_id: str) -> bool:
        """Return whether it is the consumer group of the log's owners."""
        return group_id == self._group
