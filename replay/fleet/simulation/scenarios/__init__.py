"""The scenarios, by subject; importing this package registers them. Those that only the judge plays are in tests/judge.

losses.py      crashes, restarts, crash loops, poll timeouts, freezes, network cuts, duels
replacing.py   deployments, scaling, start and shutdown
slowness.py    slow members, slow leaders, unused member ids
changes.py     subscriptions, assignors, partitions; requested rebalances, removals and deletion
"""

from muster.replay.fleet.simulation.scenarios import changes, losses, replacing, slowness

__all__ = ["changes", "losses", "replacing", "slowness"]
