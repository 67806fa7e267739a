"""Partitions of subscribed topics that are assigned to nobody in a Stable group, and the rebalance that helps.

Kafka leaves both to the clients. The leader has to notice that a topic has grown; a static leader that was restarted
may not know that it leads (KIP-345), and then nobody does. A static member that comes back with other topics keeps the
assignment that it had. `members.unassigned.rebalance.delay.ms` has the group rebalance for them.

`RebalanceUnassigned` names topics with the numbers of their partitions, as the cluster has them; everything else is
looked up in the group. The topics that the group was asked to rebalance for are kept in the log, until they are
assigned: if the leader does not assign them even so, it is not asked again before a topic has another number.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from muster.coordinator.group.commands import RebalanceUnassigned
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from muster.events.state import Group, GroupState, TopicSize


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that active members of a Stable group subscribe, and the partitions that they are assigned, by topic.

    `kept`: the topics of which a member has partitions that it does not subscribe.
    """

    subscribed: frozenset[str]
    assigned: Mapping[str, frozenset[int]]
    kept: frozenset[str]

    def unassigned(self, topic: str, partitions: int) -> range | frozenset[int]:
        """The partitions of a topic, which has so many, that are assigned to nobody."""
        there = range(partitions)
        if topic not in self.subscribed or not there:
            return range(0)
        return frozenset(there).difference(self.assigned.get(topic, ()))

    def needs_rebalance(self, topic: str, partitions: int) -> bool:
        """Whether a rebalance would give the topic's partitions to members that subscribe it."""
        return topic in self.kept or bool(self.unassigned(topic, partitions))

    @property
    def unassigned_topics(self) -> frozenset[str]:
        """The topics that are subscribed and of which no partition is assigned."""
        return self.subscribed - self.assigned.keys()


def shares_of(group: Group) -> Shares | None:
    """The shares of a group that is Stable; None where they are not known, as a member's bytes cannot be read."""
    image = group.image
    if image.state is not GroupState.STABLE or image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    subscribed: set[str] = set()
    kept: set[str] = set()
    assigned: defaultdict[str, set[int]] = defaultdict(set)
    for member in group.members.values():
        if member.is_inactive:
            continue
        topics = subscribed_topics(member.metadata_for(image.protocol_name))
        share = assigned_partitions(group.assignment_of(member))
        if topics is None or share is None:
            return None
        subscribed |= topics
        for topic, number in share:
            assigned[topic].add(number)
            if topic not in topics:
                kept.add(topic)
    return Shares(
        subscribed=frozenset(subscribed),
        assigned={topic: frozenset(numbers) for topic, numbers in assigned.items()},
        kept=frozenset(kept),
    )


def may_rebalance(group: Group) -> bool:
    """Whether partitions that are assigned to nobody are a fault of this group: none are left so on purpose."""
    at_rest = group.image.state is GroupState.STABLE and not group.image.departures_gathered
    return at_rest and group.config.coordinator is None and bool(group.members)


def is_news(group: Group, topics: Iterable[TopicSize], found: Shares) -> bool:
    """Whether `RebalanceUnassigned` with these topics would change something."""
    return _asked_after(group, topics, found) != group.config.rebalanced_for


def rebalance_unassigned(turn: Turn, command: RebalanceUnassigned) -> None:
    """Rebalance once for the topics that need it; forget those that were asked for and do not need it any more."""
    group = turn.group
    found = shares_of(group) if may_rebalance(group) and group.config.unassigned_rebalance_delay_ms else None
    if found is None:
        return
    before, after = group.config.rebalanced_for, _asked_after(group, command.topics, found)
    if after == before:
        return
    is_asked = bool({*after} - {*before})
    turn.caused_by_deadline(Cause.PARTITIONS_UNASSIGNED if is_asked else Cause.PARTITIONS_ASSIGNED, turn.now_ms)
    turn.record_config(msgspec.structs.replace(group.config, rebalanced_for=after))
    if is_asked:
        prepare_rebalance(turn)


def _asked_after(group: Group, topics: Iterable[TopicSize], found: Shares) -> tuple[TopicSize, ...]:
    asked = {each.topic: each for each in group.config.rebalanced_for}
    for each in topics:
        if found.needs_rebalance(each.topic, each.partitions):
            asked[each.topic] = each
        else:
            asked.pop(each.topic, None)
    return tuple(asked[topic] for topic in sorted(asked))
