"""The rules for deadlines that have passed. Each is checked again: one that was moved since does nothing (TM5)."""

from collections.abc import Iterator
from typing import assert_never

import msgspec

from muster.coordinator.group.commands import (
    AnyDeadline,
    EndExpansion,
    EndHold,
    EndJoinPhase,
    EndMemberSync,
    EndRegistration,
    EndRetirement,
    EndSyncPhase,
    ExpirePendingMember,
    ExpireSession,
    PromoteLearners,
)
from muster.coordinator.group.departures import end_retirement, handle_departures
from muster.coordinator.group.handed_out import settle
from muster.coordinator.group.held_joins import end_hold
from muster.coordinator.group.membership_timeouts import end_expansion, end_registration, promote_learners
from muster.coordinator.group.rebalance import all_members_joined, complete_join_phase
from muster.coordinator.group.soft_state import NEVER, PHASES, SoftState
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import GroupId, MemberId
from muster.events.state import GroupState, HandedOutIdOutcome

_DELAYS = (EndExpansion, PromoteLearners)


def due(group_id: GroupId, soft: SoftState, now_ms: int) -> list[AnyDeadline]:
    """Return the deadlines that have passed, as commands, earliest first."""
    # A deadline of the group may admit held joins, so it comes before those that send them back.
    return sorted(_due(group_id, soft, now_ms), key=lambda each: (each.due_ms, isinstance(each, EndHold)))


def is_member_overdue(soft: SoftState, now_ms: int) -> bool:
    """Return whether a deadline has passed by which a member should have been heard from; delays do not count."""
    delays = _DELAYS if soft.initial_delay is None else (*_DELAYS, EndJoinPhase)
    return any(not isinstance(each, delays) for each in _due(GroupId(""), soft, now_ms))


def _due(group_id: GroupId, soft: SoftState, now_ms: int) -> Iterator[AnyDeadline]:
    for due_ms, member_id in soft.sessions.due(now_ms):
        yield ExpireSession(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.pending_members.due(now_ms):
        yield ExpirePendingMember(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.member_sync_deadlines.due(now_ms):
        yield EndMemberSync(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.held_joins.due(now_ms):
        yield EndHold(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for phase, deadline in PHASES.items():
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None and deadline_ms <= now_ms:
            yield deadline(group_id=group_id, due_ms=deadline_ms)


def expire_session(turn: Turn, member_id: MemberId) -> None:
    """Remove a member whose session expired (SE3 to SE8), unless it is parked: the end of the phase arms it again."""
    soft = turn.soft
    session = soft.sessions.get(member_id)
    if session is None or session.deadline_ms > turn.now_ms:
        return
    parked = member_id in soft.parked_joins or member_id in soft.parked_syncs
    if parked and not session.awaits_first_join:
        soft.sessions[member_id] = msgspec.structs.replace(session, deadline_ms=NEVER)
        return
    member = turn.group.members[member_id]
    cause = Cause.FIRST_JOIN_TIMED_OUT if session.awaits_first_join else Cause.SESSION_EXPIRED
    turn.caused_by_deadline(cause, session.deadline_ms, member)
    previous_leader_id = turn.image.leader_id
    turn.remove(member)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(turn)
    else:
        handle_departures(turn, [member], previous_leader_id)


def expire_pending_member(turn: Turn, member_id: MemberId) -> None:
    """Forget a pending member that did not come back with its id (P5)."""
    pending = turn.soft.pending_members.get(member_id)
    if pending is None or pending.deadline_ms > turn.now_ms:
        return
    settle(turn, member_id, HandedOutIdOutcome.TIMED_OUT)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        turn.caused_by_deadline(Cause.ALL_JOINED, pending.deadline_ms)
        _complete_if_all_joined(turn)


def _complete_if_all_joined(turn: Turn) -> None:
    """End the join phase if it waited only for the removed member; an initial one, too (SE8, I8)."""
    if all_members_joined(turn):
        complete_join_phase(turn, Cause.ALL_JOINED)


def end_join_phase(turn: Turn) -> None:
    """End the join phase at the rebalance timeout; end or extend the initial rebalance delay (RB4, I2, I3)."""
    soft = turn.soft
    deadline_ms = soft.join_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    delay = soft.initial_delay
    if delay is not None:
        if delay.new_member_added and delay.remaining_ms > 0:
            next_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
            soft.initial_delay = msgspec.structs.replace(
                delay,
                delay_ms=next_ms,
                remaining_ms=max(delay.remaining_ms - delay.delay_ms, 0),
                new_member_added=False,
            )
            soft.join_deadline_ms = turn.now_ms + next_ms
            return
        turn.caused_by_deadline(Cause.INITIAL_DELAY_ELAPSED, deadline_ms)
        complete_join_phase(turn, Cause.INITIAL_DELAY_ELAPSED)
        return
    turn.caused_by_deadline(Cause.JOIN_PHASE_TIMED_OUT, deadline_ms)
    complete_join_phase(turn, Cause.JOIN_PHASE_TIMED_OUT)


def end_sync_phase(turn: Turn) -> None:
    """Remove members that have not synced at the sync timeout, static ones too (SX2 to SX6, KAFKA-12890)."""
    soft = turn.soft
    deadline_ms = soft.sync_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    soft.sync_deadline_ms = None
    silent = [turn.group.members[member_id] for member_id in soft.pending_syncs]
    trigger, previous_leader_id = None, turn.image.leader_id
    for member in silent:
        turn.caused_by_deadline(Cause.SYNC_TIMED_OUT, deadline_ms, member)
        trigger = trigger or turn.why
        turn.remove(member)
    if trigger is not None:
        turn.why = trigger
        handle_departures(turn, silent, previous_leader_id)


def end_member_sync(turn: Turn, member_id: MemberId) -> None:
    """Remove a member that got its assignment outside a rebalance and has not synced in time (SX2)."""
    deadline_ms = turn.soft.member_sync_deadlines.get(member_id)
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    member, previous_leader_id = turn.group.members[member_id], turn.image.leader_id
    turn.caused_by_deadline(Cause.SYNC_TIMED_OUT, deadline_ms, member)
    turn.remove(member)
    handle_departures(turn, [member], previous_leader_id)


def run_deadline(turn: Turn, deadline: AnyDeadline) -> None:
    """Dispatch a deadline to its rule."""
    match deadline:
        case ExpireSession(member_id=member_id):
            expire_session(turn, member_id)
        case ExpirePendingMember(member_id=member_id):
            expire_pending_member(turn, member_id)
        case EndJoinPhase():
            end_join_phase(turn)
        case EndSyncPhase():
            end_sync_phase(turn)
        case EndMemberSync(member_id=member_id):
            end_member_sync(turn, member_id)
        case EndHold(member_id=member_id):
            end_hold(turn, member_id)
        case EndRegistration():
            end_registration(turn)
        case EndExpansion():
            end_expansion(turn)
        case EndRetirement():
            end_retirement(turn)
        case PromoteLearners():
            promote_learners(turn)
        case _:
            assert_never(deadline)
