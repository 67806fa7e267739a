"""The start and the end of owning a group: restoring its soft state, and failing its parked requests.

Also creates groups of which only committed offsets are known.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller
from muster.coordinator.group.configs import registration_timeout_ms, retirement_timeout_ms
from muster.coordinator.group.departures import retiring_members
from muster.coordinator.group.outcomes import JoinGroupOutcome, Reply, SyncGroupOutcome
from muster.coordinator.group.rebalance import rebalance_timeout_ms, subscriptions
from muster.coordinator.group.roles import learners
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import InitialDelay, Session, Sessions, SoftState
from muster.coordinator.group.turn import Now, Turn
from muster.events.causes import Cause
from muster.events.events import GroupCreated
from muster.events.ids import GroupId, MemberId
from muster.events.state import Group, GroupState, MemberRole, new_group
from muster.events.tables import TableSet


def restore_soft_state(group: Group, now_ms: int, settings: GroupSettings) -> SoftState:
    """Build the soft state of a group that was read from the log: sessions and phases have their full time (LD5, L9).

    No member counts as heard from after a takeover.

    A rebalance in flight continues, unlike in Kafka (LD7), since joins are events. A member has joined only once its
    request is parked here; one that never retries runs into the deadline of the sync phase.
    """
    soft = SoftState(
        sessions=Sessions(
            {
                member.member_id: Session(
                    timeout_ms=member.session_timeout_ms,
                    deadline_ms=now_ms + member.session_timeout_ms,
                    last_seen_ms=now_ms,
                    heard=False,
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
            soft.pending_syncs = TableSet(group.members)
            soft.sync_deadline_ms = now_ms + rebalance_timeout_ms(group)
        case GroupState.STABLE:
            for member in group.members.values():
                if member.role is MemberRole.CALLED:
                    soft.member_sync_deadlines[member.member_id] = now_ms + max(member.rebalance_timeout_ms, 0)
        case GroupState.EMPTY | GroupState.DEAD:
            pass
    _resume_plans(group, soft, now_ms)
    return soft


def _resume_plans(group: Group, soft: SoftState, now_ms: int) -> None:
    """Give registrations, retirements and learners their full time; held joins are retried by their clients."""
    if group.registrations:
        soft.registration_deadline_ms = now_ms + registration_timeout_ms(group.config)
    if retiring_members(group):
        soft.retirement_deadline_ms = now_ms + retirement_timeout_ms(group.config)
    if learners(group):
        soft.promotion_deadline_ms = now_ms + (group.config.learner_timeout_ms or 0)


def _resume_join_phase(group: Group, soft: SoftState, now_ms: int, settings: GroupSettings) -> None:
    if group.image.previous_state is GroupState.EMPTY:
        delay_ms = settings.initial_rebalance_delay_ms
        remaining_ms = max(rebalance_timeout_ms(group) - delay_ms, 0)
        # Members that had joined come back within the delay; the delay may be extended once more.
        soft.initial_delay = InitialDelay(delay_ms=delay_ms, remaining_ms=remaining_ms, new_member_added=True)
        soft.join_deadline_ms = now_ms + delay_ms
    else:
        soft.join_deadline_ms = now_ms + rebalance_timeout_ms(group)


def fail_parked_requests(soft: SoftState, error: ErrorCode) -> tuple[Reply, ...]:
    """Answer the parked requests of a group that is given up with the error (LD12); joins with their member id."""

    def join(member_id: MemberId, caller: Caller) -> Reply:
        return Reply(caller.request_id, JoinGroupOutcome(error=error, member_id=member_id))

    def sync(caller: Caller) -> Reply:
        return Reply(caller.request_id, SyncGroupOutcome(error=error))

    return (
        *(join(member_id, caller) for member_id, caller in soft.parked_joins.items()),
        *(join(member_id, each.join.caller) for member_id, each in soft.held_joins.items() if each.parked),
        *(sync(caller) for caller in soft.parked_syncs.values()),
    )


def group_of_offsets(group_id: GroupId, now: Now, settings: GroupSettings) -> GroupCreated:
    """Return the event that creates an Empty group for offsets without a group, as for a simple consumer (OC1)."""
    turn = Turn(new_group(group_id, incarnation=now.incarnation, wall_ms=now.wall_ms), SoftState(), now, settings)
    turn.caused_by_deadline(Cause.OFFSETS_FOUND, now.monotonic_ms)
    turn.record(GroupCreated)
    (created,) = turn.events
    assert isinstance(created, GroupCreated)
    return created
