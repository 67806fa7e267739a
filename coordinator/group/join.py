"""JoinGroup: validation, new members, known members. A static member's restart is in `static.py`.

Order of validation (J6): session timeout, size of the metadata; unknown group; group.max.size; protocols; then the
member id, depending on whether it is new, pending (KIP-394) or known.
"""

from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import JoinGroup
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.handed_out import expect_back, forget_oldest, settle
from muster.coordinator.group.held_joins import (
    held_join_error,
    held_join_of,
    hold_join,
    is_waited_for,
    must_be_held,
    withdraw_held_join,
)
from muster.coordinator.group.identity import validate_member
from muster.coordinator.group.members import add_parked_member, park_join, supports_protocols
from muster.coordinator.group.membership_timeouts import rebalance_if_registration_complete
from muster.coordinator.group.outcomes import JoinGroupOutcome
from muster.coordinator.group.rebalance import join_outcome, note_subscription, prepare_rebalance
from muster.coordinator.group.roles import admit_inactive_member, role_of_new_member
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.standby_members import covers_assignment
from muster.coordinator.group.static import answer_absorbed, replace_static_member
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import MemberRejoined
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import INACTIVE_ROLES, GroupState, HandedOutIdOutcome, Member, MemberRole

PENDING_MEMBERS_MAX: Final = 20_000
"""The limit of pending members in one group. A client that intends to join returns at once; one whose id was forgotten
is answered UNKNOWN_MEMBER_ID (25), and requests a new one.
"""

METADATA_TOO_LARGE: Final = ErrorCode.unknown_server_error
"""The only use of this error before the group is looked up."""


REFUSED_BEFORE_LOOKUP: Final = frozenset({ErrorCode.invalid_session_timeout, METADATA_TOO_LARGE})
"""The errors of `error_before_lookup` that are recorded in the group's history."""


def error_before_lookup(command: JoinGroup, settings: GroupSettings) -> ErrorCode:
    """Validate a join before the group is looked up (G15, K1).

    Metadata that is too large is refused with the error that Kafka has for a record too large for its log (RE13), but
    immediately, since it would be kept in memory as long as the member exists.
    """
    if not command.group_id:
        return ErrorCode.invalid_group_id
    if not settings.min_session_timeout_ms <= command.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.invalid_session_timeout
    if metadata_bytes(command) > settings.member_metadata_max_bytes:
        return METADATA_TOO_LARGE
    return ErrorCode.none


