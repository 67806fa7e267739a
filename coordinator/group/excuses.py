"""Time for which nobody is blamed: an append that took long, a machine that stood still.

What belongs here: how the deadlines of a group move when it was us who were slow. What it must not know: clocks, and
how that is found out.
"""

import msgspec

from muster.coordinator.group.arrivals import COMES_BACK_WITHIN_MS
from muster.coordinator.group.configs import registration_timeout_ms, retirement_timeout_ms
from muster.coordinator.group.rebalance import MIN_WAIT_MS, rebalance_timeout_ms
from muster.coordinator.group.soft import PHASES, Soft
from muster.events.ids import MemberId
from muster.events.state import Group

USUAL_MS = 250
"""An append that takes no longer is nothing unusual: only what is beyond moves deadlines that were set before.

Without it a client that makes one append after another would hold up a phase for ever.
"""


def excuse_wait(soft: Soft, member_id: MemberId, arrived_ms: int, now_ms: int) -> None:
    """Lengthen a member's session by the time that its request waited for its answer, which leaves now.

    A client may send nothing before it has the answer. Nobody gets more than the full time from now on.
    """
    if arrived_ms == now_ms:
        return  # as nearly always
    for session in (soft.sessions.get(member_id), soft.pending.get(member_id)):
        if session is not None:
            lengthened_ms = min(session.deadline_ms + now_ms - arrived_ms, now_ms + session.timeout_ms)
            session.deadline_ms = max(session.deadline_ms, lengthened_ms)


def excuse_append(soft: Soft, before: Soft, took_ms: int) -> None:
    """Move the deadlines of phases by the time that it took to store what was decided.

    `soft` is what the decisions made of `before`. Deadlines that they have set run from now on. The others move by what
    was unusual, since nobody has heard from the group meanwhile.
    """
    unusual_ms = max(0, took_ms - USUAL_MS)
    for phase in PHASES:
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None:
            is_new = deadline_ms != getattr(before, phase)
            setattr(soft, phase, deadline_ms + (took_ms if is_new else unusual_ms))
    for member_id, deadline_ms in soft.catching_up.items():
        is_new = deadline_ms != before.catching_up.get(member_id)
        soft.catching_up[member_id] = deadline_ms + (took_ms if is_new else unusual_ms)


def rearm(group: Group | None, soft: Soft, now_ms: int) -> int:
    """Give everybody the full time again, after the machine stood still; returns how many sessions there are."""
    for session in (*soft.sessions.values(), *soft.pending.values()):
        session.deadline_ms = max(session.deadline_ms, now_ms + session.timeout_ms)
    if group is not None:
        _rearm_phases(group, soft, now_ms)
    for member_id, arrival in soft.arrivals.items():
        if not arrival.parked:
            deadline_ms = max(arrival.deadline_ms, now_ms + COMES_BACK_WITHIN_MS)
            soft.arrivals[member_id] = msgspec.structs.replace(arrival, deadline_ms=deadline_ms)
    return len(soft.sessions)


def _rearm_phases(group: Group, soft: Soft, now_ms: int) -> None:
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
    for member_id, deadline_ms in soft.catching_up.items():
        timeout_ms = max(group.members[member_id].rebalance_timeout_ms, 0)
        soft.catching_up[member_id] = max(deadline_ms, now_ms + timeout_ms)
