"""`muster replay whatif`: would this group have rebalanced with other settings?

The rules themselves answer. Each recorded rebalance is played from the recorded state of the group, with the requests
that were recorded and the pace at which its members rejoined; what depends on the settings follows from the rules.

alterations.py  The other settings, and what they make of members, joins and groups.
limits.py       Other settings that a coordinator, or a client, would refuse.
addresses.py    Client ids at hosts that two live members had at once: those processes cannot be told apart.
facts.py        What came in, in order: the recorded history as commands, with the events that each made.
lookahead.py    Facts, held back until what follows from them is known, too.
pace.py         How fast a group's members went along with a recorded rebalance.
departures.py   Members that fell silent before their sessions ended, and what became of their processes.
awaited.py      The members for whom a play waits: who rejoins next, and who syncs.
requests.py     The requests that members send in a play.
renaming.py     A member of a played group under another member id.
meter.py        The cost of a play.
play.py         A group, its rules and its members, played on from a recorded state.
silences.py     Shorter sessions: which of the recorded silences they would not have borne.
verdict.py      The result.
rebalances.py   The recorded rebalances, each with its verdict.
telling.py      Verdicts in words, and the doubts about them.
player.py       The recorded rebalances, played with the settings of one player.
whatif.py       The fold: items -> verdicts, checked by a control that is played with the recorded settings.
answer.py       Verdicts counted, and the last of them: the answer as one value.
"""