def metadata_bytes(command: JoinGroup) -> int:
    """Return the total size of all protocols' names and metadata."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in command.protocols)


def join_error(turn: Turn, command: JoinGroup) -> ErrorCode:
    """Return the error that refuses a join; NONE if it is parked, succeeds or gets a member id. Changes nothing."""
    member_id = _sender(turn, command)
    if not _has_room(turn, command, member_id):
        return ErrorCode.group_max_size_reached
    if not supports_protocols(turn, command):
        return ErrorCode.inconsistent_group_protocol
    if member_id == UNKNOWN_MEMBER_ID:
        return ErrorCode.none
    if member_id in turn.soft.pending_members:
        # An id is pending only if it was requested without an instance id (P3).
        return ErrorCode.none if command.group_instance_id is None else ErrorCode.unknown_server_error
    if member_id in turn.soft.held_joins:
        return held_join_error(turn, member_id, command.group_instance_id)
    return validate_member(turn.group, member_id, command.group_instance_id)


def join_group(turn: Turn, command: JoinGroup) -> None:
    """Process a join in a group that exists."""
    error, sender = join_error(turn, command), _sender(turn, command)
    if sender != command.member_id:
        command = msgspec.structs.replace(command, member_id=sender)
    if error is not ErrorCode.none:
        _refuse(turn, command, error)
    elif command.member_id == UNKNOWN_MEMBER_ID:
        _join_without_member_id(turn, command)
    elif command.member_id in turn.soft.pending_members:
        settle(turn, command.member_id, HandedOutIdOutcome.JOINED)
        _add_member(turn, command, command.member_id)
    elif command.member_id in turn.soft.held_joins:
        # The retry of a held join.
        own = turn.soft.held_joins[command.member_id].join.group_instance_id
        _add_member(turn, msgspec.structs.replace(command, group_instance_id=own), command.member_id)
    else:
        _join_with_member_id(turn, command)


def _sender(turn: Turn, command: JoinGroup) -> MemberId:
    """Return the effective member id: a known proposed id marks the retry of a join whose response was lost.

    Clients cannot send one, since each request gets a new proposed id (wire/join_group.py); a process that forwards
    joins to their owner could (tests/model simulates one).
    """
    is_repetition = command.member_id == UNKNOWN_MEMBER_ID and _is_known(turn, command.proposed_member_id)
    return command.proposed_member_id if is_repetition else command.member_id


def _is_known(turn: Turn, member_id: MemberId) -> bool:
    """Return whether it is a member, has a held join, or was replaced; a replaced one must not take its instance id
    back.
    """
    soft = turn.soft
    return member_id in turn.group.members or member_id in soft.held_joins or member_id in soft.replaced_members


# ---- refusals ----------------------------------------------------------------------------------


def _refuse(turn: Turn, command: JoinGroup, error: ErrorCode) -> None:
    """Answer with the error, and record the refusal, or the fencing."""
    member_id, instance = command.member_id, command.group_instance_id
    echo = member_id
    match error:
        case ErrorCode.unknown_server_error:
            turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=UNKNOWN_MEMBER_ID))
            return
        case ErrorCode.group_max_size_reached:
            _remove_for_lack_of_room(turn, command)
            echo = UNKNOWN_MEMBER_ID
        case ErrorCode.inconsistent_group_protocol:
            turn.caused_by(Cause.PROTOCOL_MISMATCH, command.caller, member_id, instance, command.reason)
        case _ if member_id not in turn.soft.held_joins and (
            error is ErrorCode.fenced_instance_id or member_id in turn.soft.replaced_members
        ):
            note_if_fenced(turn, error, command.caller, member_id, instance, reason=command.reason)
            turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=member_id))
            return
        case _:
            turn.caused_by(Cause.UNKNOWN_MEMBER, command.caller, member_id, instance, command.reason)
    turn.note_refused_join(command, error)
    turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=echo))


def _remove_for_lack_of_room(turn: Turn, command: JoinGroup) -> None:
    """Remove a member whose join finds the group full (X1)."""
    turn.caused_by(Cause.GROUP_FULL, command.caller, command.member_id, command.group_instance_id, command.reason)
    settle(turn, command.member_id, HandedOutIdOutcome.REFUSED)
    member = turn.group.members.get(command.member_id)
    if member is not None:
        turn.remove(member)


def _has_room(turn: Turn, command: JoinGroup, member_id: MemberId) -> bool:
    """Return whether group.max.size allows the join (KIP-389, X2 to X5); a static member replaces itself (fixes
    QK4).
    """
    group, joins = turn.group, turn.soft.parked_joins
    if member_id == UNKNOWN_MEMBER_ID and command.group_instance_id is not None:
        holder = group.instances.get(command.group_instance_id)
        member_id = holder or held_join_of(turn.soft, command.group_instance_id) or member_id
    match turn.image.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            return member_id in joins or len(joins) < turn.settings.max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            size = len(group.members) + len(turn.soft.held_joins)
            return member_id in group.members or member_id in turn.soft.held_joins or size < turn.settings.max_size


def refuse_before_lookup(turn: Turn, command: JoinGroup, error: ErrorCode) -> None:
    """Answer with an error of `error_before_lookup`, and record the refusal."""
    is_size = error is METADATA_TOO_LARGE
    cause = Cause.METADATA_TOO_LARGE if is_size else Cause.SESSION_TIMEOUT_REFUSED
    turn.caused_by(cause, command.caller, command.member_id, command.group_instance_id, command.reason)
    turn.note_refused_join(command, error)
    turn.reply(command.caller, JoinGroupOutcome(error=error, member_id=command.member_id))


# ---- new and known members ---------------------------------------------------------------------


def _join_without_member_id(turn: Turn, command: JoinGroup) -> None:
    instance = command.group_instance_id
    if instance is not None and instance in turn.group.instances:
        replace_static_member(turn, command)
    elif command.requires_known_member_id:
        _hand_out_member_id(turn, command)
    else:
        _add_member(turn, command, command.proposed_member_id)


def _hand_out_member_id(turn: Turn, command: JoinGroup) -> None:
    """Answer with a member id, and expect the sender to join with it (KIP-394, JE1, P1)."""
    if len(turn.soft.pending_members) >= PENDING_MEMBERS_MAX:
        # A tenth at a time, since finding the oldest ones costs as much as copying all.
        forget_oldest(turn, PENDING_MEMBERS_MAX // 10)
    member_id, timeout_ms = command.proposed_member_id, command.session_timeout_ms
    expect_back(turn, member_id, command.caller, session_timeout_ms=timeout_ms, deadline_ms=turn.now_ms + timeout_ms)
    turn.reply(command.caller, JoinGroupOutcome(error=ErrorCode.member_id_required, member_id=member_id))


def _join_with_member_id(turn: Turn, command: JoinGroup) -> None:
    member = turn.group.members[command.member_id]
    if _was_absorbed(turn, command, member):
        answer_absorbed(turn, command, member, leader_before=None)
        return
    rejoin_cause = _rejoin_cause(turn, command, member)
    skips = member.role is MemberRole.CALLED and member.member_id == turn.image.leader_id
    if rejoin_cause is None:
        # The response was lost (R9, JC1), a follower rejoins without need (JS2), or a standby was called.
        turn.reply(command.caller, join_outcome(turn.group, member.member_id, skip_assignment=skips))
        return
    turn.caused_by(rejoin_cause, command.caller, member.member_id, member.group_instance_id, command.reason)
    _update_member(turn, command, member)
    if rejoin_cause is Cause.INACTIVE_MEMBER_REJOINED:
        note_subscription(turn, command)
        turn.reply(command.caller, join_outcome(turn.group, member.member_id, skip_assignment=skips))
        return
    park_join(turn, member.member_id, command.caller)
    prepare_rebalance(turn)


def _was_absorbed(turn: Turn, command: JoinGroup, member: Member) -> bool:
    """Return whether this retries a leader's restart that was absorbed (ST11), because the response was lost.

    The leader of a Stable group has synced, and so knows its member id, unless it has replaced another member since.
    """
    leads_stable_group = turn.image.state is GroupState.STABLE and member.member_id == turn.image.leader_id
    is_repetition = command.member_id == command.proposed_member_id
    return leads_stable_group and is_repetition and member.role is MemberRole.ACTIVE


def _rejoin_cause(turn: Turn, command: JoinGroup, member: Member) -> Cause | None:
    """Return the cause of the events that a member's rejoin leads to; None: it is answered at once, without effect."""
    unchanged = command.protocols == member.protocols
    if (
        not unchanged
        and turn.image.state is not GroupState.PREPARING_REBALANCE
        and _keeps_assignment(turn, command, member)
    ):
        return Cause.INACTIVE_MEMBER_REJOINED
    match turn.image.state:
        case GroupState.PREPARING_REBALANCE:
            return Cause.REJOINED
        case GroupState.COMPLETING_REBALANCE:
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.STABLE:
            if member.member_id == turn.image.leader_id:
                if member.role is MemberRole.CALLED and _keeps_assignment(turn, command, member):
                    return None
                if member.role is MemberRole.CALLED and not command.supports_skip_assignment:
                    return Cause.STANDBY_UNFIT
                return Cause.LEADER_REJOINED
            return None if unchanged else Cause.METADATA_CHANGED
        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"{turn.image.state} with member {member.member_id}")


