"""Rebalances that go on with the one before.

The second rounds of cooperative assignors, which take partitions away first and hand them on then; and those of leaders
that ask again at once, as kafka-python's does when it had not noticed its assignment, or had not known how many
partitions a topic has that others had just subscribed.
"""

from collections.abc import Iterable, Set
from typing import Final

from muster.events.causes import Cause
from muster.replay.incidents.windows import ASKED_AGAIN_MS, SECOND_ROUND_MS
from muster.replay.rebalances.rebalance import Movement, PartitionMove, Rebalance
from muster.replay.rebalances.wording import is_of_application, says_something

_ASKED: Final = frozenset({Cause.METADATA_CHANGED, Cause.LEADER_REJOINED})


def goes_on(before: Rebalance, after: Rebalance) -> bool:
    """Whether it is part of what the one before was about, and not what an application asked for in its own words."""
    if is_of_application(after.trigger.client_reason):
        return False
    return is_second_round(before, after) or _is_asked_again(before, after) or _is_given_back(before, after)


def _is_given_back(before: Rebalance, after: Rebalance) -> bool:
    """Whether the leader asked, soon after it had taken topics from all that others still subscribe, to assign them.

    One that has just unsubscribed a topic does not know how many partitions it has.
    """
    if after.trigger.cause not in _ASKED or before.movement is None or after.movement is None:
        return False
    gained = _gained(after.movement)
    is_soon = after.started_ms - (before.started_ms + (before.duration_ms or 0)) <= ASKED_AGAIN_MS
    return is_soon and bool(gained) and gained <= _lost(before.movement)


def _is_asked_again(before: Rebalance, after: Rebalance) -> bool:
    """Whether the leader asked for it as soon as the one before had ended, without a reason.

    Topics that have partitions now and had none before are those that it had not known when it assigned.
    """
    if after.trigger.cause is not Cause.LEADER_REJOINED or says_something(after.trigger.client_reason):
        return False
    if after.movement is None:
        return False
    ended_ms = before.started_ms + (before.duration_ms or 0)
    return after.started_ms - ended_ms <= ASKED_AGAIN_MS and not _grew_or_shrank(after.movement)


def _grew_or_shrank(movement: Movement) -> bool:
    """Whether a topic has other partitions than before; they are numbered from 0."""
    return movement.lost > 0 or _has_more(_gained(movement))


def _has_more(gained: Set[tuple[str, int]]) -> bool:
    """Whether a topic that had partitions has more, if these are new; else it is all new."""
    return any((topic, 0) not in gained for topic, _ in gained)


def _gained(movement: Movement) -> Set[tuple[str, int]]:
    """The partitions that nobody had before."""
    return _partitions(move for move in movement.moves if move.previous is None)


def _lost(movement: Movement) -> Set[tuple[str, int]]:
    """The partitions that nobody has afterwards."""
    return _partitions(move for move in movement.moves if move.owner is None)


def _partitions(moves: Iterable[PartitionMove]) -> Set[tuple[str, int]]:
    return {(of.topic, partition) for move in moves for of in move.partitions for partition in of.partitions}


def is_second_round(before: Rebalance, after: Rebalance) -> bool:
    """Whether it hands on what the one before took away: it begins soon after its end, however long that one was.

    Partitions that topics did not have before are no part of that.
    """
    if not is_soon_after(before.started_ms + (before.duration_ms or 0), after):
        return False
    if before.movement is None or after.movement is None:
        return True
    return not _has_more(_gained(after.movement) - _lost(before.movement))


def is_soon_after(at_ms: int, rebalance: Rebalance) -> bool:
    """Whether a cooperative assignor's first round may have ended at that moment."""
    return "cooperative" in (rebalance.protocol_name or "") and rebalance.started_ms - at_ms <= SECOND_ROUND_MS
