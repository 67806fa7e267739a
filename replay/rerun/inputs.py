"""Reconstructs the commands behind recorded events, for `rerun` and for every what-if.

The first event of each transition shows what the request was. State that the rules need and the log does not have (ids
handed out by KIP-394, members that have synced, an expired deadline) is set up in the soft state so that the same
decision is possible. Monotonic time equals wall time here: the clock of a rerun is the recorded time.
"""

from typing import assert_never

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    CheckCapacity,
    CommitOffsets,
    DeleteGroup,
    EndJoinPhase,
    EndSyncPhase,
    ExpireOffsets,
    ExpirePendingMember,
    ExpireSession,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    RebalanceUnassigned,
    RejectAssignment,
    RewriteEntities,
    SyncGroup,
)
from muster.coordinator.group.soft_state import InitialDelay, Sessions
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    AnyMemberEvent,
    GroupConfigured,
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAssigned,
    MemberEvent,
    MemberFenced,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberRoleChanged,
    RebalanceStarted,
    StaticMemberReplaced,
    Why,
)
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.keys import key_of
from muster.events.state import Group, Member, Protocol, TopicSize
from muster.events.tables import TableSet
from muster.replay.rerun.leavers import leave, pending_leaver
from muster.replay.rerun.membership_inputs import derive_planned, last_arrival, put_arrivals_back
from muster.replay.rerun.replaced_members import add_replaced_member, set_replaced_members
from muster.replay.rerun.situation import PATIENCE_MS, PHANTOM, Situation, caller, is_leave, is_same_request, session_of

_JOIN_GROUP = 11
_KNOWN_ID_SINCE = 4  # JoinGroup v4: KIP-394
_SKIP_ASSIGNMENT_SINCE = 9  # JoinGroup v9: KIP-814
_OF_UNASSIGNED = frozenset({Cause.PARTITIONS_UNASSIGNED, Cause.PARTITIONS_ASSIGNED})
_PHASE_ENDS = (JoinPhaseCompleted, GroupEmptied)


def derive(situation: Situation) -> AnyCommand | None:
    """Return the command that led to the first of the events, and set up its soft state; None if it is not known."""
    event = situation.event
    if event.why.cause is Cause.RECORD_OVERWRITTEN:
        again = tuple(map(key_of, situation.until_group_event()))
        return RewriteEntities(group_id=situation.group_id, entities=again)
    if isinstance(event, GroupConfigured) and event.why.cause in _OF_UNASSIGNED:
        return _rebalance_unassigned(situation, event)
    put_arrivals_back(situation)
    planned = derive_planned(situation)
    if planned is not None:
        return planned
    if isinstance(event, MemberEvent):
        return _of_member(situation, event)
    if isinstance(event, GroupCreated):
        made_otherwise = event.why.cause in (Cause.GROUP_REPAIRED, Cause.OFFSETS_FOUND)
        return None if made_otherwise else _creation(situation)
    if isinstance(event, GroupDeleted):
        if event.why.cause is Cause.GROUP_EXPIRED:
            situation.soft.pending_members.clear()
            return ExpireOffsets(group_id=situation.group_id, offsets={}, wall_ms=event.why.decided_ms)
        return DeleteGroup(group_id=situation.group_id, caller=caller(event.why))
    if isinstance(event, JoinRefused):
        return _refused_join(situation)
    if isinstance(event, MemberFenced):
        return _fenced(situation)
    if isinstance(event, RebalanceStarted):
        return _start_without_members(situation)
    if isinstance(event, _PHASE_ENDS):
        return _end_of_join_phase(situation, event.why)
    return None


def _rebalance_unassigned(situation: Situation, event: GroupConfigured) -> RebalanceUnassigned:
    """Reconstruct the request: the topics to rebalance for, and those that are settled, which get 0 partitions."""
    before = () if situation.group is None else situation.group.config.rebalanced_for
    after = event.config.rebalanced_for
    named = {each.topic for each in after}
    settled = (TopicSize(topic=each.topic, partitions=0) for each in before if each.topic not in named)
    asked = (each for each in after if each not in before)
    return RebalanceUnassigned(group_id=situation.group_id, topics=(*asked, *settled))


def _of_member(situation: Situation, event: AnyMemberEvent) -> AnyCommand | None:
    match event:
        case StaticMemberReplaced():
            set_replaced_members(situation, seen_again=False)
            return _join(situation, event.member, event)
        case MemberJoined() | MemberRejoined():
            return _join(situation, event.member, event)
        case MemberRemoved():
            return _removal(situation, event)
        case MemberAssigned():
            return _sync(situation)
        case MemberRoleChanged():
            settled = event.why.cause is Cause.ROLES_ASSIGNED
            return _end_of_join_phase(situation, situation.until_group_event()[-1].why) if settled else None
        case _:
            assert_never(event)


# ---- joins --------------------------------------------------------------------------------------


