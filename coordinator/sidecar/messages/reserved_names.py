"""What is Muster's alone in the cluster behind it: the topics of its event log, and its owners' transactional ids.

A client that could write there could have a group's history say anything, or depose an owner with one request. Where
every principal may write everywhere the brokers do not know who Muster is, so the sidecar refuses it to whoever comes
through it. Where the log is in another cluster, or in a file, nothing is reserved. Which cluster it is in is known when
it is open; until then what has these names is kept from clients.
"""

from uuid import UUID

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.link import TopicIds
from muster.events.log.kafka.names import owner_ids_of, topics_of

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ReservedNames:
    """See the module. `event_topic`: None when nothing is reserved."""

    def __init__(self, event_topic: str | None) -> None:
        self.topics: tuple[str, ...] = () if event_topic is None else topics_of(event_topic)
        self._keys: dict[bytes, str] = {name.encode(): name for name in self.topics}
        self._is_owner_id = owner_ids_of(self.topics)
        self._is_here = False
        self._was_there = False
        self._lacks_id_for: ErrorCode | None = None

    def settle(self, *, is_here: bool) -> None:
        """The log is open, and known to be in this cluster, or not to be."""
        self._is_here = is_here
        if not is_here:
            self.topics, self._keys, self._is_owner_id = (), {}, owner_ids_of(())

    def have_ids(self, ids: TopicIds) -> None:
        """The ids of the topics, as the cluster tells them now: they may be made anew."""
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
            self._tell_lacking(event_topic, lacks_id_for)
        self._lacks_id_for = lacks_id_for

    def _tell_lacking(self, event_topic: str, error: ErrorCode | None) -> None:
        """Brokers that know no ids know no Produce by id, and one may not know yet what was made just now."""
        if error is ErrorCode.topic_authorization_failed:
            log.warning(
                "clients that name topics by id (Produce v13) are not kept from the event topic: its id is not told",
                topic=event_topic,
                way_out="allow Muster's own principal DESCRIBE on this TOPIC",
            )
        elif error is ErrorCode.unknown_topic_or_partition and self._was_there:
            log.error(
                "the event topic is gone from the cluster: the next append ends this process",
                topic=event_topic,
                way_out="stop all processes that use it and restore it, or start with another --log",
            )

    def is_topic(self, key: bytes) -> bool:
        """Whether this is the name of such a topic, or its id."""
        return key in self._keys

    def name_of(self, key: bytes) -> str:
        """The topic's name, of a key that is one."""
        return self._keys[key]

    def is_transactional_id(self, encoded: bytes) -> bool:
        """Whether an owner claims a partition under this one."""
        return self._is_owner_id(encoded)
