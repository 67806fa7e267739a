"""JoinGroup: gates, new members, known members. A static member's restart is in `static.py`.

Order (J6): session timeout, how large the metadata is; group unknown; size limit; protocols; then by what the sender
says it is: a new member, a pending one (KIP-394), or a member.
"""

from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.arrivals import arrival_error, arrival_of, hold, is_held, is_waited_for, take_back
from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.members import add_parked_member, park_join, supports_protocols
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.plan_deadlines import rebalance_if_complete
from muster.coordinator.group.rebalance import joined, note_subscription, prepare_rebalance
from muster.coordinator.group.roles import admit_held_member, role_of_new_member
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft import Session
from muster.coordinator.group.standbys import can_read
from muster.coordinator.group.static import answer_absorbed, replace_static_member
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import MemberRejoined
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import HELD, GroupState, Member, MemberRole

METADATA_TOO_LARGE: Final = ErrorCode.unknown_server_error
"""Before the group is looked up it says nothing else."""


def error_before_lookup(command: JoinGroup, settings: GroupSettings) -> ErrorCode:
    """What is refused before the group is looked up (G15, K1).

    Metadata that is too large is refused as Kafka refuses what is too large for its log (RE13), but at once: there
    the others have joined by then. While it is parked, and as long as the member is there, it is held in memory.
    """
    if not command.group_id:
        return ErrorCode.invalid_group_id
    if not settings.min_session_timeout_ms <= command.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.invalid_session_timeout
    if metadata_bytes(command) > settings.member_metadata_max_bytes:
        return METADATA_TOO_LARGE
    return ErrorCode.none


def metadata_bytes(command: JoinGroup) -> int:
    """What the member's protocols hold together."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in command.protocols)


def join_error(turn: Turn, command: JoinGroup) -> ErrorCode:
    """With which error a join is answered at once; NONE: with none (or 79, KIP-394), or later. Changes nothing."""
    member_id = _sender(turn, command)
    if not _has_room(turn, command, member_id):
        return ErrorCode.group_max_size_reached
    if not supports_protocols(turn, command):
        return ErrorCode.inconsistent_group_protocol
    if member_id == UNKNOWN_MEMBER_ID:
        return ErrorCode.none
    if member_id in turn.soft.pending:
        # An id is pending only if it was asked for without an instance id (P3).
        return ErrorCode.none if command.group_instance_id is None else ErrorCode.unknown_server_error
    if member_id in turn.soft.arrivals:
        return arrival_error(turn, member_id, command.group_instance_id)
    return validate_member(turn.group, member_id, command.group_instance_id)


def join_group(turn: Turn, command: JoinGroup) -> None:
    """A join in a group that exists."""
    error, sender = join_error(turn, command), _sender(turn, command)
    if sender != command.member_id:
        command = msgspec.structs.replace(command, member_id=sender)
    if error is not ErrorCode.none:
        _refuse(turn, command, error)
    elif command.member_id == UNKNOWN_MEMBER_ID:
        _join_without_member_id(turn, command)
    elif command.member_id in turn.soft.pending:
        del turn.soft.pending[command.member_id]
        _add_member(turn, command, command.member_id)
    elif command.member_id in turn.soft.arrivals:
        # It was held, and asks again.
        own = turn.soft.arrivals[command.member_id].join.group_instance_id
        _add_member(turn, msgspec.structs.replace(command, group_instance_id=own), command.member_id)
    else:
        _join_with_member_id(turn, command)


def _sender(turn: Turn, command: JoinGroup) -> MemberId:
    """The same request sent again by an edge that did not hear the answer: it is that member's retry."""
    is_repetition = command.member_id == UNKNOWN_MEMBER_ID and _is_known(turn, command.proposed_member_id)
    return command.proposed_member_id if is_repetition else command.member_id


def _is_known(turn: Turn, member_id: MemberId) -> bool:
    """A member, an arrival, or one that was fenced: its answer was 82, and it must not take the instance id back."""
    soft = turn.soft
    return member_id in turn.group.members or member_id in soft.arrivals or member_id in soft.claims


# ---- refusals ----------------------------------------------------------------------------------


def _refuse(turn: Turn, command: JoinGroup, error: ErrorCode) -> None:
    """Answer with the error, and record the refusal, or who is fenced."""
    member_id, instance = command.member_id, command.group_instance_id
    echo = member_id
    match error:
        case ErrorCode.unknown_server_error:
            turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=UNKNOWN_MEMBER_ID))
            return
        case ErrorCode.group_max_size_reached:
            _leave_full_group(turn, command)
            echo = UNKNOWN_MEMBER_ID
        case ErrorCode.inconsistent_group_protocol:
            turn.because(Cause.PROTOCOL_MISMATCH, command.caller, member_id, instance, command.reason)
        case _ if member_id not in turn.soft.arrivals and (
            error is ErrorCode.fenced_instance_id or member_id in turn.soft.claims
        ):
            note_if_fenced(turn, error, command.caller, member_id, instance, reason=command.reason)
            turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=member_id))
            return
        case _:
            turn.because(Cause.UNKNOWN_MEMBER, command.caller, member_id, instance, command.reason)
    turn.note_refused_join(error)
    turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=echo))


