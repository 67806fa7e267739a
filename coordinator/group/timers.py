"""What happens when a deadline passes. Each is checked again here: one that was moved meanwhile does nothing (TM5)."""

from collections.abc import Iterator

import msgspec

from coordinator.group.commands import (
    AnyDeadline,
    EndJoinPhase,
    EndSyncPhase,
    ExpirePendingMember,
    ExpireSession,
)
from coordinator.group.rebalance import (
    all_members_joined,
    complete_join_phase,
    prepare_rebalance,
)
from coordinator.group.soft import NEVER, Soft
from coordinator.group.turn import Turn
from events.causes import Cause
from events.ids import GroupId, MemberId
from events.state import GroupState


def due(group_id: GroupId, soft: Soft, now_ms: int) -> list[AnyDeadline]:
    """The deadlines that have passed, earliest first."""
    return sorted(_due(group_id, soft, now_ms), key=lambda deadline: deadline.due_ms)


def _due(group_id: GroupId, soft: Soft, now_ms: int) -> Iterator[AnyDeadline]:
    for member_id, session in soft.sessions.items():
        if session.deadline_ms <= now_ms:
            yield ExpireSession(group_id=group_id, member_id=member_id, due_ms=int(session.deadline_ms))
    for member_id, session in soft.pending.items():
        if session.deadline_ms <= now_ms:
            yield ExpirePendingMember(group_id=group_id, member_id=member_id, due_ms=int(session.deadline_ms))
    if soft.join_deadline_ms is not None and soft.join_deadline_ms <= now_ms:
        yield EndJoinPhase(group_id=group_id, due_ms=soft.join_deadline_ms)
    if soft.sync_deadline_ms is not None and soft.sync_deadline_ms <= now_ms:
        yield EndSyncPhase(group_id=group_id, due_ms=soft.sync_deadline_ms)


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
    turn.remove(member)
    _after_removal(turn)


def expire_pending_member(turn: Turn, member_id: MemberId) -> None:
    """P5: an id that was handed out and never used is forgotten."""
    pending = turn.soft.pending.get(member_id)
    if pending is None or pending.deadline_ms > turn.now_ms:
        return
    del turn.soft.pending[member_id]
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        turn.because_time_passed(Cause.ALL_JOINED, pending.deadline_ms)
        _after_removal(turn)


def _after_removal(turn: Turn) -> None:
    """In the join phase the removal may have been what it waited for, in an initial rebalance as well (SE8, I8)."""
    if turn.image.state is not GroupState.PREPARING_REBALANCE:
        prepare_rebalance(turn)
    elif all_members_joined(turn):
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
    silent = [member for member in turn.group.members.values() if member.member_id in soft.unsynced]
    trigger = None
    for member in silent:
        turn.because_time_passed(Cause.SYNC_TIMED_OUT, deadline_ms, member)
        trigger = trigger or turn.why
        turn.remove(member)
    if trigger is not None:
        turn.why = trigger
        prepare_rebalance(turn)


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
