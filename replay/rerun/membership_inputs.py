"""Reconstructs the commands behind events of Muster's own membership features, for `inputs.py`.

alterations      everything that one IncrementalAlterConfigs did: settings, lists, a requested rebalance
arrivals         delayed joins leave no event until they are admitted: they are restored from the admission
plans            the deadline of a plan has passed
standbys         the called standby asks for its assignment
"""

from collections.abc import Iterator
from typing import TypeGuard

from muster.coordinator.group.alter_configs import FORCE
from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyCommand,
    ConfigChange,
    ConfigOperation,
    DeleteGroup,
    EndExpansion,
    EndRegistration,
    EndRetirement,
    JoinGroup,
    PromoteLearners,
    ReleaseGroup,
    SyncGroup,
)
from muster.coordinator.group.configs import GROUP_CONFIGS, LEARNERS, REBALANCE, REGISTERED, RETIRED
from muster.coordinator.group.departures import retiring_members
from muster.coordinator.group.roles import learners
from muster.coordinator.group.soft_state import HeldJoin, HeldJoins
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    GroupAdvanced,
    GroupConfigured,
    GroupEvent,
    InstanceRegistered,
    MemberJoined,
    MemberRoleChanged,
    RebalanceStarted,
    RegistrationEnded,
)
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import Group
from muster.replay.rerun.situation import PATIENCE_MS, Situation, caller, is_same_request

ALTER_CONFIGS = 44


def derive_planned(situation: Situation) -> AnyCommand | None:
    """Reconstruct an administrator's request, or the passing of a plan's deadline; None if it was neither.

    A deletion is included, since it begins by ending the existing plans.
    """
    event, why = situation.event, situation.why
    if why.cause is Cause.GROUP_RELEASED:
        return ReleaseGroup(group_id=situation.group_id, caller=caller(why))
    if why.api_key == ALTER_CONFIGS:
        return _alteration(situation) if situation.group is not None else None
    if why.cause is Cause.GROUP_DELETED:
        return DeleteGroup(group_id=situation.group_id, caller=caller(why))
    due_ms, soft, group_id = why.arrived_ms, situation.soft, situation.group_id
    match why.cause:
        case Cause.REGISTRATION_TIMED_OUT:
            soft.registration_deadline_ms = due_ms
            return EndRegistration(group_id=group_id, due_ms=due_ms)
        case Cause.EXPANSION_DELAY_ELAPSED:
            soft.expansion_deadline_ms = due_ms
            return EndExpansion(group_id=group_id, due_ms=due_ms)
        case Cause.RETIREMENT_TIMED_OUT:
            soft.retirement_deadline_ms = due_ms
            return EndRetirement(group_id=group_id, due_ms=due_ms)
        case Cause.LEARNER_TIMEOUT_ELAPSED:
            soft.promotion_deadline_ms = due_ms
            return PromoteLearners(group_id=group_id, due_ms=due_ms)
        case Cause.STANDBY_TOOK_OVER if isinstance(event, MemberRoleChanged):
            return SyncGroup(
                group_id=group_id,
                caller=caller(why),
                member_id=event.member.member_id,
                group_instance_id=event.member.group_instance_id,
                generation_id=situation.group.generation_id if situation.group is not None else 0,
                protocol_type=None,
                protocol_name=None,
                assignments=(),
            )
        case _:
            return None


# ---- alterations --------------------------------------------------------------------------------


def _alteration(situation: Situation) -> AlterGroupConfig:
    """Reconstruct one request that sets each list to its resulting value, however it was changed."""
    group = situation.group
    assert group is not None
    request = list(_of_one_request(situation))
    return AlterGroupConfig(
        group_id=situation.group_id,
        caller=caller(situation.why),
        changes=tuple(_changes(request, group)),
        validate_only=False,
    )


_ORDER = (
    Cause.GROUP_CONFIGURED,
    Cause.REGISTRATION_WITHDRAWN,
    Cause.INSTANCES_REGISTERED,
    Cause.MEMBERS_RETIRED,
    Cause.RETIREMENT_WITHDRAWN,
    Cause.LEARNERS_PROMOTED,
    Cause.REBALANCE_REQUESTED,
)
"""The order in which the parts of a request are applied (`membership_change.py`); an earlier part belongs to another
request.
"""


def _of_one_request(situation: Situation) -> Iterator[AnyEvent]:
    reached = 0
    for position, event in enumerate(situation.events):
        if event.why.decided_ms != situation.why.decided_ms or (position and isinstance(event, GroupConfigured)):
            return
        if is_same_request(event.why, situation.why):
            rank = _ORDER.index(event.why.cause) if event.why.cause in _ORDER else reached
            if rank < reached:
                return
            reached = rank
            yield event
        if isinstance(event, GroupAdvanced):
            return


def _changes(request: list[AnyEvent], group: Group) -> Iterator[ConfigChange]:
    for event in request:
        if isinstance(event, GroupConfigured):
            yield from _numbers(event, group)
    if any(event.why.cause is Cause.REBALANCE_REQUESTED for event in request):
        yield ConfigChange(name=REBALANCE, operation=ConfigOperation.SET, value=FORCE)
    registered: list[str] = [e.registration.group_instance_id for e in request if isinstance(e, InstanceRegistered)]
    withdrawn: list[str] = [
        event.registration.group_instance_id
        for event in request
        if isinstance(event, RegistrationEnded) and event.why.cause is Cause.REGISTRATION_WITHDRAWN
    ]
    yield from _list(REGISTERED, list(group.registrations), registered, withdrawn)
    retired, kept = _changed(request, Cause.MEMBERS_RETIRED), _changed(request, Cause.RETIREMENT_WITHDRAWN)
    yield from _list(RETIRED, [member.name for member in retiring_members(group)], retired, kept)
    promoted = _changed(request, Cause.LEARNERS_PROMOTED)
    yield from _list(LEARNERS, [member.name for member in learners(group)], [], promoted)


