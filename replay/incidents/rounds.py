"""Rebalances that continue the previous one.

Second rounds of cooperative assignors, which first revoke partitions and then assign them; and rebalances that a leader
requests immediately after another. kafka-python's leader does that if it missed its assignment, or if it did not know
yet how many partitions a topic has that other members had just subscribed to.
"""

from collections.abc import Iterable, Set
from typing import Final

from muster.events.causes import Cause
from muster.replay.incidents.windows import ASKED_AGAIN_MS, SECOND_ROUND_MS
from muster.replay.rebalances.rebalance import Movement, PartitionMove, Rebalance
from muster.replay.rebalances.wording import is_of_application, says_something

_ASKED: Final = frozenset({Cause.METADATA_CHANGED, Cause.LEADER_REJOINED})


def goes_on(before: Rebalance, after: Rebalance) -> bool:
    """Return whether the rebalance continues the previous one, and was not requested by an application (KIP-568)."""
    if is_of_application(after.trigger.client_reason):
        return False
    return is_second_round(before, after) or _is_asked_again(before, after) or _is_given_back(before, after)


def _is_given_back(before: Rebalance, after: Rebalance) -> bool:
    """Return whether the leader soon asked to assign topics that it had left unassigned but others still subscribe to.

    A leader that has just unsubscribed from a topic does not know how many partitions it has.
    """
    if after.trigger.cause not in _ASKED or before.movement is None or after.movement is None:
        return False
    gained = _gained(after.movement)
    is_soon = after.started_ms - (before.started_ms + (before.duration_ms or 0)) <= ASKED_AGAIN_MS
    return is_soon and bool(gained) and gained <= _lost(before.movement)


def _is_asked_again(before: Rebalance, after: Rebalance) -> bool:
    """Return whether the leader asked for it right after the previous one had ended, without a reason.

    If a topic has assigned partitions now and had none before, the leader had not known that topic.
    """
    if after.trigger.cause is not Cause.LEADER_REJOINED or says_something(after.trigger.client_reason):
        return False
    if after.movement is None:
        return False
    ended_ms = before.started_ms + (before.duration_ms or 0)
    return after.started_ms - ended_ms <= ASKED_AGAIN_MS and not _grew_or_shrank(after.movement)


def _grew_or_shrank(movement: Movement) -> bool:
    """Return whether a topic has more or fewer assigned partitions than before."""
    return movement.lost > 0 or _has_more(_gained(movement))


def _has_more(gained: Set[tuple[str, int]]) -> bool:
    """Return whether an existing topic gained partitions. A topic is not new if it gained others but not partition
    0.
    """
    return any((topic, 0) not in gained for topic, _ in gained)


def _gained(movement: Movement) -> Set[tuple[str, int]]:
    """Return the partitions that had no owner before."""
    return _partitions(move for move in movement.moves if move.previous is None)


def _lost(movement: Movement) -> Set[tuple[str, int]]:
    """Return the partitions that lost their owner."""
    return _partitions(move for move in movement.moves if move.owner is None)


def _partitions(moves: Iterable[PartitionMove]) -> Set[tuple[str, int]]:
    return {(of.topic, partition) for move in moves for of in move.partitions for partition in of.partitions}


def is_second_round(before: Rebalance, after: Rebalance) -> bool:
    """Return whether the rebalance begins soon after the previous one's end and assigns what that one revoked.

    New partitions of a topic are not part of a second round.
    """
    if not is_soon_after(before.started_ms + (before.duration_ms or 0), after):
        return False
    if before.movement is None or after.movement is None:
        return True
    return not _has_more(_gained(after.movement) - _lost(before.movement))


def is_soon_after(at_ms: int, rebalance: Rebalance) -> bool:
    """Return whether this may be the second round of a cooperative assignor whose first round ended at this time."""
    return "cooperative" in (rebalance.protocol_name or "") and rebalance.started_ms - at_ms <= SECOND_ROUND_MS
