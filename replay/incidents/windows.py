"""All time windows (in ms) and thresholds that decide which events belong to one incident."""

from typing import Final

QUIET_MS: Final = 600_000
"""Acts that are further apart than this belong to different incidents."""

ACTS_MAX: Final = 20_000
"""Maximum acts of an episode; one with more is split."""

ACTS_RUNNING_MAX: Final = 50_000
"""Maximum acts while a rebalance is running: a member that keeps joining may prevent its end for hours."""

REPLACED_MS: Final = 600_000
"""A process that joins within this time after another one left replaces it; later it is a new process."""

DEPLOYMENT_NEXT_MS: Final = 300_000
"""A replacement that begins within this time after another one belongs to the same deployment."""

DEPLOYMENT_PROCESSES_MIN: Final = 2
DEPLOYMENT_SHARE_MIN: Final = 1 / 3
"""A deployment replaces at least this many processes, and this share of the group."""

CRASH_LOOP_TIMES_MIN: Final = 3
"""A process that left and came back this often is in a crash loop."""

CRASH_LOOP_NEXT_MS: Final = 600_000
"""A crash loop continues if the process leaves again within this time after it last left or came back."""

SCALING_NEXT_MS: Final = 120_000
"""Processes that join, or leave, within this time after another one belong to the same change of size."""

START_OVER_MS: Final = 15_000
"""A group has started when it has been Stable for this long; a process that joins later is a new one."""

BLUE_GREEN_MS: Final = 600_000
"""The time within which as many processes leave as have joined, or join as have left."""

SAME_MOMENT_MS: Final = 3_500
"""Members that were last heard from within this time of each other fell silent together: about a heartbeat interval."""

HELD_MS: Final = 5_000
HELD_SHARE: Final = 0.5
"""A member that delays a phase for this long, and for this share of it, is slow."""

SECOND_ROUND_MS: Final = 60_000
"""A cooperative assignor's next round begins within this time after the previous one."""

ASKED_AGAIN_MS: Final = 3_000
"""A leader that asks again within this time after a rebalance, without a reason, continues that rebalance."""

ASKED_NEXT_MS: Final = 300_000
"""Requests of a member for a rebalance within this time of each other, with the same reason, count once."""

TAKEOVER_MS: Final = 2_000
"""Before format level 4, a member's last-seen time within this of a takeover may be the takeover's own time."""

OUTAGE_AFTERMATH_MS: Final = 2_000
"""Consequences of an outage are expected until the session timeout plus this time after its end."""

UNASSIGNED_MS: Final = 10_000
"""A topic without an assignment is reported after this time: a leader's metadata may be that old."""

SAME_DUEL_MS: Final = 60_000
"""A duel continues if the instance id changes hands again within this time."""

STORM_NEXT_MS: Final = 60_000
"""Incidents of several groups that begin within this time of one another may be one storm (only in `digest`)."""

STORM_GROUPS_MIN: Final = 3
"""A storm affects at least this many groups."""
