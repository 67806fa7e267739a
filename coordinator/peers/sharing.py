"""The partitions of the event log and their owners: the messages of the ownership group, and its leader's decision.

Pure. Each member describes itself and the partitions it owns in its JoinGroup (`Candidate`); the leader assigns the
partitions and sends the same `Sharing` to all members in its SyncGroup.

A partition moves in two steps, as in cooperative rebalancing (KIP-429). The leader first assigns it to no process,
which revokes it from its owner. The owner releases the partition and rejoins, and in that second rebalance the leader
assigns it to another process. So the next owner finds the former one's CoordinatorStopped in the log, and need not wait
for its lease to end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from muster.coordinator.cluster import Node

LEVEL: Final = 1
"""Version of these messages. The leader decides for all, so members with another level are not understood."""


class NotUnderstood(Exception):
    """Another member's message cannot be read: it is not one of Muster's."""


class CannotShare(NotUnderstood):
    """The message is from a Muster process with which this one cannot share partitions."""


class AnotherLevel(CannotShare):
    """The message has another level, because the other process has another version."""


class AnotherUpstream(CannotShare):
    """The other process is in front of another cluster, where the same group ids belong to other groups."""


class ObservedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the process `member_id`, as the process `by` observed it; times are by the observer's wall clock."""

    member_id: str
    by: str
    link_lost_ms: int
    """When the connection to its address broke."""
    refused_ms: int
    """When its address refused the next connection."""
    removed: bool = False
    """True if `by` has removed it from the ownership group."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A member's description of itself. `owned`: the epoch of its claim, by partition."""

    level: int = LEVEL
    node: Node
    owned: Mapping[int, int]
    leaves: bool = False
    """True if it is about to stop and wants no partitions; clients no longer see it as a node."""
    is_frontend: bool = msgspec.field(default=False, name="is_edge")
    """True if it only forwards requests to the others: it needs to know the owners, but owns nothing."""
    joins: int = 0
    """Incremented with each join: Kafka triggers no rebalance if a follower rejoins with unchanged metadata."""
    process: str = ""
    """Its name as an owner, `host:pid`; empty: a version that does not send it."""
    ended: tuple[ObservedEnd, ...] = msgspec.field(default=(), name="gone")
    """Ends of other processes that it observed and that no decision has included yet."""
    upstream: str = ""
    """The id of the cluster that it is in front of; empty: standalone, or a version that does not send it."""


class MemberIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A process's ids in the ownership group. `process`: see Candidate."""

    member_id: str
    group_instance_id: str
    process: str = ""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that shares the partitions, as known to the others. After a restart it has another member id."""

    node: Node
    member: MemberIdentity


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's decision. A partition without an owner is moving."""

    level: int = LEVEL
    nodes: Sequence[Node]
    owners: Mapping[int, int]
    """The owner's node id, by partition."""
    members: Mapping[int, MemberIdentity] = msgspec.field(default={}, name="seats")
    """Each process's ids in the group, by node id."""
    not_understood: tuple[str, ...] = ()
    """Member ids of processes that are not in `members`, because their metadata is not understood."""
    ended: tuple[ObservedEnd, ...] = msgspec.field(default=(), name="gone")
    """The ends of processes that members observed, one for each process."""
    upstream: str = ""
    """The leader's cluster id; see Candidate."""

    def owned_by(self, node_id: int) -> frozenset[int]:
        """The partitions assigned to this node."""
        return frozenset(number for number, owner in self.owners.items() if owner == node_id)

    def peers_of(self, node_id: int) -> Iterator[Peer]:
        """The other processes, seen from this node."""
        for node in self.nodes:
            if node.node_id != node_id and node.node_id in self.members:
                yield Peer(node=node, member=self.members[node.node_id])


M = TypeVar("M", Candidate, Sharing)

NOTHING_SHARED: Final = Sharing(nodes=(), owners={})


