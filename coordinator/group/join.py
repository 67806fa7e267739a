"""JoinGroup: gates, new members, known members. A static member's restart is in `static.py`.

Order (J6): session timeout; group unknown; size limit; protocols; then by what the sender says it is: a new member, a
pending one (KIP-394), or a member.
"""

import msgspec
from kio.schema.errors import ErrorCode

from coordinator.group.commands import JoinGroup
from coordinator.group.identity import note_if_fenced, validate_member
from coordinator.group.outcomes import JoinGroupOutcome
from coordinator.group.rebalance import (
    joined,
    park_join,
    prepare_rebalance,
    supported_by_all,
)
from coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from coordinator.group.soft import Session
from coordinator.group.static import replace_static_member
from coordinator.group.turn import Turn
from events.causes import Cause
from events.events import MemberJoined, MemberRejoined
from events.ids import UNKNOWN_MEMBER_ID, MemberId
from events.state import NO_GENERATION, GroupState, Member


def refuse_before_lookup(command: JoinGroup, settings: GroupSettings) -> JoinGroupOutcome | None:
    """What is refused before the group is looked up (G15, K1)."""
    if not command.group_id:
        return JoinGroupOutcome(error=ErrorCode.invalid_group_id, member_id=command.member_id)
    if not settings.min_session_timeout_ms <= command.session_timeout_ms <= settings.max_session_timeout_ms:
        return JoinGroupOutcome(error=ErrorCode.invalid_session_timeout, member_id=command.member_id)
    return None


def join_group(turn: Turn, command: JoinGroup) -> None:
    """A join in a group that exists."""
    if command.member_id == UNKNOWN_MEMBER_ID and command.proposed_member_id in turn.group.members:
        # The same request sent again by an edge that did not hear the answer: it is that member's retry.
        command = msgspec.structs.replace(command, member_id=command.proposed_member_id)
    if not _has_room(turn, command):
        _refuse_full(turn, command)
    elif not _supports_protocols(turn, command):
        turn.because(
            Cause.PROTOCOL_MISMATCH,
            command.caller,
            command.member_id,
            command.group_instance_id,
            command.reason,
        )
        refuse(turn, command, ErrorCode.inconsistent_group_protocol, command.member_id)
    elif command.member_id == UNKNOWN_MEMBER_ID:
        _join_without_member_id(turn, command)
    elif command.member_id in turn.soft.pending:
        _join_with_pending_id(turn, command)
    else:
        _join_with_member_id(turn, command)


def refuse(turn: Turn, command: JoinGroup, error: ErrorCode, echo: MemberId) -> None:
    """Answer with an error, and record the refusal."""
    turn.note_refused_join(error)
    turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=echo))


# ---- the gates ---------------------------------------------------------------------------------


def _has_room(turn: Turn, command: JoinGroup) -> bool:
    """KIP-389 (X2 to X5). A static member that restarts takes its own place (fixes QK4)."""
    group, joins = turn.group, turn.soft.joins
    member_id = command.member_id
    if command.member_id == UNKNOWN_MEMBER_ID and command.group_instance_id in group.instances:
        member_id = group.instances[command.group_instance_id]
    match turn.image.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            return member_id in joins or len(joins) < turn.settings.max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < turn.settings.max_size


def _refuse_full(turn: Turn, command: JoinGroup) -> None:
    """X1: whoever asks and finds no room is out, at once."""
    turn.because(Cause.GROUP_FULL, command.caller, command.member_id, command.group_instance_id, command.reason)
    turn.soft.pending.pop(command.member_id, None)
    member = turn.group.members.get(command.member_id)
    if member is not None:
        turn.remove(member)
    refuse(turn, command, ErrorCode.group_max_size_reached, UNKNOWN_MEMBER_ID)


def _supports_protocols(turn: Turn, command: JoinGroup) -> bool:
    """S9: a type and a protocol at least; in a group with members also the same type and a protocol in common."""
    if turn.image.state is GroupState.EMPTY:
        return bool(command.protocol_type) and bool(command.protocols)
    if command.protocol_type != turn.image.protocol_type:
        return False
    offered = {protocol.name for protocol in command.protocols}
    members = turn.group.members.values()
    return not offered.isdisjoint(supported_by_all(members)) if members else bool(offered)


# ---- who joins ---------------------------------------------------------------------------------


