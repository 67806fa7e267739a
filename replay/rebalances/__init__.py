"""The analysis of rebalances: happenings, phases, causes.

happenings.py   What started no rebalance: restarts that were absorbed, coordinators that came and went, refusals,
                fences.
moves.py        Who has which partitions, and what a rebalance changed about it.
running_rebalance.py   A rebalance while its events are folded, and the finished value.
planned.py      What administrators plan for a group's membership, in words, and what came of it.
happening_collector.py  Happenings that start no rebalance, in order, until a rebalance begins.
rebalance.py    What a rebalance is, once it is told: the values that `timeline.py` makes and `why` prints.
standbys.py     A standby that takes the place of a lost member, from its call to the moment when it has the
                partitions.
takeovers.py    A takeover in words: who took over from whom, and why.
timeline.py     History -> rebalances: what started each, what was folded in, how long it took, what moved, what
                started none.
wording.py      Every English phrase about members and causes, so that all outputs say the same thing in the same
                words.
"""
