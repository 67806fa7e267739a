"""How fast a group's members went along with a recorded rebalance, so that a play of it has the same phases."""

import math
from collections.abc import Iterable

import msgspec

from muster.events.events import GroupEmptied, GroupStabilized, JoinPhaseCompleted, MemberRejoined, RebalanceStarted
from muster.events.ids import MemberId
from muster.replay.whatif.facts import Fact, Step

NEVER = math.inf

TYPICAL_MS = 1_500
"""The time until a member rejoins if none is recorded: half of the default `heartbeat.interval.ms` of clients."""


class MemberPace(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in ms: of each member from the rebalance's start to its rejoin, and of the leader to its assignment.

    Who is not in `rejoins` and was a member (`members`) did not rejoin; of others nothing is recorded.
    """

    members: frozenset[MemberId] = frozenset()
    rejoins: dict[MemberId, int] = {}
    sync_ms: float = 0
    leader_id: MemberId | None = None

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
    members = frozenset(members)
    rejoins: dict[MemberId, int] = {}
    completed_ms: int | None = None
    leader_id: MemberId | None = None
    for step in (begun, *following):
        if not isinstance(step, Fact):
            break  # what comes after a gap, or a takeover, is of another pace
        for event in step.events:
            at_ms = event.why.decided_ms
            if isinstance(event, MemberRejoined) and completed_ms is None:
                rejoins.setdefault(event.member.member_id, max(0, event.why.arrived_ms - begun_ms))
            elif isinstance(event, JoinPhaseCompleted):
                completed_ms, leader_id = at_ms, event.group.leader_id
            elif isinstance(event, GroupStabilized) and completed_ms is not None:
                return MemberPace(members=members, rejoins=rejoins, sync_ms=at_ms - completed_ms, leader_id=leader_id)
            elif isinstance(event, GroupEmptied) or (isinstance(event, RebalanceStarted) and event is not started):
                return MemberPace(members=members, rejoins=rejoins, sync_ms=NEVER, leader_id=leader_id)
    return MemberPace(members=members, rejoins=rejoins, sync_ms=NEVER, leader_id=leader_id)