def _join(situation: Situation, member: Member, event: AnyEvent) -> JoinGroup:
    """Reconstruct a join of this member, with the ids that it must have sent to lead to this event."""
    why = event.why
    known_id = _requires_known_id(why, member.group_instance_id)
    sent_id = member.member_id
    if isinstance(event, MemberJoined) and known_id:
        situation.soft.pending_members[member.member_id] = session_of(why)
    elif not isinstance(event, MemberRejoined):
        sent_id = UNKNOWN_MEMBER_ID
    group_event = situation.until_group_event()[-1]
    return JoinGroup(
        group_id=situation.group_id,
        caller=caller(why),
        member_id=sent_id,
        group_instance_id=member.group_instance_id,
        # With the member's own id it would be a repeated request, which leads to no event.
        proposed_member_id=PHANTOM if isinstance(event, MemberRejoined) else member.member_id,
        protocol_type=_protocol_type(group_event) or _protocol_type_of(situation.group),
        protocols=member.protocols,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        reason=why.client_reason,
        requires_known_member_id=known_id,
        supports_skip_assignment=(why.api_version or 0) >= _SKIP_ASSIGNMENT_SINCE,
    )


def _requires_known_id(why: Why, group_instance_id: GroupInstanceId | None) -> bool:
    return (why.api_version or 0) >= _KNOWN_ID_SINCE and group_instance_id is None


def _protocol_type(event: AnyEvent) -> str | None:
    return event.group.protocol_type if isinstance(event, GroupEvent) else None


def _protocol_type_of(group: Group | None) -> str:
    return (group.image.protocol_type if group is not None else None) or "consumer"


def _creation(situation: Situation) -> AnyCommand:
    """Reconstruct the request behind a group's first event: a join that added a member at once, a join that got an id,
    or a commit.
    """
    why = situation.why
    following = situation.events[1] if len(situation.events) > 1 else None
    if (
        isinstance(following, MemberJoined)
        and is_same_request(following.why, why)
        and not _requires_known_id(following.why, following.member.group_instance_id)
    ):
        rest = Situation(events=situation.events[1:], group=None, soft=situation.soft)
        return _join(rest, following.member, following)
    if isinstance(following, JoinRefused) and is_same_request(following.why, why):
        return _refused_join(Situation(events=situation.events[1:], group=None, soft=situation.soft))
    if why.api_key != _JOIN_GROUP:
        return CommitOffsets(
            group_id=situation.group_id,
            caller=caller(why),
            member_id=UNKNOWN_MEMBER_ID,
            group_instance_id=None,
            generation_id=-1,
            unknown_group_error=ErrorCode.group_id_not_found,
            offsets=(),
        )
    return _anonymous_join(situation, known_id=True)


def _anonymous_join(situation: Situation, *, known_id: bool) -> JoinGroup:
    """Reconstruct a join of which the log has only the sender. It offers no protocol unless it asks for an id."""
    why = situation.why
    return JoinGroup(
        group_id=situation.group_id,
        caller=caller(why),
        member_id=why.member_id or UNKNOWN_MEMBER_ID,
        group_instance_id=why.group_instance_id,
        proposed_member_id=PHANTOM,
        protocol_type=_protocol_type_of(situation.group),
        protocols=_offer(situation) if known_id else (),
        session_timeout_ms=PATIENCE_MS,
        rebalance_timeout_ms=PATIENCE_MS,
        reason=why.client_reason,
        requires_known_member_id=known_id,
        supports_skip_assignment=False,
    )


def _offer(situation: Situation) -> tuple[Protocol, ...]:
    """Return protocols that the group accepts."""
    members = situation.group.members.values() if situation.group is not None else ()
    return next((member.protocols for member in members), (Protocol(name="range", metadata=b""),))


def _refused_join(situation: Situation) -> JoinGroup:
    """Reconstruct a join refused for its protocols, its session timeout or its identity, or because the group is
    full.
    """
    join = _anonymous_join(situation, known_id=situation.why.cause is not Cause.PROTOCOL_MISMATCH)
    event = situation.event
    if situation.why.cause is not Cause.SESSION_TIMEOUT_REFUSED or not isinstance(event, JoinRefused):
        return join
    asked_ms = -1 if event.session_timeout_ms is None else event.session_timeout_ms  # below level 6
    return msgspec.structs.replace(join, session_timeout_ms=asked_ms)


def _fenced(situation: Situation) -> AnyCommand | None:
    """Reconstruct the request of one of two processes with the same instance id. Its type matters only for leaves, and
    for joins with a reason.

    A member that was not fenced sent a request after it had lost its instance id, without naming that id.
    """
    why, event = situation.why, situation.event
    if why.cause is Cause.INSTANCE_DUEL:
        return _duelling_join(situation)
    if is_leave(why):
        return leave(situation)
    names_instance = isinstance(event, MemberFenced) and event.error_code == ErrorCode.fenced_instance_id.value
    if not names_instance:
        add_replaced_member(situation)
    if why.api_key == _JOIN_GROUP and why.client_reason is not None:
        join = _anonymous_join(situation, known_id=True)
        return join if names_instance else msgspec.structs.replace(join, group_instance_id=None)
    return Heartbeat(
        group_id=situation.group_id,
        caller=caller(why),
        member_id=why.member_id or UNKNOWN_MEMBER_ID,
        group_instance_id=why.group_instance_id if names_instance else None,
        generation_id=situation.group.generation_id if situation.group is not None else 0,
    )


