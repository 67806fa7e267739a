"""How fast members rejoined and synced in a recorded rebalance, so that a play of it has the same phases."""

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
from muster.replay.history.items import Broken, Gap
from muster.replay.incidents.cost import partitions_had, total
from muster.replay.whatif.facts import Fact, Step

NEVER = math.inf
_BY_TIMER = (Cause.JOIN_PHASE_TIMED_OUT, Cause.INITIAL_DELAY_ELAPSED)

TYPICAL_MS = 1_500
"""Assumed time until a member rejoins if none is recorded: half of the clients' default `heartbeat.interval.ms`."""


class MemberPace(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms from the rebalance's start to each member's rejoin, and from the join phase's end to the assignment.

    `partitions`: how many were assigned in the end; None: not known. `late_ms`: how late the timer fired, if a timer
    ended the join phase; timers are never exactly on time.

    Those of `members` that are not in `rejoins` did not rejoin; nothing is recorded about others.
    """

    members: frozenset[MemberId] = frozenset()
    rejoins: dict[MemberId, int] = {}
    sync_ms: float = 0
    leader_id: MemberId | None = None
    late_ms: int = 0
    partitions: int | None = None

    def syncs_after_ms(self, leader_id: MemberId | None) -> float:
        """Return the time that the leader took; a leader other than the recorded one is assumed to take no time."""
        return self.sync_ms if leader_id == self.leader_id else 0

    def rejoins_after_ms(self, member_id: MemberId) -> float:
        """Return the time until the member rejoins."""
        return self.rejoins.get(member_id, NEVER if member_id in self.members else TYPICAL_MS)


PROMPT = MemberPace()


def pace_of(begun: Fact, members: Iterable[MemberId], following: Iterable[Step]) -> MemberPace:
    """Return the pace of the rebalance that a fact started. `members`: the group's members before it."""
    started, begun_ms = begun.started, begun.at_ms
    rejoins: dict[MemberId, int] = {}
    completed: JoinPhaseCompleted | None = None
    sync_ms = NEVER
    for step in (begun, *following):
        if not isinstance(step, Fact):
            break  # the pace is different after a gap or a takeover
        for event in step.events:
            if isinstance(event, MemberRejoined) and completed is None:
                rejoins.setdefault(event.member.member_id, max(0, event.why.arrived_ms - begun_ms))
            elif isinstance(event, JoinPhaseCompleted):
                completed = event
            elif isinstance(event, GroupStabilized) and completed is not None:
                sync_ms = event.why.decided_ms - completed.why.decided_ms
                pace = _pace(members, rejoins, completed, sync_ms)
                return msgspec.structs.replace(pace, partitions=_assigned_by(step))
            elif isinstance(event, GroupEmptied) or (isinstance(event, RebalanceStarted) and event is not started):
                return _pace(members, rejoins, completed, sync_ms)
    return _pace(members, rejoins, completed, sync_ms)


def partitions_assigned(following: Iterable[Step]) -> int | None:
    """Return how many partitions the next assignment has; None if it is not in the log or cannot be decoded."""
    for step in following:
        if isinstance(step, Gap | Broken):
            return None
        if isinstance(step, Fact) and any(isinstance(event, GroupStabilized) for event in step.events):
            return _assigned_by(step)
    return None


def _assigned_by(step: Fact) -> int | None:
    return total([partitions_had(event.member) for event in step.events if isinstance(event, MemberAssigned)])


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
