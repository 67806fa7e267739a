"""Partitions of subscribed topics that a Stable group assigns to no member, and the rebalance for them.

Kafka leaves both to the clients. The leader has to notice that a topic has grown, but a static leader that was
restarted may not know that it leads (KIP-345), and then no member notices. A static member that rejoins with other
topics keeps its old assignment. With `members.unassigned.rebalance.delay.ms` Muster makes the group rebalance in both
cases.

`RebalanceUnassigned` names topics with their partition counts in the cluster; everything else is looked up in the
group. The topics that the group was asked to rebalance for are kept in the log until they are assigned: if the leader
still does not assign them, it is not asked again until a topic's number of partitions changes.

Only the size of a request limits how much a member lists. A group with more than SHARES_MAX topics and partitions, or
with a member that has more than BYTES_MAX of them, is left alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from muster.coordinator.group.commands import RebalanceUnassigned
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from muster.events.state import Group, GroupState, Member, TopicSize
from muster.events.steps import Steps, finished

ASKED_MAX: Final = 1_000
"""The limit of topics that a group was asked to rebalance for and has not assigned yet: they are stored in one event.
"""
SHARES_MAX: Final = 200_000
"""The limit of different topics subscribed to in a group, plus the partitions assigned: about 20 MB."""
BYTES_MAX: Final = 512 * 1_024
"""The size limit of a member's subscription and of its assignment: they are decoded in one go, in about 50 ms."""


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The topics and partitions that the active members of a Stable group subscribe to and are assigned.

    `assigned`: partitions by topic; usually a range from 0, without gaps. `kept`: the topics of which a member has
    partitions although it does not subscribe to them.
    """

    subscribed: frozenset[str]
    assigned: Mapping[str, range | frozenset[int]]
    kept: frozenset[str]

    def unassigned(self, topic: str, partitions: int) -> range | frozenset[int]:
        """Return the topic's partitions that are assigned to no member; `partitions`: how many the topic has."""
        if not self._lacks(topic, partitions):
            return range(0)
        assigned = self.assigned.get(topic, range(0))
        if isinstance(assigned, range):
            return range(len(assigned), partitions)
        return frozenset(range(partitions)).difference(assigned)

    def needs_rebalance(self, topic: str, partitions: int) -> bool:
        """Return whether a rebalance would give the topic's partitions to members that subscribe to it."""
        return topic in self.kept or self._lacks(topic, partitions)

    def _lacks(self, topic: str, partitions: int) -> bool:
        if topic not in self.subscribed:
            return False
        assigned = self.assigned.get(topic, range(0))
        if isinstance(assigned, range):
            return len(assigned) < partitions
        return not assigned.issuperset(range(partitions))

    @property
    def unassigned_topics(self) -> frozenset[str]:
        """Topics that members subscribe to, but of which no partition is assigned."""
        return self.subscribed - self.assigned.keys()


def shares_of(group: Group) -> Shares | None:
    """Return the shares of a group that is Stable; None if they are unknown, because a member's bytes cannot be
    read.
    """
    return finished(read_shares(group))


def read_shares(group: Group) -> Steps[Shares | None]:
    """Like `shares_of`, but in steps, one per member; the group must not change in the meantime."""
    image = group.image
    if image.state is not GroupState.STABLE or image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    subscribed: set[str] = set()
    kept: set[str] = set()
    assigned: defaultdict[str, set[int]] = defaultdict(set)
    partitions = 0
    for member in group.members.values():
        if member.is_inactive:
            continue
        read = _read_member(group, member)
        if read is None:
            return None
        topics, share = read
        subscribed |= topics
        partitions += len(share)
        if len(subscribed) + partitions > SHARES_MAX:
            return None
        for topic, number in share:
            assigned[topic].add(number)
            if topic not in topics:
                kept.add(topic)
        yield 1 + len(topics) + len(share)
    return Shares(
        subscribed=frozenset(subscribed),
        assigned={topic: _compact(numbers) for topic, numbers in assigned.items()},
        kept=frozenset(kept),
    )


def _read_member(group: Group, member: Member) -> tuple[frozenset[str], tuple[tuple[str, int], ...]] | None:
    metadata, assignment = member.metadata_for(group.image.protocol_name), group.assignment_of(member)
    if max(len(metadata), len(assignment)) > BYTES_MAX:
        return None
    topics, share = subscribed_topics(metadata), assigned_partitions(assignment)
    return None if topics is None or share is None else (topics, share)


def _compact(numbers: set[int]) -> range | frozenset[int]:
    """Store partition numbers compactly: a set of 200 takes 8 kB, and there are many groups."""
    is_whole = min(numbers) == 0 and max(numbers) == len(numbers) - 1
    return range(len(numbers)) if is_whole else frozenset(numbers)


def may_rebalance(group: Group) -> bool:
    """Return whether the group should have no unassigned partitions now, so that a rebalance for them makes sense."""
    at_rest = group.image.state is GroupState.STABLE and not group.image.departures_gathered
    return at_rest and group.config.coordinator is None and bool(group.members)


def is_news(group: Group, topics: Iterable[TopicSize], found: Shares) -> bool:
    """Return whether `RebalanceUnassigned` with these topics would change something."""
    return _asked_after(group, topics, found) != group.config.rebalanced_for


def rebalance_unassigned(turn: Turn, command: RebalanceUnassigned) -> None:
    """Rebalance once for the topics that need it; forget earlier ones that no longer need it."""
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
    lacking: list[TopicSize] = []
    for each in topics:
        if found.needs_rebalance(each.topic, each.partitions):
            lacking.append(each)
        else:
            asked.pop(each.topic, None)
    for each in lacking:
        if each.topic in asked or len(asked) < ASKED_MAX:
            asked[each.topic] = each
    return tuple(asked[topic] for topic in sorted(asked))