def _duelling_join(situation: Situation) -> JoinGroup | None:
    """Reconstruct the restart right after the event: the process that had lost the instance id takes it back."""
    following = situation.events[1] if len(situation.events) > 1 else None
    if not isinstance(following, StaticMemberReplaced):
        return None
    set_replaced_members(situation, seen_again=True)
    return _join(situation, following.member, following)


# ---- removals -----------------------------------------------------------------------------------


def _removal(situation: Situation, event: MemberRemoved) -> AnyCommand | None:
    why, member, soft = event.why, event.member, situation.soft
    match why.cause:
        case Cause.MEMBER_LEFT | Cause.MEMBER_REMOVED_BY_ADMIN:
            return leave(situation)
        case Cause.SESSION_EXPIRED | Cause.FIRST_JOIN_TIMED_OUT:
            session = soft.sessions.get(member.member_id)
            if session is None:
                return None
            soft.sessions[member.member_id] = msgspec.structs.replace(
                session,
                deadline_ms=why.arrived_ms,
                awaits_first_join=why.cause is Cause.FIRST_JOIN_TIMED_OUT,
            )
            return ExpireSession(group_id=situation.group_id, member_id=member.member_id, due_ms=why.arrived_ms)
        case Cause.SYNC_TIMED_OUT:
            soft.sync_deadline_ms = why.arrived_ms
            silent = (event for event in situation.until_group_event() if isinstance(event, MemberRemoved))
            soft.pending_syncs = TableSet(event.member.member_id for event in silent)
            return EndSyncPhase(group_id=situation.group_id, due_ms=why.arrived_ms)
        case Cause.NOT_REJOINED:
            return _end_join_phase(situation, situation.until_group_event()[-1].why)
        case Cause.GROUP_FULL:
            return _join(situation, member, event)
        case _:
            return None


# ---- phases -------------------------------------------------------------------------------------


def _sync(situation: Situation) -> SyncGroup:
    """Reconstruct the leader's SyncGroup."""
    assigned = [event for event in situation.until_group_event() if isinstance(event, MemberAssigned)]
    assignments = tuple((event.member.member_id, event.member.assignment) for event in assigned)
    return _sync_of(situation, assignments)


def _sync_of(situation: Situation, assignments: tuple[tuple[MemberId, bytes], ...]) -> SyncGroup:
    why = situation.why
    return SyncGroup(
        group_id=situation.group_id,
        caller=caller(why),
        member_id=why.member_id or UNKNOWN_MEMBER_ID,
        group_instance_id=why.group_instance_id,
        generation_id=situation.group.generation_id if situation.group is not None else 0,
        protocol_type=None,
        protocol_name=None,
        assignments=assignments,
    )


def _end_join_phase(situation: Situation, why: Why) -> EndJoinPhase:
    soft = situation.soft
    soft.join_deadline_ms = why.arrived_ms
    if soft.initial_delay is not None:
        # How often it was extended does not matter, since extensions write nothing. It ended at this time.
        soft.initial_delay = InitialDelay(delay_ms=soft.initial_delay.delay_ms, remaining_ms=0)
    return EndJoinPhase(group_id=situation.group_id, due_ms=why.arrived_ms)


def _end_of_join_phase(situation: Situation, why: Why) -> AnyCommand:
    """Reconstruct the end of a join phase without removals: its timeout, or the expiry of the last pending member."""
    if why.cause is not Cause.ALL_JOINED:
        return _end_join_phase(situation, why)
    if is_leave(why):
        entry = pending_leaver(situation, why)
        return LeaveGroup(group_id=situation.group_id, caller=caller(why), members=(entry,))
    phantom = msgspec.structs.replace(session_of(why), deadline_ms=why.arrived_ms)
    situation.soft.pending_members = Sessions({PHANTOM: phantom})
    return ExpirePendingMember(group_id=situation.group_id, member_id=PHANTOM, due_ms=why.arrived_ms)


def _start_without_members(situation: Situation) -> AnyCommand | None:
    """Reconstruct the command behind a rebalance that no event of a member started."""
    why = situation.why
    match why.cause:
        case Cause.REGISTRATION_COMPLETE:
            return last_arrival(situation)
        case Cause.OVER_CAPACITY:
            return CheckCapacity(group_id=situation.group_id)
        case Cause.ASSIGNMENT_NOT_STORED:
            sync = _sync_of(situation, ())
            return RejectAssignment(group_id=situation.group_id, sync=sync, error=ErrorCode.unknown_server_error)
        case Cause.PENDING_MEMBER_LEFT:
            entry = pending_leaver(situation, why)
            return LeaveGroup(group_id=situation.group_id, caller=caller(why), members=(entry,))
        case _:
            return None
