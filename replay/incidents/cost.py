"""The cost of an incident. Definitions, which docs/incidents.md gives to readers:

rebalancing_ms     the time in which the group was not Stable, over its rebalances
partition_ms       partitions times the time in which they had no consumer: with an eager assignor all of them in
                   each rebalance, with a cooperative one only those that moved
partitions_moved   partitions that went from one member to another
"""

from collections.abc import Sequence

from muster.replay.incidents.incident import Cost
from muster.replay.rebalances.rebalance import Rebalance


def cost_of(rebalances: Sequence[Rebalance]) -> Cost:
    """The cost of these rebalances together; None for what is not known of each of them."""
    durations = [each.duration_ms for each in rebalances]
    moves = [None if each.movement is None else each.movement.moved for each in rebalances if each.to_generation]
    partition_ms = [_partition_ms(each) for each in rebalances]
    return Cost(
        rebalances=len(rebalances),
        rebalancing_ms=_sum(durations),
        partition_ms=_sum(partition_ms),
        partitions_moved=_sum(moves),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _partition_ms(rebalance: Rebalance) -> int | None:
    movement = rebalance.movement
    if movement is None or rebalance.duration_ms is None:
        return None
    stopped = movement.moved + movement.lost
    if "cooperative" not in (rebalance.protocol_name or ""):
        stopped += movement.stayed
    return stopped * rebalance.duration_ms
