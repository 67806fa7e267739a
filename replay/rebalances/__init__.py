"""Reconstructs rebalances from a group's history: triggers, phases, partition moves, and what happened in between.

happenings.py           Happenings, which start no rebalance: absorbed restarts, takeovers, refusals, fences.
moves.py                Partition owners, and the partitions that a rebalance moved.
running_rebalance.py    A rebalance while its events are folded, and the finished value.
planned.py              Administrators' plans for a group's membership and their results, as text.
happening_collector.py  Collects happenings, in order, until the next rebalance begins.
rebalance.py            The values that describe a rebalance; `timeline.py` makes them and `why` prints them.
standbys.py             A standby that replaces a lost member, from its call until it has the partitions.
takeovers.py            A takeover as text: the old owner, the new one, and the reason.
timeline.py             Folds a group's history into rebalances and the happenings between them.
wording.py              The English phrases for members and causes, so that all outputs use the same words.
"""
