"""The kinds of incidents, a file each, or one for a kind and its like. `FINDERS` is their precedence.

What an earlier one has claimed no later one tells again. A new kind is a file and a line in each of the two tables.

kind.py                 What a kind is, the view of an episode that it searches, and the claim that it makes.
coordinator_outage.py   The coordinator was away or stood still: what followed from it, or that nothing did.
removed_by_admin.py     Members that somebody else had removed.
duel.py                 Two live processes with one instance id.
slow_member.py          A live member that held the join phase up.
unused_id.py            A member id that was handed out and not used, for which a join phase waited.
slow_leader.py          A leader that held the sync phase up.
poll_timeout.py         A member that did not poll in time, and whose client says so.
crash_loop.py           One process that went and came back again and again.
network_cut.py          Several members that fell silent at the same moment.
deployment.py           Many processes that were replaced, one after another or at once.
blue_green.py           As many new processes as old ones, which left.
restart.py              One process that ended and came back.
crash.py                A member that fell silent and did not come back.
assignor_change.py      Members that stayed, and came with other assignors.
subscription_change.py  Members that stayed, and subscribed other topics.
asked_for.py            A member that asked for a new assignment with the subscription that it had.
scale_up.py             Processes that came, and replaced nobody.
scale_down.py           Processes that left, and nobody came for them.
planned.py              What administrators asked for and planned.
group_end.py            The end of a group.
replaced.py             What the kinds that are about replaced processes share.
page.py                 The tables of docs/incidents.md.
runs.py                 Acts that follow each other closely: what the kinds about a group's size share.
"""

from typing import Final

from muster.replay.incidents.kinds import (
    asked_for,
    assignor_change,
    blue_green,
    coordinator_outage,
    crash,
    crash_loop,
    deployment,
    duel,
    group_end,
    network_cut,
    planned,
    poll_timeout,
    removed_by_admin,
    restart,
    scale_down,
    scale_up,
    slow_leader,
    slow_member,
    subscription_change,
    unused_id,
)
from muster.replay.incidents.kinds.kind import Find, Kind

UNKNOWN: Final = Kind("unknown", "What the log bears is none of these: parts may be missing, or it is new.", "nobody")

FINDERS: Final[tuple[Find, ...]] = (
    coordinator_outage.find,
    removed_by_admin.find,
    planned.find,
    duel.find,
    slow_member.find,
    unused_id.find,
    slow_leader.find,
    poll_timeout.find,
    crash_loop.find,
    network_cut.find,
    deployment.find,
    blue_green.find,
    restart.find,
    crash.find,
    assignor_change.find,
    subscription_change.find,
    asked_for.find,
    scale_up.find,
    scale_down.find,
    group_end.find,
)

KINDS: Final[tuple[Kind, ...]] = (
    coordinator_outage.OUTAGE,
    coordinator_outage.CHANGE,
    removed_by_admin.KIND,
    duel.KIND,
    slow_member.KIND,
    unused_id.KIND,
    slow_leader.KIND,
    poll_timeout.KIND,
    crash_loop.KIND,
    network_cut.KIND,
    deployment.KIND,
    blue_green.KIND,
    restart.KIND,
    crash.KIND,
    assignor_change.KIND,
    subscription_change.KIND,
    asked_for.ENFORCED,
    asked_for.PARTITIONS,
    asked_for.ROUND,
    scale_up.UP,
    scale_up.START,
    scale_down.DOWN,
    scale_down.SHUTDOWN,
    planned.PLANNED,
    planned.CAPACITY,
    group_end.DELETED,
    group_end.EXPIRED,
    UNKNOWN,
)
