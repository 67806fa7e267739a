"""What happens when a deadline passes. Each is checked again here: one that was moved meanwhile does nothing (TM5)."""

from collections.abc import Iterator
from typing import assert_never

import msgspec

from muster.coordinator.group.arrivals import end_hold
from muster.coordinator.group.commands import (
    AnyDeadline,
    EndCatchUp,
    EndExpansion,
    EndHold,
    EndJoinPhase,
    EndRegistration,
    EndRetirement,
    EndSyncPhase,
    ExpirePendingMember,
    ExpireSession,
    PromoteLearners,
)
from muster.coordinator.group.departures import after_departures, end_retirement
from muster.coordinator.group.plan_deadlines import end_expansion, end_registration, promote_learners
from muster.coordinator.group.rebalance import all_members_joined, complete_join_phase
from muster.coordinator.group.soft import NEVER, PHASES, Soft
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import GroupId, MemberId
from muster.events.state import GroupState


def due(group_id: GroupId, soft: Soft, now_ms: int) -> list[AnyDeadline]:
    """The deadlines that have passed, earliest first."""
    # What ends for the group ends before it sends arrivals back that would be admitted by it.
    return sorted(_due(group_id, soft, now_ms), key=lambda each: (each.due_ms, isinstance(each, EndHold)))


def _due(group_id: GroupId, soft: Soft, now_ms: int) -> Iterator[AnyDeadline]:
    for due_ms, member_id in soft.sessions.due(now_ms):
        yield ExpireSession(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.pending.due(now_ms):
        yield ExpirePendingMember(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.catching_up.due(now_ms):
        yield EndCatchUp(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for due_ms, member_id in soft.arrivals.due(now_ms):
        yield EndHold(group_id=group_id, member_id=member_id, due_ms=due_ms)
    for phase, deadline in PHASES.items():
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None and deadline_ms <= now_ms:
            yield deadline(group_id=group_id, due_ms=deadline_ms)


def expire_session(turn: Turn, member_id: MemberId) -> None:
    """SE3 to SE8. A parked member is alive; the end of its phase arms its session again."""
    soft = turn.soft
    session = soft.sessions.get(member_id)
    if session is None or session.deadline_ms > turn.now_ms:
        return
    parked = member_id in soft.joins or member_id in soft.syncs
    if parked and not session.awaits_first_join:
        soft.sessions[member_id] = msgspec.structs.replace(session, deadline_ms=NEVER)
        return
    member = turn.group.members[member_id]
    cause = Cause.FIRST_JOIN_TIMED_OUT if session.awaits_first_join else Cause.SESSION_EXPIRED
    turn.because_time_passed(cause, session.deadline_ms, member)
    led_before = turn.image.leader_id
    turn.remove(member)
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        _complete_if_all_joined(turn)
    else:
        after_departures(turn, [member], led_before)


def expire_pending_member(turn: Turn, member_id: MemberId) -> None:
    """P5: an id that was handed out and never used is forgotten."""
    pending = turn.soft.pending.get(member_id)
    if pending is None or pending.deadline_ms > turn.now_ms:
        return
    del turn.soft.pending[member_id]
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        turn.because_time_passed(Cause.ALL_JOINED, pending.deadline_ms)
        _complete_if_all_joined(turn)


def _complete_if_all_joined(turn: Turn) -> None:
    """The removal may have been what the join phase waited for, in an initial rebalance as well (SE8, I8)."""
    if all_members_joined(turn):
        complete_join_phase(turn, Cause.ALL_JOINED)


def end_join_phase(turn: Turn) -> None:
    """The rebalance timeout, or the initial rebalance delay, is over (RB4, I2, I3)."""
    soft = turn.soft
    deadline_ms = soft.join_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    delay = soft.initial_delay
    if delay is not None:
        if delay.member_joined and delay.remaining_ms > 0:
            next_ms = min(turn.settings.initial_rebalance_delay_ms, delay.remaining_ms)
            soft.initial_delay = msgspec.structs.replace(
                delay,
                delay_ms=next_ms,
                remaining_ms=max(delay.remaining_ms - delay.delay_ms, 0),
                member_joined=False,
            )
            soft.join_deadline_ms = turn.now_ms + next_ms
            return
        turn.because_time_passed(Cause.INITIAL_DELAY_ELAPSED, deadline_ms)
        complete_join_phase(turn, Cause.INITIAL_DELAY_ELAPSED)
        return
    turn.because_time_passed(Cause.JOIN_PHASE_TIMED_OUT, deadline_ms)
    complete_join_phase(turn, Cause.JOIN_PHASE_TIMED_OUT)


def end_sync_phase(turn: Turn) -> None:
    """SX2 to SX6: who joined and never asked for its assignment is removed, static members too (KAFKA-12890)."""
    soft = turn.soft
    deadline_ms = soft.sync_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    soft.sync_deadline_ms = None
    silent = [turn.group.members[member_id] for member_id in soft.unsynced]
    trigger, led_before = None, turn.image.leader_id
    for member in silent:
        turn.because_time_passed(Cause.SYNC_TIMED_OUT, deadline_ms, member)
        trigger = trigger or turn.why
        turn.remove(member)
    if trigger is not None:
        turn.why = trigger
        after_departures(turn, silent, led_before)


def end_catch_up(turn: Turn, member_id: MemberId) -> None:
    """SX2, for a member that was given its assignment outside a rebalance."""
    deadline_ms = turn.soft.catching_up.get(member_id)
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    member, led_before = turn.group.members[member_id], turn.image.leader_id
    turn.because_time_passed(Cause.SYNC_TIMED_OUT, deadline_ms, member)
    turn.remove(member)
    after_departures(turn, [member], led_before)


def run_deadline(turn: Turn, deadline: AnyDeadline) -> None:
    """The rule for each deadline."""
    match deadline:
        case ExpireSession(member_id=member_id):
            expire_session(turn, member_id)
        case ExpirePendingMember(member_id=member_id):
            expire_pending_member(turn, member_id)
        case EndJoinPhase():
            end_join_phase(turn)
        case EndSyncPhase():
            end_sync_phase(turn)
        case EndCatchUp(member_id=member_id):
            end_catch_up(turn, member_id)
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