def _join_without_member_id(turn: Turn, command: JoinGroup) -> None:
    instance = command.group_instance_id
    if instance is not None and instance in turn.group.instances:
        replace_static_member(turn, command)
    elif command.requires_known_member_id:
        # KIP-394: hand out an id, and wait for the sender to come back with it (JE1, P1).
        member_id = command.proposed_member_id
        turn.soft.pending[member_id] = Session(
            timeout_ms=command.session_timeout_ms,
            deadline_ms=turn.now_ms + command.session_timeout_ms,
            heard_ms=turn.now_ms,
        )
        turn.reply(command.caller, JoinGroupOutcome(error=ErrorCode.member_id_required, member_id=member_id))
    else:
        _add_member(turn, command, command.proposed_member_id)


def _join_with_pending_id(turn: Turn, command: JoinGroup) -> None:
    if command.group_instance_id is not None:
        # An id is pending only if it was asked for without an instance id (P3).
        turn.reply(
            command.caller,
            JoinGroupOutcome(error=ErrorCode.unknown_server_error, member_id=UNKNOWN_MEMBER_ID),
        )
        return
    del turn.soft.pending[command.member_id]
    _add_member(turn, command, command.member_id)


def _join_with_member_id(turn: Turn, command: JoinGroup) -> None:
    error = validate_member(turn.group, command.member_id, command.group_instance_id)
    if error is ErrorCode.fenced_instance_id:
        note_if_fenced(turn, error, command.caller, command.member_id, command.group_instance_id, reason=command.reason)
        turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=command.member_id))
        return
    if error is not ErrorCode.none:
        turn.because(Cause.UNKNOWN_MEMBER, command.caller, command.member_id, command.group_instance_id, command.reason)
        refuse(turn, command, error, command.member_id)
        return
    member = turn.group.members[command.member_id]
    rejoin_cause = _rejoin_cause(turn, command, member)
    if rejoin_cause is None:
        # The client did not hear the answer it has had already (R9, JC1), or asks for no reason (JS2).
        turn.reply(command.caller, joined(turn.group, member.member_id))
        return
    turn.because(rejoin_cause, command.caller, member.member_id, member.group_instance_id, command.reason)
    _update_member(turn, command, member)
    prepare_rebalance(turn)


def _rejoin_cause(turn: Turn, command: JoinGroup, member: Member) -> Cause | None:
    """What a member's rejoin leads to; None: nothing, it is answered at once."""
    unchanged = command.protocols == member.protocols
    match turn.image.state:
        case GroupState.PREPARING_REBALANCE:
            return Cause.REJOINED
        case GroupState.COMPLETING_REBALANCE:
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.STABLE:
            if member.member_id == turn.image.leader_id:
                return Cause.LEADER_REJOINED
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"{turn.image.state} with member {member.member_id}")


def _add_member(turn: Turn, command: JoinGroup, member_id: MemberId) -> None:
    """J12: flagged new, parked, five minutes to be answered; the group rebalances."""
    is_static = command.group_instance_id is not None
    cause = Cause.NEW_STATIC_MEMBER if is_static else Cause.NEW_DYNAMIC_MEMBER
    turn.because(cause, command.caller, member_id, command.group_instance_id, command.reason)
    if not turn.group.members:
        turn.change(protocol_type=command.protocol_type, leader_id=member_id)  # S8, S12
    turn.soft.sessions[member_id] = Session(
        timeout_ms=command.session_timeout_ms,
        deadline_ms=turn.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS,
        heard_ms=turn.now_ms,
        awaits_first_join=True,
    )
    turn.record_member(MemberJoined, _member(turn, command, member_id))
    park_join(turn, member_id, command.caller)
    delay = turn.soft.initial_delay
    if delay is not None:
        turn.soft.initial_delay = msgspec.structs.replace(delay, member_joined=True)  # JP3
    prepare_rebalance(turn)


def _member(turn: Turn, command: JoinGroup, member_id: MemberId) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.caller.client_id,
        client_host=command.caller.client_host,
        principal=command.caller.principal,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        protocols=command.protocols,
        assignment=b"",
        assigned_generation_id=NO_GENERATION,
        joined_ms=turn.moment.wall_ms,
    )


def _update_member(turn: Turn, command: JoinGroup, member: Member) -> None:
    """J14: what a rejoin brings is stored when it is part of a rebalance; who sent it as well (fixes J15)."""
    turn.hear(member.member_id)
    session = turn.soft.sessions[member.member_id]
    turn.soft.sessions[member.member_id] = msgspec.structs.replace(session, timeout_ms=command.session_timeout_ms)
    turn.record_member(
        MemberRejoined,
        msgspec.structs.replace(
            member,
            client_id=command.caller.client_id,
            client_host=command.caller.client_host,
            principal=command.caller.principal,
            protocols=command.protocols,
            session_timeout_ms=command.session_timeout_ms,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
        ),
    )
    park_join(turn, member.member_id, command.caller)
