"""Find a group's deadlines by checking every member, to compare with the rules' faster way."""

from muster.coordinator.group.commands import AnyDeadline
from muster.coordinator.group.soft_state import NEVER, SoftState
from muster.coordinator.group.timeouts import due
from muster.events.ids import GroupId


def deadlines(soft: SoftState) -> list[float]:
    """Return all deadlines, unordered."""
    phases = (
        soft.join_deadline_ms,
        soft.sync_deadline_ms,
        soft.registration_deadline_ms,
        soft.expansion_deadline_ms,
        soft.retirement_deadline_ms,
        soft.promotion_deadline_ms,
    )
    return [
        *(session.deadline_ms for session in soft.sessions.values()),
        *(session.deadline_ms for session in soft.pending_members.values()),
        *(arrival.deadline_ms for arrival in soft.held_joins.values()),
        *soft.member_sync_deadlines.values(),
        *(deadline_ms for deadline_ms in phases if deadline_ms is not None),
    ]


def next_deadline_ms(soft: SoftState) -> float:
    """Return the earliest deadline, or NEVER. The rules may check sooner than that, but not later."""
    next_ms = min(deadlines(soft), default=NEVER)
    assert soft.next_deadline_ms() <= next_ms, "a deadline would be overlooked"
    return next_ms


def all_due(group_id: GroupId, soft: SoftState, now_ms: int) -> list[AnyDeadline]:
    """Return the deadlines that the rules find due, checked to be complete; then the rules check nothing until one may
    be due.
    """
    found = due(group_id, soft, now_ms)
    come = sorted(int(deadline_ms) for deadline_ms in deadlines(soft) if deadline_ms <= now_ms)
    assert [command.due_ms for command in found] == come, "a deadline was overlooked"
    assert found or soft.next_deadline_ms() > now_ms, "the same moment comes again and again"
    return found
