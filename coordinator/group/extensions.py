"""Extends a group's deadlines by the time that its members could not be heard: a long append, a paused machine.

Only computes the extension: callers detect the stall and pass in the times.
"""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

import msgspec

from muster.coordinator.group.configs import registration_timeout_ms, retirement_timeout_ms
from muster.coordinator.group.held_joins import RETRY_WINDOW_MS
from muster.coordinator.group.rebalance import MIN_WAIT_MS, rebalance_timeout_ms
from muster.coordinator.group.soft_state import PHASES, Session, SoftState
from muster.events.ids import MemberId
from muster.events.state import Group

USUAL_APPEND_MS = 250
"""Deadlines that were set before an append are extended only by what it took beyond this.

Otherwise a client that causes one append after another would keep a phase open forever.
"""


class Unheard(NamedTuple):
    """The period in which the members of a group could not be heard, in monotonic ms. `since_ms`: its earliest possible
    start.
    """

    since_ms: int
    until_ms: int


def extend_session(soft: SoftState, member_id: MemberId, arrived_ms: int, now_ms: int) -> None:
    """Extend a member's session by the time that its request waited for the response that is sent now.

    A client may send nothing before it has the response. No session gets more than its full time from now on.
    """
    if arrived_ms == now_ms:
        return  # the usual case
    for session in (soft.sessions.get(member_id), soft.pending_members.get(member_id)):
        if session is not None:
            lengthened_ms = min(session.deadline_ms + now_ms - arrived_ms, now_ms + session.timeout_ms)
            session.deadline_ms = max(session.deadline_ms, lengthened_ms)


def extend_deadlines(soft: SoftState, before: SoftState, took_ms: int) -> None:
    """Extend the deadlines of phases by the time that an append took.

    `before` and `soft` are the state before and after the decisions. Deadlines that the decisions set start now; the
    others are extended by whatever the append took beyond USUAL_APPEND_MS, since the group answered no request during
    it.
    """
    unusual_ms = max(0, took_ms - USUAL_APPEND_MS)
    rearmed = dict(soft.rearmed)

    def extended(key: str, deadline_ms: int, deadline_before_ms: int | None) -> int:
        extended_ms = deadline_ms + (took_ms if deadline_ms != deadline_before_ms else unusual_ms)
        if rearmed.get(key) == deadline_ms:
            rearmed[key] = extended_ms
        return extended_ms

    for phase in PHASES:
        deadline_ms = getattr(soft, phase)
        if deadline_ms is not None:
            setattr(soft, phase, extended(phase, deadline_ms, getattr(before, phase)))
    for member_id, deadline_ms in soft.member_sync_deadlines.items():
        deadline_before_ms = before.member_sync_deadlines.get(member_id)
        soft.member_sync_deadlines[member_id] = extended(member_id, deadline_ms, deadline_before_ms)
    soft.rearmed = rearmed


def restart_deadlines(group: Group | None, soft: SoftState, heard_since_ms: int) -> None:
    """Give all sessions and phases their full time from `heard_since_ms`, since no member could be heard before."""
    for session in chain(soft.sessions.values(), soft.pending_members.values()):
        session.deadline_ms = max(session.deadline_ms, heard_since_ms + session.timeout_ms)
    _move_others(group, soft, lambda _, deadline_ms, timeout_ms: max(deadline_ms, heard_since_ms + timeout_ms))


def rearm(group: Group | None, soft: SoftState, until_ms: int, *, late_ms: int) -> int:
    """Give all sessions and phases their full time from `until_ms`, since no member could be heard for `late_ms`
    before.

    Either Muster itself was late, or the broker in between was unreachable. A member that was already given its full
    time for this and was not heard from since gets only the lost time, and so does a phase that has not ended since:
    otherwise, if such outages recur, dead members would stay and phases never end. Time that was already made up for is
    not counted twice. Returns how many sessions have their full time; one that two copies of a group share counts once.
    """
    in_full = sum(_rearm_session(session, until_ms, late_ms) for session in soft.sessions.values())
    for pending in soft.pending_members.values():
        _rearm_session(pending, until_ms, late_ms)
    rearmed: dict[str, int] = {}
    lost_ms = max(0, min(late_ms, until_ms - soft.rearmed_ms))

    def again(key: str, deadline_ms: int, timeout_ms: int) -> int:
        had_full_time = soft.rearmed.get(key) == deadline_ms
        moved_ms = deadline_ms + lost_ms if had_full_time else max(deadline_ms, until_ms + timeout_ms)
        if had_full_time or moved_ms > deadline_ms:
            rearmed[key] = moved_ms
        return moved_ms

    _move_others(group, soft, again)
    soft.rearmed, soft.rearmed_ms = rearmed, max(soft.rearmed_ms, until_ms)
    return in_full


def _rearm_session(session: Session, until_ms: int, late_ms: int) -> bool:
    """Give more time to one session; return whether it has its full time."""
    if session.rearmed_ms >= until_ms:
        return False  # already made up for; copies of a group share their sessions
    rearmed_ms, session.rearmed_ms = session.rearmed_ms, until_ms
    if rearmed_ms >= session.last_seen_ms:
        session.deadline_ms += min(late_ms, until_ms - rearmed_ms)
        return False
    session.deadline_ms = max(session.deadline_ms, until_ms + session.timeout_ms)
    return True


def _move_others(group: Group | None, soft: SoftState, moved: Callable[[str, int, int], int]) -> None:
    """Set all deadlines but those of sessions. `moved` computes one from its key, current value and full time."""
    if group is not None:
        for phase, timeout_ms in _full_times_ms(group, soft).items():
            deadline_ms = getattr(soft, phase)
            if deadline_ms is not None:
                setattr(soft, phase, moved(phase, deadline_ms, timeout_ms))
        for member_id, deadline_ms in soft.member_sync_deadlines.items():
            timeout_ms = max(group.members[member_id].rebalance_timeout_ms, 0)
            soft.member_sync_deadlines[member_id] = moved(member_id, deadline_ms, timeout_ms)
    for member_id, held in soft.held_joins.items():
        if not held.parked:
            deadline_ms = moved(member_id, held.deadline_ms, RETRY_WINDOW_MS)
            soft.held_joins[member_id] = msgspec.structs.replace(held, deadline_ms=deadline_ms)


def _full_times_ms(group: Group, soft: SoftState) -> dict[str, int]:
    """Return the full time of each phase, by its field."""
    rejoin_ms = max(rebalance_timeout_ms(group), MIN_WAIT_MS)
    return {
        "join_deadline_ms": rejoin_ms if soft.initial_delay is None else soft.initial_delay.delay_ms,
        "sync_deadline_ms": rebalance_timeout_ms(group),
        "registration_deadline_ms": registration_timeout_ms(group.config),
        "expansion_deadline_ms": group.config.expansion_delay_ms or 0,
        "retirement_deadline_ms": retirement_timeout_ms(group.config),
        "promotion_deadline_ms": group.config.learner_timeout_ms or 0,
    }
