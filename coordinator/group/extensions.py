"""Extending a group's deadlines by the time that Muster itself was slow: a long append, a paused machine.

What belongs here: by how much each deadline is extended. What it must not know: clocks, and how slowness is found out.
"""

import msgspec

from muster.coordinator.group.configs import registration_timeout_ms, retirement_timeout_ms
from muster.coordinator.group.held_joins import RETRY_WINDOW_MS
from muster.coordinator.group.rebalance import MIN_WAIT_MS, rebalance_timeout_ms
from muster.coordinator.group.soft_state import PHASES, SoftState
from muster.events.ids import MemberId
from muster.events.state import Group

USUAL_APPEND_MS = 250
"""Deadlines that were set before an append are extended only by what it took beyond this.

Otherwise a client that causes one append after another would keep a phase open for ever.
"""


def extend_session(soft: SoftState, member_id: MemberId, arrived_ms: int, now_ms: int) -> None:
    """Extend a member's session by the time that its request waited for its answer, which leaves now.

    A client may send nothing before it has the answer. No session gets more than its full time from now on.
    """
    if arrived_ms == now_ms:
        return  # as nearly always
    for session in (soft.sessions.get(member_id), soft.pending_members.get(member_id)):
        if session is not None:
            lengthened_ms = min(session.deadline_ms + now_ms - arrived_ms, now_ms + session.timeout_ms)
            session.deadline_ms = max(session.deadline_ms, lengthened_ms)


def extend_deadlines(soft: SoftState, before: SoftState, took_ms: int) -> None:
    """Extend the deadlines of phases by the time that an append took.

    `soft` is what the decisions made of `before`. Deadlines that they have set run from now on; the others are extended
    by what was unusual, since the group answered nobody meanwhile.
    """
    unusual_ms = max(0, took_ms - USUAL_APPEND_MS)
    for phase in PHASES:
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None:
            is_new = deadline_ms != getattr(before, phase)
            setattr(soft, phase, deadline_ms + (took_ms if is_new else unusual_ms))
    for member_id, deadline_ms in soft.member_sync_deadlines.items():
        is_new = deadline_ms != before.member_sync_deadlines.get(member_id)
        soft.member_sync_deadlines[member_id] = deadline_ms + (took_ms if is_new else unusual_ms)


def rearm(group: Group | None, soft: SoftState, now_ms: int) -> int:
    """Give all sessions and phases their full time from then on, since nobody could be heard before.

    Returns how many sessions there are.
    """
    for session in (*soft.sessions.values(), *soft.pending_members.values()):
        session.deadline_ms = max(session.deadline_ms, now_ms + session.timeout_ms)
    if group is not None:
        _rearm_phases(group, soft, now_ms)
    for member_id, held in soft.held_joins.items():
        if not held.parked:
            deadline_ms = max(held.deadline_ms, now_ms + RETRY_WINDOW_MS)
            soft.held_joins[member_id] = msgspec.structs.replace(held, deadline_ms=deadline_ms)
    return len(soft.sessions)


def _rearm_phases(group: Group, soft: SoftState, now_ms: int) -> None:
    rejoin_ms = max(rebalance_timeout_ms(group), MIN_WAIT_MS)
    full_ms = {
        "join_deadline_ms": rejoin_ms if soft.initial_delay is None else soft.initial_delay.delay_ms,
        "sync_deadline_ms": rebalance_timeout_ms(group),
        "registration_deadline_ms": registration_timeout_ms(group.config),
        "expansion_deadline_ms": group.config.expansion_delay_ms or 0,
        "retirement_deadline_ms": retirement_timeout_ms(group.config),
        "promotion_deadline_ms": group.config.learner_timeout_ms or 0,
    }
    for phase, timeout_ms in full_ms.items():
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None:
            setattr(soft, phase, max(deadline_ms, now_ms + timeout_ms))
    for member_id, deadline_ms in soft.member_sync_deadlines.items():
        timeout_ms = max(group.members[member_id].rebalance_timeout_ms, 0)
        soft.member_sync_deadlines[member_id] = max(deadline_ms, now_ms + timeout_ms)
