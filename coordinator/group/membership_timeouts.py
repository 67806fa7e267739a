"""The end of registrations, of the expansion delay and of learning, each of which causes one rebalance.

A registration that completes while the leader computes an assignment waits until the group is Stable.
"""

from muster.coordinator.group.configs import registration_timeout_ms
from muster.coordinator.group.held_joins import all_arrived
from muster.coordinator.group.members import end_registration_of
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.roles import learners, promote
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.state import GroupState, MemberRole


def arm_deadlines(turn: Turn) -> None:
    """Set the deadlines of what the group waits for, and clear the others; at the end of each decision."""
    group, soft = turn.group, turn.soft
    if not group.registrations:
        soft.registration_deadline_ms = None
    elif soft.registration_deadline_ms is None:
        soft.registration_deadline_ms = turn.now_ms + registration_timeout_ms(group.config)
    learner_timeout_ms = group.config.learner_timeout_ms
    if learner_timeout_ms is None or not turn.census.number_of(MemberRole.LEARNER):
        soft.promotion_deadline_ms = None
    elif soft.promotion_deadline_ms is None:
        soft.promotion_deadline_ms = turn.now_ms + learner_timeout_ms
    if soft.retirement_deadline_ms is not None and not turn.census.retiring:
        soft.retirement_deadline_ms = None


def rebalance_if_registration_complete(turn: Turn) -> None:
    """Rebalance if all registered instances have joined (KIP-469); only in Stable, so as not to interrupt an
    assignment.
    """
    expected = turn.group.registrations
    if turn.image.state is GroupState.STABLE and expected and all_arrived(turn, expected):
        member_id, last = list(turn.soft.held_joins.items())[-1]
        turn.caused_by(Cause.REGISTRATION_COMPLETE, last.join.caller, member_id, last.join.group_instance_id)
        prepare_rebalance(turn)


def rebalance_if_joins_may_proceed(turn: Turn) -> None:
    """Rebalance with the turn's `why` if a held join no longer waits for a registration or delay."""
    waiting = {held.join.group_instance_id for held in turn.soft.held_joins.values()}
    if turn.soft.expansion_deadline_ms is None and not waiting <= turn.group.registrations.keys():
        prepare_rebalance(turn)


def end_registration(turn: Turn) -> None:
    """End a registration at its timeout (KIP-469), in one rebalance with the instances that joined."""
    deadline_ms = turn.soft.registration_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.caused_by_deadline(Cause.REGISTRATION_TIMED_OUT, deadline_ms)
    for instance in list(turn.group.registrations):
        end_registration_of(turn, instance)
    rebalance_if_joins_may_proceed(turn)


def end_expansion(turn: Turn) -> None:
    """Admit held joins when the expansion delay is over."""
    deadline_ms = turn.soft.expansion_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.soft.expansion_deadline_ms = None
    turn.caused_by_deadline(Cause.EXPANSION_DELAY_ELAPSED, deadline_ms)
    rebalance_if_joins_may_proceed(turn)


def promote_learners(turn: Turn) -> None:
    """Promote all learners, in one rebalance, when the learner timeout of the first has elapsed."""
    deadline_ms = turn.soft.promotion_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.caused_by_deadline(Cause.LEARNER_TIMEOUT_ELAPSED, deadline_ms)
    rebalance_with_all_learners(turn)


def rebalance_with_all_learners(turn: Turn) -> None:
    """Promote every learner, in one rebalance with the turn's `why`."""
    promoted = learners(turn.group)
    promote(turn, promoted)
    if promoted:
        prepare_rebalance(turn)
