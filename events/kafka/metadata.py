"""Metadata: a cluster's id and its brokers.

The request never creates a topic; its responses build the state here. Pure: no connection and no clock.
"""

import base64
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from kio.schema.metadata import v1, v4, v10
from kio.schema.types import TopicName

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.exchange import Exchange, NotOffered, SupportedApi

METADATA: Final = SupportedApi("Metadata", 3, {10: v10, 4: v4})
"""v4: the first that can be sent without creating topics; v10: with the ids of topics."""


class MetadataQuestion:
    """A Metadata request in the newest version that the broker offers."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = [TopicName(topic) for topic in sorted(topics)]

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Exchange[Any]:
        """Choose the version; called by the connection with the versions that the broker offers."""
        first, last = versions.get(METADATA.key, (0, -1))
        if first <= 10 <= last:
            topics_v10 = tuple(v10.request.MetadataRequestTopic(topic_id=None, name=name) for name in self._topics)
            request_v10 = v10.request.MetadataRequest(
                topics=topics_v10,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            return Exchange(request_v10, v10.response.MetadataResponse)
        if first <= 4 <= last:
            topics_v4 = tuple(v4.request.MetadataRequestTopic(name=name) for name in self._topics)
            request_v4 = v4.request.MetadataRequest(topics=topics_v4, allow_auto_topic_creation=False)
            return Exchange(request_v4, v4.response.MetadataResponse)
        if first <= 1 <= last and not self._topics:  # before v4 it would create the topics that it names
            return Exchange(v1.request.MetadataRequest(topics=()), v1.response.MetadataResponse)
        raise NotOffered("Metadata v4")


class ClusterView:
    """The cluster as of the last response. The id is that of the first response: brokers of other clusters are
    refused.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.brokers: dict[int, BrokerAddress] = {}

    def learn_brokers(self, answer: Any) -> bool:  # noqa: ANN401 -- MetadataResponse, in a version
        """Apply a response; return False for one without brokers, from a broker that has just started."""
        if not answer.brokers:
            return False
        self.cluster_id = self.cluster_id or getattr(answer, "cluster_id", None)
        self.brokers = {int(broker.node_id): BrokerAddress(broker.host, int(broker.port)) for broker in answer.brokers}
        return True


def topic_id_of(topic: Any) -> UUID | None:  # noqa: ANN401 -- MetadataResponseTopic, in a version
    """Return the id of a topic; None from brokers before Kafka 2.8, which have none."""
    return getattr(topic, "topic_id", None)


def topic_id_text(topic_id: UUID) -> str:
    """Format a topic id as Kafka's own tools do."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