def share(partitions: int, candidates: Sequence[Candidate]) -> Sharing:
    """Assign the partitions as evenly as possible, while moving as few of them as possible.

    If two members report the same partition, the newer claim counts; the other one is no longer valid.
    """
    staying = sorted(
        (each for each in candidates if not (each.leaves or each.is_frontend)), key=lambda each: each.node.node_id
    )
    now = _owners_now(partitions, candidates)
    quotas = _quotas(partitions, [each.node.node_id for each in staying], now)
    has = dict.fromkeys(quotas, 0)
    owners: dict[int, int] = {}

    def give(number: int, owner: int) -> None:
        owners[number] = owner
        has[owner] += 1

    for number, owner in sorted(now.items()):
        if has.get(owner, 0) < quotas.get(owner, 0):
            give(number, owner)
    for number in range(partitions) if staying else ():
        if number not in now:
            give(number, next(each for each in quotas if has[each] < quotas[each]))
    return Sharing(nodes=[each.node for each in staying], owners=owners)


def _owners_now(partitions: int, candidates: Sequence[Candidate]) -> dict[int, int]:
    claims = [
        (epoch, each.node.node_id, number)
        for each in candidates
        for number, epoch in each.owned.items()
        if number < partitions
    ]
    return {number: node_id for _, node_id, number in sorted(claims)}


def _quotas(partitions: int, node_ids: Sequence[int], now: Mapping[int, int]) -> dict[int, int]:
    """Return how many partitions each node gets. The remainder goes to the nodes that already own the most."""
    if not node_ids:
        return {}
    most_first = sorted(node_ids, key=lambda node_id: -sum(owner == node_id for owner in now.values()))
    least, over = divmod(partitions, len(node_ids))
    return {node_id: least + (place < over) for place, node_id in enumerate(most_first)}


def seen_by_all(candidates: Iterable[Candidate]) -> tuple[ObservedEnd, ...]:
    """Combine what the members report about the ends of others: the best report for each process."""
    best: dict[str, ObservedEnd] = {}
    for seen in (each for candidate in candidates for each in candidate.ended):
        best[seen.member_id] = better(best.get(seen.member_id), seen)
    return tuple(best.values())


def better(one: ObservedEnd | None, other: ObservedEnd) -> ObservedEnd:
    """Return the better of two reports of a process's end: the remover's, else the earlier one."""
    if one is None or (other.removed, -other.refused_ms) > (one.removed, -one.refused_ms):
        return other
    return one


def refuse_another_upstream(message: Candidate | Sharing, upstream: str) -> None:
    """Raise AnotherUpstream if the sender is in front of another cluster, as far as both clusters are known."""
    if message.upstream and upstream and message.upstream != upstream:
        raise AnotherUpstream(
            f"another process of this event log is in front of cluster {message.upstream}, this one in front of "
            f"{upstream}: give both the same --upstream, or each its own --log"
        )


def encode(message: Candidate | Sharing) -> bytes:
    """Encode a message for the group's metadata or assignment: as JSON, so that Kafka's tools show it."""
    return msgspec.json.encode(message)


def candidate_of(metadata: bytes, group_instance_id: str | None) -> Candidate:
    """Decode a member's metadata. Raises NotUnderstood, also if it claims a node id that is not its own."""
    candidate = _decoded(metadata, Candidate)
    if (group_instance_id or "").rpartition("-")[2] != str(candidate.node.node_id):
        raise NotUnderstood(f"it claims to be node {candidate.node.node_id}, but has another group.instance.id")
    return candidate


def sharing_of(assignment: bytes) -> Sharing:
    """Decode the leader's decision. Raises NotUnderstood."""
    return _decoded(assignment, Sharing)


def _decoded(encoded: bytes, as_: type[M]) -> M:
    try:
        level = msgspec.json.decode(encoded, type=_OfALevel).level
        if level == LEVEL:
            return msgspec.json.decode(encoded, type=as_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NotUnderstood(f"not a message of Muster: {error}") from error
    raise AnotherLevel(f"a message of level {level}; this version of Muster knows level {LEVEL}")


class _OfALevel(msgspec.Struct, frozen=True):
    level: int
