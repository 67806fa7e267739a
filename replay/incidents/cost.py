"""The cost of an incident, as defined for users in docs/incidents.md:

rebalancing_ms         the time in which the group was not Stable, over all its rebalances
partition_ms           partitions times the time in which they had no consumer: in a rebalance with an eager assignor
                       all partitions, with a cooperative one only those that moved. Outside of rebalances:
silent_partition_ms    part of that: from when their member was last heard from until it was removed or came back. A
                       member that was only cut off may have kept working. A process that shares an instance id with a
                       live rival, or is removed by others while it sends heartbeats, is alive. If the log does not show
                       when a member fell silent, neither this nor partition_ms is known
empty_partition_ms     part of that: while the group was empty, until the next assignment; not after an orderly end, nor
                       while the cluster upstream coordinated the group
known_partition_ms     the known part of partition_ms: a lower bound if partition_ms is not known
partitions_moved       partitions that moved from one member to another, in one rebalance or in the two rounds of a
                       cooperative assignor
partitions_moved_back  of these moves, those that were undone: the partition ended up where it was before. Dynamic
                       members are identified by client id and host, unless two members share them
unassigned_partition_ms  part of that: the partitions of subscribed topics that no member was assigned; None if no
                       assignment shows how many partitions a topic has
restarts_absorbed      static members that came back to their place, which avoided the rebalances of a leave and a join;
                       not a process that kept running and joined again after a coordinator outage or on the same
                       connection
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.incident import Cost
from muster.replay.rebalances.moves import decode_assignment
from muster.replay.rebalances.rebalance import MemberRef, Outcome, PartitionMove, Rebalance

_Key = tuple[str, ...]


def cost_of(
    rebalances: Sequence[Rebalance],
    *,
    silent_ms: Iterable[int | None] = (),
    empty_partition_ms: int = 0,
    unassigned_partition_ms: int | None = 0,
    restarts_absorbed: int = 0,
) -> Cost:
    """Return the total cost of these rebalances; a sum is None if one of its parts is not known.

    `silent_ms` (one for each silence), `empty_partition_ms`, `unassigned_partition_ms`: partition time outside of
    rebalances.
    """
    durations = [each.duration_ms for each in rebalances]
    silences = list(silent_ms)
    stopped_ms = [*map(partition_ms, rebalances), *silences, empty_partition_ms, unassigned_partition_ms]
    moved, moved_back = _moves([each for each in rebalances if each.to_generation])
    return Cost(
        rebalances=len(rebalances),
        rebalancing_ms=total(durations),
        partition_ms=total(stopped_ms),
        known_partition_ms=sum(each or 0 for each in stopped_ms),
        partitions_moved=moved,
        partitions_moved_back=moved_back,
        restarts_absorbed=restarts_absorbed,
        silent_partition_ms=total(silences),
        empty_partition_ms=empty_partition_ms,
        unassigned_partition_ms=unassigned_partition_ms,
    )


def partitions_had(member: Member) -> int | None:
    """Return how many partitions the member last had; None if its assignment cannot be decoded."""
    decoded = decode_assignment(member.assignment)
    return None if decoded is None else len(decoded)


def partition_time(partitions: int | None, ms: int) -> int | None:
    """Return partitions times ms; None if the number of partitions is not known, unless no time passed."""
    if not ms:
        return 0
    return None if partitions is None else partitions * ms


def outside(from_ms: int, until_ms: int, rebalances: Iterable[Rebalance]) -> int:
    """Return how much of this time (ms) was outside of these rebalances, which do not overlap."""
    within = (min(until_ms, each.ended_ms) - max(from_ms, each.started_ms) for each in rebalances)
    return max(0, until_ms - from_ms - sum(each for each in within if each > 0))


def empty_ms(emptied: Rebalance, episode: Episode) -> int:
    """Return the partition time from when the group became empty until the next assignment; 0 if not known.

    The group does not count as empty while the cluster upstream coordinates it.
    """
    lost = 0 if emptied.movement is None else emptied.movement.lost
    stable = episode.next_stable(emptied)
    if stable is None:
        return 0
    from_ms, until_ms = emptied.ended_ms, stable.ended_ms
    return lost * max(0, until_ms - from_ms - episode.upstream_ms(from_ms, until_ms))


def total(values: Sequence[int | None]) -> int | None:
    """Return the sum; None if a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def partition_ms(rebalance: Rebalance) -> int | None:
    """Return the cost of one rebalance in partitions times ms; None if it is not known."""
    stopped = _stopped(rebalance)
    return None if stopped is None or rebalance.duration_ms is None else stopped * rebalance.duration_ms


def _stopped(rebalance: Rebalance) -> int | None:
    """Return how many partitions had no consumer in a rebalance; None if it is not known."""
    is_cooperative = _is_cooperative(rebalance)
    if rebalance.outcome is Outcome.SUPERSEDED:  # the next one has the moves
        return None if is_cooperative else rebalance.partitions_before
    movement = rebalance.movement
    if movement is None:
        return None
    return movement.moved + movement.lost + (0 if is_cooperative else movement.stayed)


def _moves(rebalances: Sequence[Rebalance]) -> tuple[int, int] | tuple[None, None]:
    """Return how many partitions moved from one member to another, and how many of these moves were undone.

    None if the moves of a rebalance are not known. Partitions that a cooperative assignor revokes in its first round
    and assigns in its second count as moved.
    """
    if any(each.movement is None and each.outcome is not Outcome.SUPERSEDED for each in rebalances):
        return None, None
    shared = _shared_addresses(rebalances)
    before: dict[tuple[str, int], _Key] = {}
    after: dict[tuple[str, int], _Key | None] = {}
    given_up: dict[tuple[str, int], MemberRef] = {}
    moves: defaultdict[tuple[str, int], int] = defaultdict(int)
    for rebalance, move in _all_moves(rebalances):
        for place in ((of.topic, partition) for of in move.partitions for partition in of.partitions):
            previous = move.previous or given_up.pop(place, None)
            if move.owner is None and previous is not None and _is_cooperative(rebalance):
                given_up[place] = previous
            if previous is not None:
                before.setdefault(place, _key(previous, shared))
            after[place] = None if move.owner is None else _key(move.owner, shared)
            moves[place] += previous is not None and move.owner is not None and previous.identity != move.owner.identity
    back = sum(times for place, times in moves.items() if place in before and before[place] == after[place])
    return sum(moves.values()), back


def _all_moves(rebalances: Iterable[Rebalance]) -> Iterator[tuple[Rebalance, PartitionMove]]:
    return ((each, move) for each in rebalances if each.movement is not None for move in each.movement.moves)


def _is_cooperative(rebalance: Rebalance) -> bool:
    return "cooperative" in (rebalance.protocol_name or "")


def _key(member: MemberRef, shared: frozenset[_Key]) -> _Key:
    address = (member.client_id, member.client_host)
    return member.identity if member.group_instance_id is not None or address in shared else ("at", *address)


def _shared_addresses(rebalances: Sequence[Rebalance]) -> frozenset[_Key]:
    """Return the client ids and hosts that two dynamic members had at once."""
    shared: set[_Key] = set()
    for members in (members for each in rebalances for members in (each.members_before, each.members_after)):
        seen: set[_Key] = set()
        for member in members:
            address = (member.client_id, member.client_host)
            if member.group_instance_id is None and address in seen:
                shared.add(address)
            seen.add(address)
    return frozenset(shared)
