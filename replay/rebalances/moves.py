"""The owners of partitions, and the partitions that a rebalance moved.

Members are compared by `MemberRef.identity`, which survives a restart, so no partition moves when a static member
rejoins with a new member id. Only protocol type 'consumer' has partitions; an assignment that cannot be decoded is
reported and counts as empty.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from muster.events.state import Group, Member
from muster.replay.rebalances.rebalance import MemberRef, Movement, PartitionMove, TopicPartitions, ref

TopicPartition = tuple[str, int]


class GroupAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The assignment of a whole group at one time."""

    owners: dict[TopicPartition, MemberRef]
    undecodable: tuple[MemberRef, ...]


NOBODY = GroupAssignment(owners={}, undecodable=())


def ownership(group: Group) -> GroupAssignment | None:
    """Return the owners of all partitions; None if the protocol type's assignments cannot be decoded."""
    if group.image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    owners: dict[TopicPartition, MemberRef] = {}
    undecodable = []
    for member in group.members.values():
        decoded = assigned_partitions(group.assignment_of(member))
        if decoded is None:
            undecodable.append(ref(member))
            continue
        owners.update(dict.fromkeys(decoded, ref(member)))
    return GroupAssignment(owners=owners, undecodable=tuple(undecodable))


def handed_over(before: GroupAssignment, partitions: Iterable[TopicPartition], owner: MemberRef) -> GroupAssignment:
    """Return the ownership with these partitions moved to the owner."""
    return msgspec.structs.replace(before, owners=before.owners | dict.fromkeys(partitions, owner))


def decode_assignment(assignment: bytes) -> frozenset[TopicPartition] | None:
    """Return the partitions in an assignment, none for an empty one; None if it cannot be decoded."""
    if not assignment:
        return frozenset()
    decoded = assigned_partitions(assignment)
    return None if decoded is None else frozenset(decoded)


def partitions_of(group: Group, member: Member) -> tuple[TopicPartitions, ...] | None:
    """Return the member's current partitions by topic; None if they cannot be decoded."""
    decoded = decode_assignment(group.assignment_of(member))
    return None if decoded is None else by_topic(decoded)


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Group partitions by topic, sorted by topic and number."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in topics.items())


def movement(before: GroupAssignment, after: GroupAssignment) -> Movement:
    """Return the moves from one assignment to the next."""
    journeys: defaultdict[tuple[tuple[str, str] | None, tuple[str, str] | None], list[TopicPartition]]
    journeys = defaultdict(list)
    stayed = 0
    for partition in before.owners.keys() | after.owners.keys():
        previous, owner = before.owners.get(partition), after.owners.get(partition)
        if previous == owner:  # true of most partitions; else it may be the same member under another member id
            stayed += 1
            continue
        origin, destination = _identity(previous), _identity(owner)
        if origin == destination:
            stayed += 1
        else:
            journeys[origin, destination].append(partition)
    moves = [_move(before, after, partitions) for partitions in journeys.values()]
    moves.sort(key=lambda move: (_identity(move.previous) or ("",), _identity(move.owner) or ("",)))
    return Movement(
        moves=tuple(moves),
        moved=sum(move.count for move in moves if move.previous and move.owner),
        gained=sum(move.count for move in moves if move.previous is None),
        lost=sum(move.count for move in moves if move.owner is None),
        stayed=stayed,
        undecodable=_distinct((*before.undecodable, *after.undecodable)),
    )


def _identity(member: MemberRef | None) -> tuple[str, str] | None:
    return member.identity if member is not None else None


def _move(before: GroupAssignment, after: GroupAssignment, partitions: list[TopicPartition]) -> PartitionMove:
    return PartitionMove(
        previous=before.owners.get(partitions[0]),
        owner=after.owners.get(partitions[0]),
        partitions=by_topic(partitions),
        count=len(partitions),
    )


def _distinct(members: Iterable[MemberRef]) -> tuple[MemberRef, ...]:
    return tuple({member.identity: member for member in members}.values())
