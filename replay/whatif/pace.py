"""How fast a group's members went along with a recorded rebalance, so that a play of it has the same phases."""

import math
from collections.abc import Iterable

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberRejoined,
    RebalanceStarted,
)
from muster.events.ids import MemberId
from muster.replay.incidents.cost import partitions_had
from muster.replay.whatif.facts import Fact, Step

NEVER = math.inf
_BY_TIMER = (Cause.JOIN_PHASE_TIMED_OUT, Cause.INITIAL_DELAY_ELAPSED)

TYPICAL_MS = 1_500
"""The time until a member rejoins if none is recorded: half of the default `heartbeat.interval.ms` of clients."""


class MemberPace(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in ms: of each member from the rebalance's start to its rejoin, and of the leader to its assignment.

    `partitions`: how many were assigned in the end; 0: not known. `late_ms`: how late the timer came that ended the
    join phase, if one did; no timer comes on time.

    Who is not in `rejoins` and was a member (`members`) did not rejoin; of others nothing is recorded.
    """

    members: frozenset[MemberId] = frozenset()
    rejoins: dict[MemberId, int] = {}
    sync_ms: float = 0
    leader_id: MemberId | None = None
    late_ms: int = 0
    partitions: int = 0

    def syncs_after_ms(self, leader_id: MemberId | None) -> float:
        """The time that the leader took; of another one than the recorded nothing is known, and it takes none."""
        return self.sync_ms if leader_id == self.leader_id else 0

    def rejoins_after_ms(self, member_id: MemberId) -> float:
        """The time that the member took."""
        return self.rejoins.get(member_id, NEVER if member_id in self.members else TYPICAL_MS)


PROMPT = MemberPace()


def pace_of(begun: Fact, members: Iterable[MemberId], following: Iterable[Step]) -> MemberPace:
    """The pace of the rebalance that a fact started. `members`: those of the group before it."""
    started, begun_ms = begun.started, begun.at_ms
    rejoins: dict[MemberId, int] = {}
    completed: JoinPhaseCompleted | None = None
    sync_ms = NEVER
    for step in (begun, *following):
        if not isinstance(step, Fact):
            break  # what comes after a gap, or a takeover, is of another pace
        for event in step.events:
            if isinstance(event, MemberRejoined) and completed is None:
                rejoins.setdefault(event.member.member_id, max(0, event.why.arrived_ms - begun_ms))
            elif isinstance(event, JoinPhaseCompleted):
                completed = event
            elif isinstance(event, GroupStabilized) and completed is not None:
                sync_ms = event.why.decided_ms - completed.why.decided_ms
                assigned = (each.member for each in step.events if isinstance(each, MemberAssigned))
                pace = _pace(members, rejoins, completed, sync_ms)
                return msgspec.structs.replace(pace, partitions=sum(map(partitions_had, assigned)))
            elif isinstance(event, GroupEmptied) or (isinstance(event, RebalanceStarted) and event is not started):
                return _pace(members, rejoins, completed, sync_ms)
    return _pace(members, rejoins, completed, sync_ms)


def _pace(
    members: Iterable[MemberId], rejoins: dict[MemberId, int], completed: JoinPhaseCompleted | None, sync_ms: float
) -> MemberPace:
    why = None if completed is None else completed.why
    return MemberPace(
        members=frozenset(members),
        rejoins=rejoins,
        sync_ms=sync_ms,
        leader_id=None if completed is None else completed.group.leader_id,
        late_ms=max(0, why.decided_ms - why.arrived_ms) if why is not None and why.cause in _BY_TIMER else 0,
    )
