"""The table of what belongs together: every window, in ms, and from how many on something is a kind of its own."""

from typing import Final

QUIET_MS: Final = 600_000
"""Acts that are further apart belong to no common incident."""

ACTS_MAX: Final = 20_000
"""The acts that are looked at together: an episode with more is told in parts."""

ACTS_RUNNING_MAX: Final = 50_000
"""... also while a rebalance is running, which a member that never stops joining keeps from ending for hours."""

REPLACED_MS: Final = 600_000
"""A process that comes back within this time after it went was replaced; later it is a new one."""

DEPLOYMENT_NEXT_MS: Final = 300_000
"""A replacement that begins within this time after another one belongs to the same deployment."""

DEPLOYMENT_PROCESSES_MIN: Final = 2
DEPLOYMENT_SHARE_MIN: Final = 1 / 3
"""A deployment replaces at least so many processes, and this share of the group."""

CRASH_LOOP_TIMES_MIN: Final = 3
"""A process that went and came back so often is in a loop."""

CRASH_LOOP_NEXT_MS: Final = 600_000
"""A process is in one loop as long as it goes again within this time after it went, or came back, before."""

SCALING_NEXT_MS: Final = 120_000
"""New processes that come, or processes that leave, within this time after another one are one change of size."""

START_OVER_MS: Final = 15_000
"""The first processes have started once the group has been Stable for so long: who comes then is a new process."""

BLUE_GREEN_MS: Final = 600_000
"""The time in which as many processes go as have come, or come as have gone."""

SAME_MOMENT_MS: Final = 3_500
"""Members whose last signs of life are no further apart fell silent at the same moment: a heartbeat interval."""

HELD_MS: Final = 5_000
HELD_SHARE: Final = 0.5
"""A member that holds a phase for so long, and for this share of it, is slow."""

SECOND_ROUND_MS: Final = 60_000
"""A cooperative assignor's next round begins within this time after the one before."""

ASKED_AGAIN_MS: Final = 3_000
"""A leader that asks again within this time after a rebalance, without a reason, is not done with that one."""

ASKED_NEXT_MS: Final = 300_000
"""A member that asks for a rebalance within this time after it asked before, in the same words, is told once."""

TAKEOVER_MS: Final = 2_000
"""A last sign of life so near to a takeover may be the takeover, in histories that do not record who was heard from."""

OUTAGE_AFTERMATH_MS: Final = 2_000
"""Consequences of an outage come within the session timeout after its end, and this."""

UNASSIGNED_MS: Final = 10_000
"""A topic that nobody is assigned is told from this time on: a leader may learn of its topics late."""

SAME_DUEL_MS: Final = 60_000
"""An instance id that changes hands within this time after it was fought for, is fought for still."""

STORM_NEXT_MS: Final = 60_000
"""Incidents of several groups that begin within this time after one another may be one storm (`digest` alone)."""

STORM_GROUPS_MIN: Final = 3
"""A storm is over so many groups at least."""