def _changed(request: list[AnyEvent], cause: Cause) -> list[str]:
    return [e.member.name for e in request if isinstance(e, MemberRoleChanged) and e.why.cause is cause]


def _numbers(event: GroupConfigured, group: Group) -> Iterator[ConfigChange]:
    for name, definition in GROUP_CONFIGS.items():
        if definition.field is None:
            continue
        value = getattr(event.config, definition.field)
        if value != getattr(group.config, definition.field):
            operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
            yield ConfigChange(name=name, operation=operation, value=None if value is None else str(value))


def _list(name: str, now: list[str], added: list[str], removed: list[str]) -> Iterator[ConfigChange]:
    if added or removed:
        wanted = [*(each for each in now if each not in removed), *added]
        yield ConfigChange(name=name, operation=ConfigOperation.SET, value=",".join(wanted))


# ---- arrivals -----------------------------------------------------------------------------------


def put_arrivals_back(situation: Situation) -> None:
    """Restore the delayed joins that the decision admits, and those of clients that were sent back to retry."""
    group, soft = situation.group, situation.soft
    if group is None or not (situation.joins_were_held and _may_hold(group)):
        return
    started, admitted = _admitted(situation)
    if started is None:
        return
    ended = {event.registration.group_instance_id for event in situation.events if _ends_before(event, started)}
    soft.held_joins = HeldJoins({event.member.member_id: _arrival(situation, event) for event in admitted})
    if any(event.member.group_instance_id not in group.registrations for event in admitted):
        soft.expansion_deadline_ms = situation.why.decided_ms + PATIENCE_MS
    if started.why.cause is Cause.REGISTRATION_COMPLETE:
        came = {event.member.group_instance_id for event in admitted}
        for instance in group.registrations:
            if instance not in came | ended:
                _put_sent_back(situation, started, instance)
    elif started.why.cause is Cause.EXPANSION_DELAY_ELAPSED and not admitted:
        _put_sent_back(situation, started, None)


def _ends_before(event: AnyEvent, started: RebalanceStarted) -> TypeGuard[RegistrationEnded]:
    return isinstance(event, RegistrationEnded) and event.seq < started.seq


def _may_hold(group: Group) -> bool:
    return bool(group.registrations or group.config.expansion_delay_ms)


def _admitted(situation: Situation) -> tuple[RebalanceStarted | None, list[MemberJoined]]:
    """Return the start of a rebalance at this time, and the members that joined within the same decision."""
    started, admitted = None, []
    for event in situation.events:
        if event.why.decided_ms != situation.why.decided_ms:
            break
        if isinstance(event, RebalanceStarted) and started is None:
            started = event
        elif started is not None and isinstance(event, MemberJoined):
            admitted.append(event)
        elif isinstance(event, GroupAdvanced) or (started is not None and isinstance(event, GroupEvent)):
            break
    return started, admitted


def _arrival(situation: Situation, event: MemberJoined) -> HeldJoin:
    return HeldJoin(
        join=join_of(situation, event),
        arrived_ms=event.why.arrived_ms,
        deadline_ms=event.why.decided_ms + PATIENCE_MS,
    )


def _put_sent_back(situation: Situation, started: RebalanceStarted, instance: GroupInstanceId | None) -> None:
    """Add the join of a client that was sent back to retry: it counts as arrived, but is not admitted yet."""
    member_id = MemberId(f"an arrival that was sent back ({instance})")
    join = JoinGroup(
        group_id=situation.group_id,
        caller=caller(started.why),
        member_id=UNKNOWN_MEMBER_ID,
        group_instance_id=instance,
        proposed_member_id=member_id,
        protocol_type="",
        protocols=(),
        session_timeout_ms=0,
        rebalance_timeout_ms=0,
        reason=None,
        requires_known_member_id=False,
        supports_skip_assignment=False,
    )
    deadline_ms = started.why.decided_ms + PATIENCE_MS
    situation.soft.held_joins[member_id] = HeldJoin(
        join=join, arrived_ms=started.why.arrived_ms, deadline_ms=deadline_ms, parked=False
    )


def last_arrival(situation: Situation) -> JoinGroup | None:
    """Return the join that completed a registration: that of the last admitted member."""
    started, admitted = _admitted(situation)
    found = (event for event in admitted if started is not None and event.member.member_id == started.why.member_id)
    event = next(found, None)
    if event is None:
        return None
    situation.soft.held_joins.pop(event.member.member_id, None)
    return join_of(situation, event)


def join_of(situation: Situation, event: MemberJoined) -> JoinGroup:
    """Return the delayed join."""
    member, why, group = event.member, event.why, situation.group
    return JoinGroup(
        group_id=situation.group_id,
        caller=caller(why),
        member_id=UNKNOWN_MEMBER_ID,
        group_instance_id=member.group_instance_id,
        proposed_member_id=member.member_id,
        protocol_type=(group.image.protocol_type if group is not None else None) or "",
        protocols=member.protocols,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        reason=why.client_reason,
        requires_known_member_id=False,
        supports_skip_assignment=False,
    )
