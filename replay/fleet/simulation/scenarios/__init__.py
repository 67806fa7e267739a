"""The scenarios, by what they are about; importing this registers them. Those that only the judge plays are its own.

losses.py      crashes, restarts, loops of them, poll timeouts, freezes, network cuts, duels
replacing.py   deployments, scaling, start and shutdown
slowness.py    slow members, slow leaders, ids that are never used
changes.py     subscriptions, assignors, partitions; rebalances, removals and deletion that are asked for
"""

from muster.replay.fleet.simulation.scenarios import changes, losses, replacing, slowness

__all__ = ["changes", "losses", "replacing", "slowness"]