def _leave_full_group(turn: Turn, command: JoinGroup) -> None:
    """X1: whoever asks and finds no room is out, at once."""
    turn.because(Cause.GROUP_FULL, command.caller, command.member_id, command.group_instance_id, command.reason)
    turn.soft.pending.pop(command.member_id, None)
    member = turn.group.members.get(command.member_id)
    if member is not None:
        turn.remove(member)


def _has_room(turn: Turn, command: JoinGroup, member_id: MemberId) -> bool:
    """KIP-389 (X2 to X5). A static member that restarts takes its own place (fixes QK4)."""
    group, joins = turn.group, turn.soft.joins
    if member_id == UNKNOWN_MEMBER_ID and command.group_instance_id is not None:
        holder = group.instances.get(command.group_instance_id)
        member_id = holder or arrival_of(turn.soft, command.group_instance_id) or member_id
    match turn.image.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            return member_id in joins or len(joins) < turn.settings.max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            size = len(group.members) + len(turn.soft.arrivals)
            return member_id in group.members or member_id in turn.soft.arrivals or size < turn.settings.max_size


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


def _join_with_member_id(turn: Turn, command: JoinGroup) -> None:
    member = turn.group.members[command.member_id]
    if _was_absorbed(turn, command, member):
        answer_absorbed(turn, command, member, leader_before=None)
        return
    rejoin_cause = _rejoin_cause(turn, command, member)
    skips = member.role is MemberRole.CALLED and member.member_id == turn.image.leader_id
    if rejoin_cause is None:
        # The client did not hear the answer it has had already (R9, JC1), asks for no reason (JS2), or was called.
        turn.reply(command.caller, joined(turn.group, member.member_id, skip_assignment=skips))
        return
    turn.because(rejoin_cause, command.caller, member.member_id, member.group_instance_id, command.reason)
    _update_member(turn, command, member)
    if rejoin_cause is Cause.HELD_MEMBER_REJOINED:
        note_subscription(turn, command)
        turn.reply(command.caller, joined(turn.group, member.member_id, skip_assignment=skips))
        return
    park_join(turn, member.member_id, command.caller)
    prepare_rebalance(turn)


def _was_absorbed(turn: Turn, command: JoinGroup, member: Member) -> bool:
    """Whether this is a leader's restart that was absorbed (ST11), sent again because its answer was not heard.

    A leader whose group is stable has synced, and so knows its member id, unless it took another's place since then.
    """
    leads_stable_group = turn.image.state is GroupState.STABLE and member.member_id == turn.image.leader_id
    is_repetition = command.member_id == command.proposed_member_id
    return leads_stable_group and is_repetition and member.role is MemberRole.ACTIVE


def _rejoin_cause(turn: Turn, command: JoinGroup, member: Member) -> Cause | None:
    """What a member's rejoin leads to; None: nothing, it is answered at once."""
    unchanged = command.protocols == member.protocols
    if (
        not unchanged
        and turn.image.state is not GroupState.PREPARING_REBALANCE
        and _moves_nothing(turn, command, member)
    ):
        return Cause.HELD_MEMBER_REJOINED
    match turn.image.state:
        case GroupState.PREPARING_REBALANCE:
            return Cause.REJOINED
        case GroupState.COMPLETING_REBALANCE:
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.STABLE:
            if member.member_id == turn.image.leader_id:
                if member.role is MemberRole.CALLED and _moves_nothing(turn, command, member):
                    return None
                if member.role is MemberRole.CALLED and not command.supports_skip_assignment:
                    return Cause.STANDBY_UNFIT
                return Cause.LEADER_REJOINED
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"{turn.image.state} with member {member.member_id}")


def _moves_nothing(turn: Turn, command: JoinGroup, member: Member) -> bool:
    """A held member has nothing that could move. One that was called takes what it was given, if it can read it.

    Its metadata is another one in any case where clients tell their generation in it, as Java's do, and all that are
    cooperative. To lead it has to be able to skip the assignment (KIP-814).
    """
    metadata = {protocol.name: protocol.metadata for protocol in command.protocols}.get(turn.image.protocol_name or "")
    if metadata is None:
        return False
    if member.role is MemberRole.CALLED:
        leads = member.member_id == turn.image.leader_id
        return can_read(metadata, member.assignment) and (command.supports_skip_assignment or not leads)
    return member.is_held


def _add_member(turn: Turn, command: JoinGroup, member_id: MemberId) -> None:
    """A new member: held beside the assignment, held back with others, or the reason for a rebalance."""
    role = role_of_new_member(turn, command)
    if role in HELD and turn.image.state is not GroupState.PREPARING_REBALANCE and not is_waited_for(turn, command):
        take_back(turn, command, member_id)
        admit_held_member(turn, command, member_id, role)
        note_subscription(turn, command)
    elif is_held(turn, command):
        hold(turn, command, member_id)
        rebalance_if_complete(turn)
    else:
        take_back(turn, command, member_id)
        add_parked_member(turn, command, member_id, role)
        prepare_rebalance(turn)


def _update_member(turn: Turn, command: JoinGroup, member: Member) -> None:
    """J14: what a rejoin brings is stored when it changes anything; who sent it as well (fixes J15)."""
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
