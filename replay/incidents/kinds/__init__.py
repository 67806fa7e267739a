"""The kinds of incidents: a file for each kind, or for several similar ones. `PRECEDENCE` is the only table of them.

An act belongs to the first kind in the table that claims it. A new kind needs a file and a line in the table.

kind.py                 The types: a kind, the view of an episode that it searches, and the claims that it makes.
coordinator_outage.py   The coordinator was unreachable or paused, with or without consequences.
removed_by_admin.py     Members that another client removed.
planned.py              Requests and plans of administrators.
duel.py                 Two live processes with one instance id.
slow_member.py          A live member that prolonged the join phase.
unused_id.py            A handed-out member id that was not used, for which a join phase waited.
slow_leader.py          A live leader that prolonged the sync phase.
poll_timeout.py         A member that did not poll in time, according to its client.
unsubscribe.py          Members that left on their own and came back, although their processes kept running.
crash_loop.py           One process that ended and came back repeatedly.
network_cut.py          Several members that fell silent at the same time.
deployment.py           Many processes that were replaced, one after another or at once.
blue_green.py           As many new processes joined as there were old ones, which left.
restart.py              One process that ended and came back.
stopped.py              Static members whose processes ended.
crash.py                A member that fell silent and did not come back.
assignor_change.py      Members that rejoined with other assignors.
subscription_change.py  Members that rejoined with other topics.
asked_for.py            A member that asked for a new assignment with the same subscription.
scale_up.py             Processes that joined without replacing others.
scale_down.py           Processes that left and were not replaced.
group_end.py            The end of a group.
refused.py              Consumers that were refused.
unassigned_topic.py     Subscribed topics that were assigned to no member.
replaced.py             Shared by the kinds about replaced processes.
changed.py              Shared by the kinds about members that rejoined with a change.
outage_fates.py         The outcome of an outage for each member.
scaling.py              Shared by the kinds about a group's size.
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
    refused,
    removed_by_admin,
    restart,
    scale_down,
    scale_up,
    slow_leader,
    slow_member,
    stopped,
    subscription_change,
    unassigned_topic,
    unsubscribe,
    unused_id,
)
from muster.replay.incidents.kinds.kind import Find, Kind

UNKNOWN: Final = Kind("unknown", "What the log shows is none of these: parts may be missing, or it is new.", "none")

PRECEDENCE: Final[tuple[tuple[Find, tuple[Kind, ...]], ...]] = (
    (coordinator_outage.find, (coordinator_outage.OUTAGE, coordinator_outage.CHANGE)),
    (removed_by_admin.find, (removed_by_admin.KIND,)),
    (planned.find, (planned.PLANNED, planned.CAPACITY)),
    (duel.find, (duel.KIND,)),
    (slow_member.find, (slow_member.KIND,)),
    (unused_id.find, (unused_id.KIND,)),
    (slow_leader.find, (slow_leader.KIND,)),
    (poll_timeout.find, (poll_timeout.KIND,)),
    (unsubscribe.find, (unsubscribe.KIND,)),
    (crash_loop.find, (crash_loop.KIND,)),
    (network_cut.find, (network_cut.KIND,)),
    (deployment.find, (deployment.KIND,)),
    (blue_green.find, (blue_green.KIND,)),
    (restart.find, (restart.KIND,)),
    (stopped.find, (stopped.KIND,)),
    (crash.find, (crash.KIND,)),
    (assignor_change.find, (assignor_change.KIND,)),
    (subscription_change.find, (subscription_change.KIND,)),
    (asked_for.find, (asked_for.ENFORCED, asked_for.PARTITIONS, asked_for.METADATA, asked_for.ROUND)),
    (scale_up.find, (scale_up.UP, scale_up.START)),
    (scale_down.find, (scale_down.DOWN, scale_down.SHUTDOWN)),
    (group_end.find, (group_end.DELETED, group_end.EXPIRED)),
    (refused.find, (refused.KIND,)),
    (unassigned_topic.find, (unassigned_topic.KIND,)),
)
"""The functions that find incidents, each with its kinds."""

KINDS: Final = (*(kind for _, kinds in PRECEDENCE for kind in kinds), UNKNOWN)
