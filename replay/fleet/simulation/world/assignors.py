"""The leader's assignors: range, roundrobin, sticky and cooperative-sticky, in their simplest form.

Partitions are (topic, number). The sticky assignors leave partitions with their owners; cooperative-sticky leaves a
partition that has to move unassigned while its former owner still has it (KIP-429).
"""

import io
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from kio.schema.consumer_protocol_subscription.v1.data import ConsumerProtocolSubscription, TopicPartition
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32

from muster.events.consumer_protocol import encode_assignment, encode_subscription

Partition = tuple[str, int]
Owned = frozenset[Partition]

COOPERATIVE = "cooperative-sticky"
_write = entity_writer(ConsumerProtocolSubscription)


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the leader sees it; `rank`: the sort key, its instance id or member id."""

    member_id: str
    rank: str
    topics: tuple[str, ...]
    owned: Owned


def assign(name: str, subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> dict[str, Owned]:
    """The partitions of each member."""
    ordered = sorted(subscribers, key=lambda each: each.rank)
    if name == "range":
        return _range(ordered, partitions)
    if name == "roundrobin":
        return _balanced(ordered, partitions, sticky=False)
    assigned = _balanced(ordered, partitions, sticky=True)
    if name != COOPERATIVE:
        return assigned
    owners = {partition: each.member_id for each in ordered for partition in each.owned}
    return {
        member_id: frozenset(each for each in share if owners.get(each, member_id) == member_id)
        for member_id, share in assigned.items()
    }


def _range(ordered: Sequence[Subscriber], partitions: Mapping[str, int]) -> dict[str, Owned]:
    shares: dict[str, set[Partition]] = {each.member_id: set() for each in ordered}
    for topic, count in partitions.items():
        takers = [each.member_id for each in ordered if topic in each.topics]
        for place, member_id in enumerate(takers):
            first, end = count * place // len(takers), count * (place + 1) // len(takers)
            shares[member_id].update((topic, number) for number in range(first, end))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _balanced(ordered: Sequence[Subscriber], partitions: Mapping[str, int], *, sticky: bool) -> dict[str, Owned]:
    """Give each partition to the member with the fewest; if `sticky`, members first keep theirs up to an even share."""
    everything = [(topic, number) for topic, count in partitions.items() for number in range(count)]
    share_max = -(-len(everything) // max(1, len(ordered)))
    shares: dict[str, list[Partition]] = {each.member_id: [] for each in ordered}
    free = set(everything)
    for each in ordered if sticky else ():
        kept = sorted(part for part in each.owned & free if part[0] in each.topics)[:share_max]
        shares[each.member_id] = kept
        free.difference_update(kept)
    for partition in sorted(free):
        takers = [each.member_id for each in ordered if partition[0] in each.topics]
        if takers:
            shares[min(takers, key=lambda member_id: len(shares[member_id]))].append(partition)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def as_assignment(share: Owned) -> bytes:
    return encode_assignment(_by_topic(share))


def as_subscription(topics: Iterable[str], owned: Owned | None) -> bytes:
    """The subscription: v0, or v1 with owned partitions, as cooperative clients send it."""
    if owned is None:
        return encode_subscription(topics)
    buffer = io.BytesIO()
    parts = tuple(
        TopicPartition(topic=TopicName(topic), partitions=tuple(map(i32, numbers)))
        for topic, numbers in _by_topic(owned).items()
    )
    _write(buffer, ConsumerProtocolSubscription(topics=tuple(topics), user_data=None, owned_partitions=parts))
    return b"\x00\x01" + buffer.getvalue()


def _by_topic(share: Owned) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(share):
        by_topic.setdefault(topic, []).append(number)
    return by_topic
