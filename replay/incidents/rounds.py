"""The second rounds of cooperative assignors, which take partitions away first and hand them on then."""

from muster.replay.incidents.windows import SECOND_ROUND_MS
from muster.replay.rebalances.rebalance import Rebalance


def is_second_round(before: Rebalance, after: Rebalance) -> bool:
    """Whether it hands on what the one before took away: it begins soon after its end, however long that one was."""
    return is_soon_after(before.started_ms + (before.duration_ms or 0), after)


def is_soon_after(at_ms: int, rebalance: Rebalance) -> bool:
    """Whether a cooperative assignor's first round may have ended at that moment."""
    return "cooperative" in (rebalance.protocol_name or "") and rebalance.started_ms - at_ms <= SECOND_ROUND_MS
