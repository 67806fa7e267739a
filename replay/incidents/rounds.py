"""Rebalances that go on with the one before.

The second rounds of cooperative assignors, which take partitions away first and hand them on then; and those of leaders
that ask again at once, as kafka-python's does when it had not noticed its assignment, or had not known how many
partitions a topic has that others had just subscribed.
"""

from collections import defaultdict

from muster.events.causes import Cause
from muster.replay.incidents.windows import ASKED_AGAIN_MS, SECOND_ROUND_MS
from muster.replay.rebalances.rebalance import Movement, Rebalance


def goes_on(before: Rebalance, after: Rebalance) -> bool:
    """Whether it is part of what the one before was about."""
    return is_second_round(before, after) or _is_asked_again(before, after)


def _is_asked_again(before: Rebalance, after: Rebalance) -> bool:
    """Whether the leader asked for it as soon as the one before had ended, without a reason.

    Topics that have partitions now and had none before are those that it had not known when it assigned.
    """
    if after.trigger.cause is not Cause.LEADER_REJOINED or after.trigger.client_reason or after.movement is None:
        return False
    ended_ms = before.started_ms + (before.duration_ms or 0)
    return after.started_ms - ended_ms <= ASKED_AGAIN_MS and not _grew_or_shrank(after.movement)


def _grew_or_shrank(movement: Movement) -> bool:
    """Whether a topic has other partitions than before; they are numbered from 0."""
    gained: defaultdict[str, set[int]] = defaultdict(set)
    for of in (of for move in movement.moves if move.previous is None for of in move.partitions):
        gained[of.topic].update(of.partitions)
    return movement.lost > 0 or any(0 not in partitions for partitions in gained.values())


def is_second_round(before: Rebalance, after: Rebalance) -> bool:
    """Whether it hands on what the one before took away: it begins soon after its end, however long that one was."""
    return is_soon_after(before.started_ms + (before.duration_ms or 0), after)


def is_soon_after(at_ms: int, rebalance: Rebalance) -> bool:
    """Whether a cooperative assignor's first round may have ended at that moment."""
    return "cooperative" in (rebalance.protocol_name or "") and rebalance.started_ms - at_ms <= SECOND_ROUND_MS
