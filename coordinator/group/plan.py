"""What an administrator asked of a group's membership, checked and ready to be carried out; and carrying it out."""

import msgspec

from muster.coordinator.group.configs import retirement_timeout_ms
from muster.coordinator.group.departures import rebalance_if_all_gone
from muster.coordinator.group.members import end_registration_of
from muster.coordinator.group.outcomes import ReleasedMember
from muster.coordinator.group.plan_deadlines import admit_unheld, rebalance_if_complete, rebalance_with_all_learners
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.release import release_members
from muster.coordinator.group.roles import change_role, knows_roles, promote
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import InstanceRegistered, Why
from muster.events.ids import GroupInstanceId
from muster.events.state import GroupConfig, GroupState, Member, MemberRole, Registration


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`config` is wanted as a whole; everything else is what is to be added to, or taken from, what there is."""

    config: GroupConfig
    registered: tuple[GroupInstanceId, ...] = ()
    withdrawn: tuple[GroupInstanceId, ...] = ()
    retired: tuple[Member, ...] = ()
    kept: tuple[Member, ...] = ()
    promoted: tuple[Member, ...] = ()
    rebalance: bool = False


def apply_plan(turn: Turn, plan: Plan) -> tuple[ReleasedMember, ...]:
    """Carry it out because of what the turn's `why` says. One rebalance at most: a second one finds the first.

    Returns who was in the group if it was released to the cluster upstream; that comes last.
    """
    before, asked = turn.group.config, turn.why
    if plan.config != before:
        turn.record_config(plan.config)
        _after_configured(turn, before)
    _register(turn, plan, asked)
    _retire(turn, plan, asked)
    learning = [each for each in plan.promoted if turn.group.members[each.member_id].role is MemberRole.LEARNER]
    if learning:  # switching learning off, in the same request, has promoted all
        turn.why = _so(asked, Cause.LEARNERS_PROMOTED)
        promote(turn, learning)
        _rebalance(turn)
    if plan.rebalance:
        turn.why = _so(asked, Cause.REBALANCE_REQUESTED)
        _rebalance(turn)
    is_released = plan.config.coordinator is not None and before.coordinator is None
    return release_members(turn, asked) if is_released else ()


def _so(asked: Why, cause: Cause) -> Why:
    """Whatever came of the part before, this one is due to who asked."""
    return msgspec.structs.replace(asked, cause=cause)


def _rebalance(turn: Turn) -> None:
    """A running join phase takes what was changed along."""
    if turn.image.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(turn)


def _after_configured(turn: Turn, before: GroupConfig) -> None:
    soft, config = turn.soft, turn.group.config
    if config.registration_timeout_ms != before.registration_timeout_ms:
        soft.registration_deadline_ms = None  # armed anew, as are the others, if there is anything to wait for
    if config.learner_timeout_ms != before.learner_timeout_ms:
        soft.promotion_deadline_ms = None
    if soft.retirement_deadline_ms is not None and config.retirement_timeout_ms != before.retirement_timeout_ms:
        soft.retirement_deadline_ms = turn.now_ms + retirement_timeout_ms(config)
    if soft.expansion_deadline_ms is not None and config.expansion_delay_ms != before.expansion_delay_ms:
        soft.expansion_deadline_ms = None
        if config.expansion_delay_ms:
            soft.expansion_deadline_ms = turn.now_ms + config.expansion_delay_ms
        admit_unheld(turn)
    if turn.census.number_of(MemberRole.LEARNER) and config.learner_timeout_ms is None:
        rebalance_with_all_learners(turn)
    if config.target_group_size != before.target_group_size and _target_is_missed(turn):
        _rebalance(turn)


def _target_is_missed(turn: Turn) -> bool:
    """Whether another number of members would be active after a rebalance."""
    group = turn.group
    if not knows_roles(turn):
        return False
    target = group.config.target_group_size
    active = turn.census.active
    standing_by = turn.census.number_of(MemberRole.STANDBY) > 0
    return standing_by if target is None else active > target or (active < target and standing_by)


def _register(turn: Turn, plan: Plan, asked: Why) -> None:
    if plan.withdrawn:
        turn.why = _so(asked, Cause.REGISTRATION_WITHDRAWN)
        for instance in plan.withdrawn:
            end_registration_of(turn, instance)
        admit_unheld(turn)
    # One that waited for a delay to end may have been taken in by another part of this request.
    expected = [instance for instance in plan.registered if instance not in turn.group.instances]
    if expected:
        turn.why = _so(asked, Cause.INSTANCES_REGISTERED)
        for instance in expected:
            registration = Registration(group_instance_id=instance, registered_ms=turn.moment.wall_ms)
            turn.record_registration(InstanceRegistered, registration)
        turn.soft.registration_deadline_ms = None  # the time begins anew, for all of them
    if plan.withdrawn or plan.registered:
        rebalance_if_complete(turn)


def _retire(turn: Turn, plan: Plan, asked: Why) -> None:
    if plan.retired:
        turn.why = _so(asked, Cause.MEMBERS_RETIRED)
        for member in plan.retired:
            change_role(turn, turn.group.members[member.member_id], retiring=True)
        if turn.soft.retirement_deadline_ms is None or not turn.image.departures_gathered:
            turn.soft.retirement_deadline_ms = turn.now_ms + retirement_timeout_ms(turn.group.config)
    if plan.kept:
        turn.why = _so(asked, Cause.RETIREMENT_WITHDRAWN)
        for member in plan.kept:
            change_role(turn, turn.group.members[member.member_id], retiring=False)
        rebalance_if_all_gone(turn)
