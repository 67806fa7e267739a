"""What was planned comes true: registrations are complete or too late, a delay is over, learners have learnt.

Each ends in one rebalance. One can also be owed: a registration that was complete while the leader was computing an
assignment waits for it, and for no longer.
"""

from muster.coordinator.group.arrivals import all_arrived
from muster.coordinator.group.configs import registration_timeout_ms
from muster.coordinator.group.members import end_registration_of
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.roles import learners, promote
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.state import GroupState, MemberRole


def keep_deadlines(turn: Turn) -> None:
    """At the end of a decision: what is waited for has an end, and nothing else has."""
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


def rebalance_if_complete(turn: Turn) -> None:
    """KIP-469: all who were registered are here. In Stable alone, so that no assignment is interrupted."""
    expected = turn.group.registrations
    if turn.image.state is GroupState.STABLE and expected and all_arrived(turn, expected):
        member_id, last = list(turn.soft.arrivals.items())[-1]
        turn.because(Cause.REGISTRATION_COMPLETE, last.join.caller, member_id, last.join.group_instance_id)
        prepare_rebalance(turn)


def admit_unheld(turn: Turn) -> None:
    """Nothing holds some arrivals any more, because of what the turn's `why` says: no registration, and no delay."""
    waiting = {arrival.join.group_instance_id for arrival in turn.soft.arrivals.values()}
    if turn.soft.expansion_deadline_ms is None and not waiting <= turn.group.registrations.keys():
        prepare_rebalance(turn)


def end_registration(turn: Turn) -> None:
    """KIP-469: the timeout is over; one rebalance with those that came."""
    deadline_ms = turn.soft.registration_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.because_time_passed(Cause.REGISTRATION_TIMED_OUT, deadline_ms)
    for instance in list(turn.group.registrations):
        end_registration_of(turn, instance)
    admit_unheld(turn)


def end_expansion(turn: Turn) -> None:
    """The scale-up delay is over."""
    deadline_ms = turn.soft.expansion_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.soft.expansion_deadline_ms = None
    turn.because_time_passed(Cause.EXPANSION_DELAY_ELAPSED, deadline_ms)
    admit_unheld(turn)


def promote_learners(turn: Turn) -> None:
    """The first learner has learnt for as long as was set; the others come with it, in one rebalance."""
    deadline_ms = turn.soft.promotion_deadline_ms
    if deadline_ms is None or deadline_ms > turn.now_ms:
        return
    turn.because_time_passed(Cause.LEARNER_TIMEOUT_ELAPSED, deadline_ms)
    rebalance_with_all_learners(turn)


def rebalance_with_all_learners(turn: Turn) -> None:
    """Promote every learner because of what the turn's `why` says."""
    promoted = learners(turn.group)
    promote(turn, promoted)
    if promoted:
        prepare_rebalance(turn)
