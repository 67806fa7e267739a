"""The scenarios, by what they are about; importing this registers them.

losses.py           crashes, restarts, loops of them, poll timeouts, network cuts, duels
replacing.py        deployments, scaling, start and shutdown
slowness.py         slow members, slow leaders, ids that are never used
changes.py          subscriptions, partitions, assignors, rebalances that were asked for
coordinators.py     outages and pauses of the coordinator, capacity
administration.py   removals, deletion, expiry, what was planned; a log with a hole
compounds.py        two things at a time
near_misses.py      what is nearly another kind
quiet.py            nothing, or nothing that matters
refusals.py         consumers that never become members
unassigned_topics.py    topics that are assigned to nobody
"""

from muster.replay.fleet.simulation.scenarios import (
    administration,
    changes,
    compounds,
    coordinators,
    losses,
    near_misses,
    quiet,
    refusals,
    replacing,
    slowness,
    unassigned_topics,
)

__all__ = [
    "administration",
    "changes",
    "compounds",
    "coordinators",
    "losses",
    "near_misses",
    "quiet",
    "refusals",
    "replacing",
    "slowness",
    "unassigned_topics",
]
