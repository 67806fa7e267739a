"""Applies a validated change of a group's configs and membership that an administrator requested."""

import msgspec

from muster.coordinator.group.configs import retirement_timeout_ms
from muster.coordinator.group.departures import rebalance_if_retirement_complete
from muster.coordinator.group.members import end_registration_of
from muster.coordinator.group.membership_timeouts import (
    rebalance_if_joins_may_proceed,
    rebalance_if_registration_complete,
    rebalance_with_all_learners,
)
from muster.coordinator.group.outcomes import ReleasedMember
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.release import release_members
from muster.coordinator.group.roles import change_role, promote, supports_roles
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import InstanceRegistered, Why
from muster.events.ids import GroupInstanceId
from muster.events.state import GroupConfig, GroupState, Member, MemberRole, Registration


class MembershipChange(msgspec.Struct, frozen=True, kw_only=True):
    """`config` replaces the group's; the other fields are added to, or removed from, the current state.

    `withdrawn`: registrations to be removed. `kept`: members whose retirement is withdrawn.
    """

    config: GroupConfig
    registered: tuple[GroupInstanceId, ...] = ()
    withdrawn: tuple[GroupInstanceId, ...] = ()
    retired: tuple[Member, ...] = ()
    kept: tuple[Member, ...] = ()
    promoted: tuple[Member, ...] = ()
    rebalance: bool = False


def apply_change(turn: Turn, change: MembershipChange) -> tuple[ReleasedMember, ...]:
    """Apply the change with the turn's `why`, in at most one rebalance.

    Returns the former members if the group was released to the cluster upstream, which is the last step.
    """
    before, asked = turn.group.config, turn.why
    config = change.config
    if config.unassigned_rebalance_delay_ms != before.unassigned_rebalance_delay_ms:
        config = msgspec.structs.replace(config, rebalanced_for=())  # a new delay applies to all that is unassigned now
    if config != before:
        turn.record_config(config)
        _after_configured(turn, before)
    _register(turn, change, asked)
    _retire(turn, change, asked)
    learning = [each for each in change.promoted if turn.group.members[each.member_id].role is MemberRole.LEARNER]
    if learning:  # disabling the learner timeout in the same request has promoted all of them already
        turn.why = _caused_by(asked, Cause.LEARNERS_PROMOTED)
        promote(turn, learning)
        _rebalance(turn)
    if change.rebalance:
        turn.why = _caused_by(asked, Cause.REBALANCE_REQUESTED)
        _rebalance(turn)
    is_released = change.config.coordinator is not None and before.coordinator is None
    return release_members(turn, asked) if is_released else ()


def _caused_by(asked: Why, cause: Cause) -> Why:
    """Attribute the next part to the request, regardless of what the previous part caused."""
    return msgspec.structs.replace(asked, cause=cause)


def _rebalance(turn: Turn) -> None:
    """Rebalance, unless a join phase is running, which takes the change into account anyway."""
    if turn.image.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(turn)


def _after_configured(turn: Turn, before: GroupConfig) -> None:
    soft, config = turn.soft, turn.group.config
    if config.registration_timeout_ms != before.registration_timeout_ms:
        soft.registration_deadline_ms = None  # rearmed, like the others, if there is anything to wait for
    if config.learner_timeout_ms != before.learner_timeout_ms:
        soft.promotion_deadline_ms = None
    if soft.retirement_deadline_ms is not None and config.retirement_timeout_ms != before.retirement_timeout_ms:
        soft.retirement_deadline_ms = turn.now_ms + retirement_timeout_ms(config)
    if soft.expansion_deadline_ms is not None and config.expansion_delay_ms != before.expansion_delay_ms:
        soft.expansion_deadline_ms = None
        if config.expansion_delay_ms:
            soft.expansion_deadline_ms = turn.now_ms + config.expansion_delay_ms
        rebalance_if_joins_may_proceed(turn)
    if turn.census.number_of(MemberRole.LEARNER) and config.learner_timeout_ms is None:
        rebalance_with_all_learners(turn)
    if config.target_group_size != before.target_group_size and _target_is_missed(turn):
        _rebalance(turn)


def _target_is_missed(turn: Turn) -> bool:
    """Return whether a rebalance would change the number of active members."""
    group = turn.group
    if not supports_roles(turn):
        return False
    target = group.config.target_group_size
    active = turn.census.active
    standing_by = turn.census.number_of(MemberRole.STANDBY) > 0
    return standing_by if target is None else active > target or (active < target and standing_by)


def _register(turn: Turn, change: MembershipChange, asked: Why) -> None:
    if change.withdrawn:
        turn.why = _caused_by(asked, Cause.REGISTRATION_WITHDRAWN)
        for instance in change.withdrawn:
            end_registration_of(turn, instance)
        rebalance_if_joins_may_proceed(turn)
    # One that waited for a delay to end may have been admitted by another part of this request.
    expected = [instance for instance in change.registered if instance not in turn.group.instances]
    if expected:
        turn.why = _caused_by(asked, Cause.INSTANCES_REGISTERED)
        for instance in expected:
            registration = Registration(group_instance_id=instance, registered_ms=turn.now.wall_ms)
            turn.record_registration(InstanceRegistered, registration)
        turn.soft.registration_deadline_ms = None  # the timeout restarts for all of them
    if change.withdrawn or change.registered:
        rebalance_if_registration_complete(turn)


def _retire(turn: Turn, change: MembershipChange, asked: Why) -> None:
    if change.retired:
        turn.why = _caused_by(asked, Cause.MEMBERS_RETIRED)
        for member in change.retired:
            change_role(turn, turn.group.members[member.member_id], retiring=True)
        if turn.soft.retirement_deadline_ms is None or not turn.image.departures_gathered:
            turn.soft.retirement_deadline_ms = turn.now_ms + retirement_timeout_ms(turn.group.config)
    if change.kept:
        turn.why = _caused_by(asked, Cause.RETIREMENT_WITHDRAWN)
        for member in change.kept:
            change_role(turn, turn.group.members[member.member_id], retiring=False)
        rebalance_if_retirement_complete(turn)
