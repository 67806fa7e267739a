"""The partitions of the event log and their owners: the messages of the ownership group, and its leader's decision.

Pure. Each member tells in its JoinGroup who it is and what it owns (`Candidate`); the leader shares the partitions out
and sends all members the same `Sharing` in its SyncGroup.

A partition moves in two steps, as in cooperative rebalancing (KIP-429). First its owner is told that it is no more to
have it, and nobody else is; when it has let go it joins again without it, and then another one is told. So the next
owner finds the former one's last word in the log, and nobody waits for anybody's lease to be over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from muster.coordinator.cluster import Node

LEVEL: Final = 1
"""The level of these messages. Whoever leads decides for all, so a member of another level is not understood."""


class NotUnderstood(Exception):
    """Another member's message cannot be read: it is none of Muster's."""


class CannotShare(NotUnderstood):
    """It is another process's, with which this one can share no partitions."""


class AnotherLevel(CannotShare):
    """It is of another level: the other process is of another version."""


class AnotherUpstream(CannotShare):
    """The other process is in front of another cluster, whose groups of the same names are others."""


class SeenGone(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process, by its member id, as the process `by` has seen it; times by that one's wall clock."""

    member_id: str
    by: str
    link_lost_ms: int
    """When the connection to its address broke."""
    refused_ms: int
    """When its address refused the next one."""
    removed: bool = False
    """Whether `by` has removed it from the ownership group."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A member as it presents itself. `owned`: the epoch of its claim, by partition."""

    level: int = LEVEL
    node: Node
    owned: Mapping[int, int]
    leaves: bool = False
    """Whether it is about to stop, and wants nothing; it is no node for clients any more."""
    is_edge: bool = False
    """Whether it only forwards requests to the others: it is to know who owns what, and to own nothing."""
    joins: int = 0
    """Counted up with each join: to Kafka a follower that tells the same as before asks for nothing new."""
    process: str = ""
    """Its name as the owner of partitions, `host:pid`; empty: a version that did not tell."""
    gone: tuple[SeenGone, ...] = ()
    """The ends of others that it has seen, and no decision has told of yet."""
    upstream: str = ""
    """The id of the cluster in front of which it is; empty: standalone, or a version that did not tell."""


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A process's place in the ownership group: its ids there. `process`: as of a candidate."""

    member_id: str
    group_instance_id: str
    process: str = ""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that shares the partitions, as the others know it. Started again it has another member id."""

    node: Node
    seat: Seat


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's decision. A partition without an owner is on its way to one."""

    level: int = LEVEL
    nodes: Sequence[Node]
    owners: Mapping[int, int]
    """The owner's node id, by partition."""
    seats: Mapping[int, Seat] = {}
    """Each process's ids in the group, by node id."""
    not_understood: tuple[str, ...] = ()
    """The member ids of those that have no seat since what they tell is not understood."""
    gone: tuple[SeenGone, ...] = ()
    """The ends of processes that members have seen, one for each."""
    upstream: str = ""
    """That of the leader, as of a candidate."""

    def owned_by(self, node_id: int) -> frozenset[int]:
        """The partitions that this node is to own."""
        return frozenset(number for number, owner in self.owners.items() if owner == node_id)

    def peers_of(self, node_id: int) -> Iterator[Peer]:
        """The other processes, seen from this node."""
        for node in self.nodes:
            if node.node_id != node_id and node.node_id in self.seats:
                yield Peer(node=node, seat=self.seats[node.node_id])


M = TypeVar("M", Candidate, Sharing)

NOTHING_SHARED: Final = Sharing(nodes=(), owners={})


def share(partitions: int, candidates: Sequence[Candidate]) -> Sharing:
    """Share the partitions out: as evenly as can be, and no more of them moved than that needs.

    A partition that two say they own is the one's with the newer claim; the other's claim is worth nothing any more.
    """
    staying = sorted(
        (each for each in candidates if not (each.leaves or each.is_edge)), key=lambda each: each.node.node_id
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
    """How many partitions each is to own. One more than others has who owns most already."""
    if not node_ids:
        return {}
    most_first = sorted(node_ids, key=lambda node_id: -sum(owner == node_id for owner in now.values()))
    least, over = divmod(partitions, len(node_ids))
    return {node_id: least + (place < over) for place, node_id in enumerate(most_first)}


def seen_by_all(candidates: Iterable[Candidate]) -> tuple[SeenGone, ...]:
    """Gather what the members tell of the ends of others: of each the best."""
    best: dict[str, SeenGone] = {}
    for seen in (each for candidate in candidates for each in candidate.gone):
        best[seen.member_id] = better(best.get(seen.member_id), seen)
    return tuple(best.values())


def better(one: SeenGone | None, other: SeenGone) -> SeenGone:
    """The one of two that tells more of a process's end: who has removed it, else who saw it first."""
    if one is None or (other.removed, -other.refused_ms) > (one.removed, -one.refused_ms):
        return other
    return one


def refuse_another_upstream(message: Candidate | Sharing, upstream: str) -> None:
    """Raise AnotherUpstream if it comes from in front of another cluster than this one, as far as both are known."""
    if message.upstream and upstream and message.upstream != upstream:
        raise AnotherUpstream(
            f"another process of this event log is in front of cluster {message.upstream}, and this one of {upstream}:"
            " give them the same cluster as --upstream, or each a --log of its own"
        )


def encode(message: Candidate | Sharing) -> bytes:
    """Encode a message for the group's metadata, or its assignment: JSON, so that Kafka's tools show it."""
    return msgspec.json.encode(message)


def candidate_of(metadata: bytes, group_instance_id: str | None) -> Candidate:
    """Decode what a member tells. Raises NotUnderstood, also of a member that says it is another node than it is."""
    candidate = _decoded(metadata, Candidate)
    if (group_instance_id or "").rpartition("-")[2] != str(candidate.node.node_id):
        raise NotUnderstood(f"it says that it is node {candidate.node.node_id}, and has not its group.instance.id")
    return candidate


def sharing_of(assignment: bytes) -> Sharing:
    """Decode what the leader has decided. Raises NotUnderstood."""
    return _decoded(assignment, Sharing)


def _decoded(encoded: bytes, as_: type[M]) -> M:
    try:
        level = msgspec.json.decode(encoded, type=_OfALevel).level
        if level == LEVEL:
            return msgspec.json.decode(encoded, type=as_)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NotUnderstood(f"no message of Muster's: {error}") from error
    raise AnotherLevel(f"a message of level {level}, and this version of Muster knows level {LEVEL}")


class _OfALevel(msgspec.Struct, frozen=True):
    level: int
