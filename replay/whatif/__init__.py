"""`muster replay whatif`: would this group have rebalanced with other settings?

The coordinator's own rules determine the answer. A *play* simulates a recorded rebalance from the recorded state of the
group, with the recorded requests and the pace at which members rejoined; everything that depends on settings follows
from the rules.

alterations.py  The other settings, and how they change members, commands and groups.
limits.py       Refuses settings that a coordinator or a client would refuse.
addresses.py    Finds client ids and hosts that two live members had at once, so the processes look the same.
facts.py        The recorded history as commands, each with the events that it led to.
lookahead.py    Delays facts until the later history that a play needs has been read.
pace.py         How fast members rejoined and synced in a recorded rebalance.
departures.py   Members that fell silent before their sessions ended, and what happened to their processes.
awaited.py      The members that a play waits for: the next one to rejoin, and to sync.
requests.py     The requests that members send in a play.
renaming.py     Gives a member of a simulated group another member id.
meter.py        Measures the cost of a play.
members.py      The simulated members: which are silent, and which one sends the next request, and when.
played.py       The rebalances of a play, and the sessions that ended in it.
play.py         Simulates a group, its coordinator and its members from a recorded state on.
silences.py     Finds recorded silences that are longer than a shorter session timeout.
verdict.py      The result's values.
rebalances.py   The recorded rebalances, each with its verdict.
telling.py      Verdicts, and doubts about them, as text.
matching.py     Matches the rebalances of a play with the recorded ones, and gives the verdicts.
player.py       Plays all recorded rebalances with one set of settings.
whatif.py       The fold from items to verdicts; a control run with the recorded settings checks them.
answer.py       Counts verdicts and keeps the latest: the answer as one value.
"""
