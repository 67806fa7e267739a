"""The log's topics in Metadata: their partition leaders, and whether they were deleted or recreated.

Keeps the state of the followed topics, from Metadata responses. Pure: no connection and no clock.

A followed topic must stay the one that was seen first: its id and its number of partitions are remembered. Another id
means that it was deleted and recreated, and a topic that stays missing was deleted; in both cases the appended events
are not in it. So such a topic is refused from then on.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.kafka.addresses import BrokerAddress
from muster.events.kafka.metadata import ClusterView, topic_id_of, topic_id_text
from muster.events.log.base import LogMismatch, LogReplaced

MISSING_FOR_S: Final = 5.0
"""A topic that was seen counts as deleted when it has been missing for this long: a broker may lag behind."""

_NO_LEADER: Final = -1


class MovedLeader(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is no longer led from this address."""

    topic: str
    partition: int
    was_at: BrokerAddress | None


_NOT_BEFORE: Final = (
    "with --upstream, each only after its former shadow has left the cluster: within 30 minutes, or at once"
    " with the `muster members remove` command that the log then shows"
)
MADE_ANEW = (
    "Restore the first one, or delete the new one and restart (it is created with the right settings), or give"
    f" another --log: groups start over there, {_NOT_BEFORE}"
)
_OR_ELSEWHERE = "If the brokers' addresses lead to another cluster now, correct them"


class _Leader(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    epoch: int


class _FollowedTopic(msgspec.Struct, kw_only=True):
    """A topic, with its id and partitions as first seen. `missing_since_s`: None while the topic exists."""

    topic_id: UUID | None
    partitions: int
    leaders: dict[int, _Leader]
    missing_since_s: float | None = None


class FollowedTopics(ClusterView):
    """The followed topics as of the last Metadata. `refusals`: why a topic can no longer be used, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: dict[str, LogMismatch] = {}
        self._followed: dict[str, _FollowedTopic | None] = {}

    @property
    def topics(self) -> Collection[str]:
        """The topics that are followed."""
        return self._followed.keys()

    def follow(self, topics: Collection[str]) -> None:
        """Follow these topics and no others; their known state is kept."""
        self._followed = {topic: self._followed.get(topic) for topic in topics}

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node id of the partition's leader, if known."""
        followed = self._followed.get(topic)
        leader = followed.leaders.get(partition) if followed else None
        return None if leader is None or leader.node_id == _NO_LEADER else leader.node_id

    def learn(self, answer: Any, now_s: float) -> list[MovedLeader]:  # noqa: ANN401 -- MetadataResponse, in a version
        """Apply a response; return the partitions whose leader moved. A response without brokers is ignored."""
        addresses = self.brokers
        if not self.learn_brokers(answer):
            return []
        moved = []
        for topic in answer.topics:
            if topic.name in self._followed:
                moved += list(self._learn_topic(topic, addresses, now_s))
        return moved

    def _learn_topic(
        self,
        topic: Any,  # noqa: ANN401 -- MetadataResponseTopic, in a version
        addresses: dict[int, BrokerAddress],
        now_s: float,
    ) -> Iterator[MovedLeader]:
        known = self._followed[topic.name]
        if topic.error_code is ErrorCode.unknown_topic_or_partition:
            if known is not None:
                self._missing(topic.name, known, now_s)
            return
        if topic.error_code is not ErrorCode.none or not topic.partitions:
            return
        topic_id = topic_id_of(topic)
        if known is None:
            known = _FollowedTopic(topic_id=topic_id, partitions=len(topic.partitions), leaders={})
            self._followed[topic.name] = known
        known.missing_since_s = None
        known.topic_id = known.topic_id or topic_id  # brokers before Kafka 2.8 report none
        refusal = _changed(topic.name, known, topic_id, len(topic.partitions))
        if refusal is not None:
            self.refusals[topic.name] = refusal
            return
        for partition in topic.partitions:
            now = _Leader(node_id=int(partition.leader_id), epoch=getattr(partition, "leader_epoch", -1))
            before = known.leaders.get(partition.partition_index)
            if before is not None and now.epoch < before.epoch:
                continue  # from a broker that lags behind
            known.leaders[partition.partition_index] = now
            if before is not None and before.node_id not in {now.node_id, _NO_LEADER}:
                address = addresses.get(before.node_id)
                yield MovedLeader(topic=topic.name, partition=int(partition.partition_index), was_at=address)

    def _missing(self, name: str, known: _FollowedTopic, now_s: float) -> None:
        if known.missing_since_s is None:
            known.missing_since_s = now_s
        elif now_s - known.missing_since_s >= MISSING_FOR_S:
            self.refusals[name] = LogReplaced(
                f"topic {name}{_with_id(known.topic_id)} was deleted while it was in use",
                f"Restore it, or start with another --log: groups start over there, {_NOT_BEFORE}. {_OR_ELSEWHERE}",
            )


def _changed(name: str, known: _FollowedTopic, topic_id: UUID | None, partitions: int) -> LogMismatch | None:
    if topic_id is not None and known.topic_id is not None and topic_id != known.topic_id:
        was, now = topic_id_text(known.topic_id), topic_id_text(topic_id)
        return LogReplaced(
            f"topic {name} was deleted and recreated while it was in use: its id was {was} and is now {now}, and what"
            " was appended to the old topic is not in the new one",
            f"{MADE_ANEW}. {_OR_ELSEWHERE}",
        )
    if partitions != known.partitions:
        return LogMismatch(
            f"topic {name}{_with_id(known.topic_id)} has {partitions} partitions instead of {known.partitions}: a"
            " group's partition depends on this number, so it must never change. Start with another --log, or"
            " restore the"
            f" topic with {known.partitions} partitions"
        )
    return None


def _with_id(topic_id: UUID | None) -> str:
    return "" if topic_id is None else f" (id {topic_id_text(topic_id)})"
