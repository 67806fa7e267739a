"""The invariants after every command: of hard state, of soft state, and of each transition.

Hard state and the moves of a group: `replay/verify/invariants.py`, as `verify` asks them. Soft state: lettered here.
Transitions: what `events/events.py` promises. The harness calls `check` with everything it has.
"""

import math
from collections.abc import Sequence

from muster.coordinator.group.census import count
from muster.coordinator.group.commands import JoinGroup, SyncGroup
from muster.coordinator.group.roles import active_members
from muster.coordinator.group.soft_state import HeldJoins, SoftState
from muster.events.causes import TRIGGERS, Cause
from muster.events.events import (
    AnyEvent,
    GroupCreated,
    GroupDeleted,
    GroupEvent,
    MemberEvent,
    RebalanceStarted,
)
from muster.events.state import Group, GroupState, MemberRole
from muster.replay.verify.invariants import broken_invariants, broken_move


def check_hard(group: Group) -> None:
    """The numbered invariants of `events/state.py`."""
    assert list(broken_invariants(group)) == []


def check_soft(group: Group | None, soft: SoftState) -> None:
    """Check that soft state fits hard state."""
    if group is None:
        assert soft == SoftState(), "a: nothing is left of a group that is gone"
        return
    state, members = group.state, group.members.keys()
    assert soft.sessions.keys() == members, "b: every member has a session, nobody else has"
    assert not soft.pending_members.keys() & members, "c: who is pending is no member"
    assert soft.parked_joins.keys() <= members, "d: who waits is a member"
    assert soft.parked_syncs.keys() <= members, "d: who waits is a member"
    assert not soft.parked_joins or state is GroupState.PREPARING_REBALANCE, (
        "e: joins are parked in the join phase alone"
    )
    assert not soft.parked_syncs or state is GroupState.COMPLETING_REBALANCE, (
        "f: syncs are parked in the sync phase alone"
    )
    assert soft.pending_syncs <= members, "g: who has to sync is a member"
    assert not soft.pending_syncs & soft.parked_syncs.keys(), "h: who has synced need not"
    late = soft.member_sync_deadlines.keys()
    assert late <= members, "g: who has to sync is a member"
    assert not late & soft.parked_syncs.keys(), "h: who has synced need not"
    assert not late or state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE), "l: nobody catches up elsewhere"
    in_join_phase = state is GroupState.PREPARING_REBALANCE
    assert (soft.join_deadline_ms is not None) == in_join_phase, "i: a join phase has an end, and nothing else has"
    assert soft.initial_delay is None or in_join_phase, "j: only a join phase is delayed"
    assert (soft.sync_deadline_ms is not None) == bool(soft.pending_syncs), (
        "k: the sync timer runs while syncs are missing"
    )
    if state is GroupState.COMPLETING_REBALANCE:
        assert group.leader_id in soft.pending_syncs, "l: the sync phase waits for the leader"
    else:
        assert not soft.pending_syncs or state is GroupState.STABLE, "l: nobody has to sync in another state"
    for member_id, session in soft.sessions.items():
        parked = member_id in soft.parked_joins or member_id in soft.parked_syncs
        assert session.deadline_ms < math.inf or parked, "m: only who is parked has no deadline"
        assert parked or not session.awaits_first_join, "n: who awaits its first join is parked"
    assert soft.census in (None, count(group.members.values())), "y: the census is that of the members"
    assert soft.held_joins.instances == HeldJoins(soft.held_joins.copy()).instances, (
        "z: arrivals are known by instance id"
    )
    _check_plans(group, soft)


def _check_plans(group: Group, soft: SoftState) -> None:
    """Check that everything awaited has a deadline, and nothing else does."""
    state, members = group.state, group.members
    settled = state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
    assert not soft.held_joins or settled, "o: arrivals are held beside an assignment alone"
    assert not soft.held_joins.keys() & (members.keys() | soft.pending_members.keys()), "p: an arrival is no member"
    held = [arrival.join.group_instance_id for arrival in soft.held_joins.values()]
    named = [instance for instance in held if instance is not None]
    assert len(named) == len(set(named)), "q: one arrival of an instance"
    assert not set(named) & group.instances.keys(), "q: a member does not arrive"
    if not set(held) <= group.registrations.keys():
        assert soft.expansion_deadline_ms is not None, "r: who is not registered waits for the delay to end"
    assert (soft.registration_deadline_ms is not None) == bool(group.registrations), "s"
    retiring = any(member.retiring for member in members.values())
    assert (soft.retirement_deadline_ms is not None) == retiring, "t"
    learning = any(member.role is MemberRole.LEARNER for member in members.values())
    assert (soft.promotion_deadline_ms is not None) == learning, "u"
    if state is GroupState.STABLE:
        called = {member.member_id for member in members.values() if member.role is MemberRole.CALLED}
        assert called <= soft.member_sync_deadlines.keys(), "v: who was called has to sync"
        assert active_members(group), "w: somebody has the partitions"
    assert not soft.replaced_members.keys() & members.keys(), "x: who lost its instance id is no member"


def check_transition(before: Group | None, events: Sequence[AnyEvent], after: Group | None) -> None:
    """The events of one command: numbered without gaps, ended by a group event, and all legal transitions."""
    if not events:
        assert after == before
        return
    assert isinstance(events[-1], GroupEvent), "a transition ends on the group's own key"
    seq = before.seq if before is not None else 0
    assert [event.seq for event in events] == list(range(seq + 1, seq + 1 + len(events)))
    if before is None:
        assert isinstance(events[0], GroupCreated)
    else:
        assert {event.incarnation for event in events} == {before.incarnation}
    image = before.image if before is not None else None
    for event in events:
        _check_why(event)
        if isinstance(event, GroupEvent):
            if image is not None:
                assert list(broken_move(image, event)) == []
            image = event.group
    if after is not None:
        assert after.seq == events[-1].seq, "5"
        check_hard(after)
    else:
        assert isinstance(events[-1], GroupDeleted)


def _check_why(event: AnyEvent) -> None:
    why = event.why
    assert why.cause is not Cause.UNKNOWN
    assert why.arrived_ms <= why.decided_ms
    assert why.parked_ms >= 0
    assert why.uptime_ms is not None
    if isinstance(event, RebalanceStarted):
        assert why.cause in TRIGGERS
    if isinstance(event, MemberEvent):
        assert event.last_seen_ms <= why.decided_ms
        assert event.heard is not None


def is_superseded_by(older: object, newer: object) -> bool:
    """Return whether a parked request was replaced by a retry of the same member (J13, SG17)."""
    if isinstance(older, JoinGroup) and isinstance(newer, JoinGroup):
        return True
    return isinstance(older, SyncGroup) and isinstance(newer, SyncGroup) and older.member_id == newer.member_id