def _keeps_assignment(turn: Turn, command: JoinGroup, member: Member) -> bool:
    """Return whether the member's changed metadata needs no new assignment.

    An inactive member has no partitions. A called standby keeps the assignment that it was given if its subscription
    covers it; its metadata changes anyway with clients that send their generation in it (Java's, cooperative ones). To
    lead, it must be able to skip the assignment (KIP-814).
    """
    metadata = {protocol.name: protocol.metadata for protocol in command.protocols}.get(turn.image.protocol_name or "")
    if metadata is None:
        return False
    if member.role is MemberRole.CALLED:
        leads = member.member_id == turn.image.leader_id
        return covers_assignment(metadata, member.assignment) and (command.supports_skip_assignment or not leads)
    return member.is_inactive


def _add_member(turn: Turn, command: JoinGroup, member_id: MemberId) -> None:
    """Add a new member: as an inactive one, later with other held joins, or with a rebalance."""
    role = role_of_new_member(turn, command)
    if (
        role in INACTIVE_ROLES
        and turn.image.state is not GroupState.PREPARING_REBALANCE
        and not is_waited_for(turn, command)
    ):
        withdraw_held_join(turn, command, member_id)
        admit_inactive_member(turn, command, member_id, role)
        note_subscription(turn, command)
    elif must_be_held(turn, command):
        hold_join(turn, command, member_id)
        rebalance_if_registration_complete(turn)
    else:
        withdraw_held_join(turn, command, member_id)
        add_parked_member(turn, command, member_id, role)
        prepare_rebalance(turn)


def _update_member(turn: Turn, command: JoinGroup, member: Member) -> None:
    """Store what a rejoin changes, if anything (J14); including the client's id and host (fixes J15)."""
    session = turn.soft.sessions[member.member_id]
    moved = None if session.connection is command.caller.connection else turn.last_connection(member.member_id)
    turn.note_seen(member.member_id, command.caller)
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
        last_connection=moved,
    )
