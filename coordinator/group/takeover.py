"""Soft state at both ends of an ownership: made anew after a read of the log, answered for when given up.

And a group that nobody asks for: one whose offsets were found.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller
from muster.coordinator.group.configs import registration_timeout_ms, retirement_timeout_ms
from muster.coordinator.group.departures import retiring_members
from muster.coordinator.group.outcomes import JoinGroupOutcome, Reply, SyncGroupOutcome
from muster.coordinator.group.rebalance import rebalance_timeout_ms, subscriptions
from muster.coordinator.group.roles import learners
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft import InitialDelay, Session, Sessions, Soft
from muster.coordinator.group.turn import Moment, Turn
from muster.events.causes import Cause
from muster.events.events import GroupCreated
from muster.events.ids import GroupId, MemberId
from muster.events.state import Group, GroupState, MemberRole, new_group
from muster.events.tables import TableSet


def resume(group: Group, now_ms: int, settings: GroupSettings) -> Soft:
    """Every session in full (LD5, L9), the timer of the phase that was running in full.

    A rebalance in flight goes on, unlike in Kafka (LD7): joins are events. A member counts as awaiting join only once
    its request is parked here; one that joined and never asks again falls to the sync timer.
    """
    soft = Soft(
        sessions=Sessions(
            {
                member.member_id: Session(
                    timeout_ms=member.session_timeout_ms,
                    deadline_ms=now_ms + member.session_timeout_ms,
                    heard_ms=now_ms,
                )
                for member in group.members.values()
            }
        ),
        subscribed_topics=subscriptions(group),
    )
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            _resume_join_phase(group, soft, now_ms, settings)
        case GroupState.COMPLETING_REBALANCE:
            soft.unsynced = TableSet(group.members)
            soft.sync_deadline_ms = now_ms + rebalance_timeout_ms(group)
        case GroupState.STABLE:
            for member in group.members.values():
                if member.role is MemberRole.CALLED:
                    soft.catching_up[member.member_id] = now_ms + max(member.rebalance_timeout_ms, 0)
        case GroupState.EMPTY | GroupState.DEAD:
            pass
    _resume_plans(group, soft, now_ms)
    return soft


def _resume_plans(group: Group, soft: Soft, now_ms: int) -> None:
    """What was planned has its full time again; arrivals ask again by themselves."""
    if group.registrations:
        soft.registration_deadline_ms = now_ms + registration_timeout_ms(group.config)
    if retiring_members(group):
        soft.retirement_deadline_ms = now_ms + retirement_timeout_ms(group.config)
    if learners(group):
        soft.promotion_deadline_ms = now_ms + (group.config.learner_timeout_ms or 0)


def _resume_join_phase(group: Group, soft: Soft, now_ms: int, settings: GroupSettings) -> None:
    if group.image.previous_state is GroupState.EMPTY:
        delay_ms = settings.initial_rebalance_delay_ms
        remaining_ms = max(rebalance_timeout_ms(group) - delay_ms, 0)
        # Those who joined come back within the delay and may bring others: once more is allowed.
        soft.initial_delay = InitialDelay(delay_ms=delay_ms, remaining_ms=remaining_ms, member_joined=True)
        soft.join_deadline_ms = now_ms + delay_ms
    else:
        soft.join_deadline_ms = now_ms + rebalance_timeout_ms(group)


def give_up(soft: Soft, error: ErrorCode) -> tuple[Reply, ...]:
    """LD12: the parked requests of a group that is no longer ours, answered; joins with their own member id."""

    def join(member_id: MemberId, caller: Caller) -> Reply:
        return Reply(caller.request_id, JoinGroupOutcome(error=error, member_id=member_id))

    def sync(caller: Caller) -> Reply:
        return Reply(caller.request_id, SyncGroupOutcome(error=error))

    return (
        *(join(member_id, caller) for member_id, caller in soft.joins.items()),
        *(join(member_id, each.join.caller) for member_id, each in soft.arrivals.items() if each.parked),
        *(sync(caller) for caller in soft.syncs.values()),
    )


def group_of_offsets(group_id: GroupId, moment: Moment, settings: GroupSettings) -> GroupCreated:
    """What makes a group that is known by its committed offsets alone: Empty, as a simple consumer's (OC1)."""
    turn = Turn(new_group(group_id, incarnation=moment.incarnation, wall_ms=moment.wall_ms), Soft(), moment, settings)
    turn.because_time_passed(Cause.OFFSETS_FOUND, moment.now_ms)
    turn.record(GroupCreated)
    (created,) = turn.events
    assert isinstance(created, GroupCreated)
    return created
