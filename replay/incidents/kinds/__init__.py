"""The kinds of incidents, one file for those that are found in the same way.

`KINDS` is their precedence: what an earlier one has claimed no later one tells again. A new kind is a file and a line
in it.

kind.py             What a kind is, the view of an episode that it searches, and the claim that it makes.
outages.py          The coordinator was away or stood still.
administrators.py   Administrators: members that they removed, plans, the end of a group.
duels.py            Two live processes with one instance id.
phases.py           Who held a phase up.
replacements.py     Processes that went and came back: crash loops, deployments, restarts, late polls.
silences.py         Members that fell silent and did not come back: network cuts, crashes.
sizes.py            Processes that came, or left, and replaced nobody.
changes.py          Members that stayed, and came with something else.
"""

from typing import Final

from muster.replay.incidents.kinds.administrators import ENDS, PLANS, REMOVALS
from muster.replay.incidents.kinds.changes import ASSIGNORS, ENFORCED, SUBSCRIPTIONS
from muster.replay.incidents.kinds.duels import DUELS
from muster.replay.incidents.kinds.kind import Kind
from muster.replay.incidents.kinds.outages import OUTAGES
from muster.replay.incidents.kinds.phases import SLOW_LEADERS, SLOW_MEMBERS
from muster.replay.incidents.kinds.replacements import BLUE_GREEN, CRASH_LOOPS, DEPLOYMENTS, POLL_TIMEOUTS, RESTARTS
from muster.replay.incidents.kinds.silences import CRASHES, NETWORK_CUTS
from muster.replay.incidents.kinds.sizes import DOWNS, UPS

KINDS: Final[tuple[Kind, ...]] = (
    OUTAGES,
    REMOVALS,
    DUELS,
    SLOW_MEMBERS,
    SLOW_LEADERS,
    POLL_TIMEOUTS,
    CRASH_LOOPS,
    NETWORK_CUTS,
    DEPLOYMENTS,
    BLUE_GREEN,
    RESTARTS,
    CRASHES,
    ASSIGNORS,
    SUBSCRIPTIONS,
    ENFORCED,
    UPS,
    DOWNS,
    PLANS,
    ENDS,
)
